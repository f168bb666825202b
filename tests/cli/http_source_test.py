# SPDX-License-Identifier: Apache-2.0
"""Sources behind HTTP: a server on loopback that drops, delays, cuts and redirects."""
import http.server
import io
import json
import os
import signal
import socketserver
import subprocess
import tarfile
import threading
import time
import urllib.parse

import numpy as np
import pytest
from conftest import BINARY, assert_error
from data_test import png

PIPELINE = """version = 1
source = { kind = "tar", shards = "URL" }
[[stage]]
op = "decode"
[[stage]]
op = "resize"
size = 8
"""


def shard(n=4):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for i in range(n):
            for name, content in ((f"{i:03}.png", png(30, 20, 10 * i)), (f"{i:03}.cls", str(i % 3).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        s = self.server
        s.requests.append(self.path)
        if self.path.startswith("/webhdfs/v1/a.tar?"):
            return self.web_hdfs(urllib.parse.parse_qs(self.path.split("?")[1]))
        if self.path.startswith("/moved.tar"):
            self.send_response(302)
            self.wfile.write(b"".join(self._headers_buffer) + f"Location:{s.target}\r\n".encode())
            self._headers_buffer = []
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if self.path != "/a.tar":
            return self.send_error(404)
        mode = s.mode(self.headers["Range"])
        if mode == "drop":
            self.close_connection = True
            return self.connection.close()
        if mode == "busy":
            return self.send_error(503)
        if mode == "silent":
            time.sleep(s.pause)
        first, last = self.headers["Range"][6:].split("-")
        whole = s.content if mode != "changed" else s.content + bytes(512)
        first, last = int(first), min(int(last), len(whole) - 1)
        body = whole[first:last + 1] if mode != "ignore" else whole
        self.send_response(206 if mode != "ignore" else 200)
        if mode != "ignore":
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(whole)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if mode == "cut":
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            return self.connection.close()
        self.wfile.write(body)


    def web_hdfs(self, query):
        """Of a name node that sends readers on to a data node; ranges are not known there."""
        s = self.server
        assert query["user.name"] == ["me"]
        if query["op"] == ["GETFILESTATUS"]:
            body = json.dumps({"FileStatus": {"length": len(s.content), "type": s.type, "modificationTime": 1}}).encode()
        elif "at" not in query:
            self.send_response(307)
            self.send_header("Location", f"{s.url}{self.path}&at=data")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        else:
            first, length = int(query["offset"][0]), int(query["length"][0])
            body = s.content[first:first + length]
        cut = s.mode(self.path) == "cut"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:len(body) // 2] if cut else body)
        if cut:
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, *args):
        pass


@pytest.fixture
def server():
    s = Server(("127.0.0.1", 0), Handler)
    s.content, s.requests, s.mode, s.target = shard(), [], lambda range: "good", ""
    s.pause, s.type = 3, "FILE"
    s.url = f"http://127.0.0.1:{s.server_port}"
    threading.Thread(target=s.serve_forever, daemon=True).start()
    yield s
    s.shutdown()


def at_first(mode):
    """The mode for the first request of each range, then good."""
    seen = set()

    def choose(range):
        if range in seen:
            return "good"
        seen.add(range)
        return mode
    return choose


ALLOW = {"PELTON_HTTP_ALLOW": "127.0.0.1"}


def batch(pelton, tmp_path, location, env=ALLOW):
    (tmp_path / "p.toml").write_text(PIPELINE.replace("URL", location))
    return pelton("data", "p.toml", "--batch=4", "--save", "out", env=env)


def pixels(tmp_path):
    return np.load(tmp_path / "out" / "image.npy")


def test_ranges_survive_what_networks_do(pelton, tmp_path, server):
    (tmp_path / "a.tar").write_bytes(server.content)
    assert batch(pelton, tmp_path, "a.tar").code == 0
    expected = pixels(tmp_path)
    for name in ("good", "drop", "busy", "cut"):
        server.mode = at_first(name)
        result = batch(pelton, tmp_path, server.url + "/a.tar")
        assert result.code == 0, name + result.err
        np.testing.assert_array_equal(pixels(tmp_path), expected)
    server.mode, server.target = at_first("good"), server.url + "/a.tar"
    assert batch(pelton, tmp_path, server.url + "/moved.tar").code == 0
    np.testing.assert_array_equal(pixels(tmp_path), expected)


def test_web_hdfs(pelton, tmp_path, server):
    (tmp_path / "a.tar").write_bytes(server.content)
    assert batch(pelton, tmp_path, "a.tar").code == 0
    expected = pixels(tmp_path)
    url = server.url + "/webhdfs/v1/a.tar?user.name=me"
    for mode in ("good", "cut"):
        server.mode = at_first(mode)
        result = batch(pelton, tmp_path, url)
        assert result.code == 0, result.err
        np.testing.assert_array_equal(pixels(tmp_path), expected)
    server.type = "DIRECTORY"
    assert_error(batch(pelton, tmp_path, url), 1, "describes no file", "DIRECTORY")


def test_what_cannot_be_read_is_one_clear_error(pelton, tmp_path, server):
    assert_error(batch(pelton, tmp_path, server.url + "/absent.tar"), 1, "404", "/absent.tar")
    server.mode = lambda range: "ignore"
    assert_error(batch(pelton, tmp_path, server.url + "/a.tar"), 1, "does not answer ranges")
    server.mode = lambda range: "good" if range == "bytes=0-0" else "changed"
    assert_error(batch(pelton, tmp_path, server.url + "/a.tar"), 1, "has changed")


def test_private_addresses_need_the_operators_word(pelton, tmp_path, server):
    before = len(server.requests)
    for env in ({"PELTON_HTTP_ALLOW": ""}, {"PELTON_HTTP_ALLOW": "data.example,10.0.0.1"}):
        assert_error(batch(pelton, tmp_path, server.url + "/a.tar", env), 1, "127.0.0.1 is private", "PELTON_HTTP_ALLOW")
    assert len(server.requests) == before
    # A redirect is held to the same list, in every form that libcurl takes for another host.
    other = f"127.0.0.2:{server.server_port}/a.tar"
    for target in (f"http://{other}", f"//{other}", f"\t//{other}", f"http:/{other}", f"HTTP://{other}",
                   f"http://127.0.0.1@{other}", f"http:///{other}"):
        server.target = target
        result = batch(pelton, tmp_path, server.url + "/moved.tar")
        assert result.code == 1 and "127.0.0.2" in result.err, target + result.err
        assert "private" in result.err or "Bad hostname" in result.err, target + result.err
    for target, words in (("file:///etc/passwd", "no HTTP URL"), ("/moved.tar?again", "more than 5 redirects")):
        server.target = target
        assert_error(batch(pelton, tmp_path, server.url + "/moved.tar"), 1, words)


def test_an_interrupt_does_not_wait_for_the_server(tmp_path, server):
    server.mode = lambda range: "good" if range == "bytes=0-0" else "silent"
    server.pause = 30
    (tmp_path / "p.toml").write_text(PIPELINE.replace("URL", server.url + "/a.tar"))
    process = subprocess.Popen([str(BINARY), "data", "p.toml"], cwd=tmp_path, env=os.environ | ALLOW, stderr=subprocess.PIPE)
    while len(server.requests) < 2:
        time.sleep(0.01)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130 and time.monotonic() - start < 5
