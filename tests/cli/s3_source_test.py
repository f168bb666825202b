# SPDX-License-Identifier: Apache-2.0
"""Sources behind s3://: a server on loopback that works out each request's signature (version 4) by itself."""
import hashlib
import hmac
import http.server
import re
import threading
import time
import urllib.parse

import numpy as np
import pytest
from conftest import assert_error
from http_source_test import PIPELINE, Server, pixels, shard

KEY_ID, SECRET = "AKIDEXAMPLE", "wJalr/XUtn+FEMI"
NAME = "a folder/shard+1 ü.tar"


def signature(secret, date, region, headers, signed, method, path):
    """As the protocol's description says; `path` is percent-encoded once."""
    def mac(key, text):
        return hmac.new(key, text.encode(), hashlib.sha256).digest()
    canonical = "\n".join([method, path, "", *(f"{name}:{' '.join(headers[name].split())}" for name in signed), "",
                           ";".join(signed), headers["x-amz-content-sha256"]])
    scope = f"{date[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = mac(mac(mac(mac(b"AWS4" + secret.encode(), date[:8]), region), "s3"), "aws4_request")
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def refuse(self, why):
        self.server.refused.append(why)
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        s = self.server
        if self.path != "/bucket.of.mine/" + urllib.parse.quote(NAME, safe="/~"):
            return self.send_error(404)
        if not s.public:
            found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]*)/(\d{8})/([^/]*)/s3/aws4_request, ?"
                                 r"SignedHeaders=([^,]*), ?Signature=([0-9a-f]{64})", self.headers["Authorization"] or "")
            if not found:
                return self.refuse("not signed")
            key_id, day, region, signed, given = found.groups()
            headers = {name.lower(): value for name, value in self.headers.items()}
            signed, date = signed.split(";"), headers["x-amz-date"]
            if key_id != KEY_ID or region != s.region or day != date[:8]:
                return self.refuse(f"signed by {key_id} for {region}")
            if abs(time.time() - time.mktime(time.strptime(date, "%Y%m%dT%H%M%SZ")) + time.timezone) > 900:
                return self.refuse("old")
            wanted = {"host", "x-amz-date", "x-amz-content-sha256"} | ({"x-amz-security-token"} if s.token else set())
            if not wanted <= set(signed) or headers.get("x-amz-security-token", "") != s.token:
                return self.refuse(f"these are not all: {signed}")
            if signature(SECRET, date, region, headers, signed, "GET", self.path) != given:
                return self.refuse("another signature")
        first, last = (int(n) for n in self.headers["Range"][6:].split("-"))
        body = s.content[first:last + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(s.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server():
    s = Server(("127.0.0.1", 0), Handler)
    s.content, s.refused, s.token, s.region, s.public = shard(), [], "", "us-east-1", False
    threading.Thread(target=s.serve_forever, daemon=True).start()
    s.environment = {"PELTON_HTTP_ALLOW": "127.0.0.1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s.server_port}",
                     "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": "", "AWS_REGION": "",
                     "AWS_DEFAULT_REGION": ""}
    yield s
    s.shutdown()


def batch(pelton, tmp_path, server, name="bucket.of.mine/" + NAME, **env):
    (tmp_path / "p.toml").write_text(PIPELINE.replace("URL", "s3://" + name), encoding="utf-8")
    return pelton("data", "p.toml", "--batch=4", "--save", "out", env={**server.environment, **env})


def test_requests_are_signed(pelton, tmp_path, server):
    (tmp_path / "a.tar").write_bytes(server.content)
    (tmp_path / "p.toml").write_text(PIPELINE.replace("URL", "a.tar"))
    assert pelton("data", "p.toml", "--batch=4", "--save", "out").code == 0
    expected = pixels(tmp_path)
    for env in ({}, {"AWS_DEFAULT_REGION": "eu-central-1"}, {"AWS_REGION": "ap-southeast-2", "AWS_DEFAULT_REGION": "elsewhere"},
                {"AWS_SESSION_TOKEN": "FwoGZXIvYXdzE/short+lived=="}):
        server.region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
        server.token = env.get("AWS_SESSION_TOKEN", "")
        result = batch(pelton, tmp_path, server, **env)
        assert result.code == 0, f"{env} {server.refused} {result.err}"
        np.testing.assert_array_equal(pixels(tmp_path), expected)
    server.public = True
    assert batch(pelton, tmp_path, server, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="").code == 0


def test_what_is_wrong_with_a_key_or_name_is_told(pelton, tmp_path, server):
    assert_error(batch(pelton, tmp_path, server, AWS_SECRET_ACCESS_KEY="another"), 1, "the server answers 403")
    assert server.refused == ["another signature"]
    assert SECRET not in batch(pelton, tmp_path, server, AWS_ACCESS_KEY_ID="nobody").err
    assert_error(batch(pelton, tmp_path, server, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY=""), 1, "the server answers 403",
                 "was not signed")
    assert_error(batch(pelton, tmp_path, server, AWS_ACCESS_KEY_ID=""), 1, "only one of AWS_ACCESS_KEY_ID")
    for name in ("bucket", "bucket/", "me@host/a.tar", "host:80/a.tar", "/a.tar"):
        assert_error(batch(pelton, tmp_path, server, name), 1, "no object of a bucket", "s3://BUCKET/KEY")
    assert_error(batch(pelton, tmp_path, server, "bucket.of.mine/absent.tar"), 1, "404", "s3://bucket.of.mine/absent.tar")


def test_another_host_gets_no_signature(pelton, tmp_path, server):
    """A bucket that moves its readers on to another host: what that is asked carries no key's name."""
    seen = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            seen.append(self.headers["Authorization"])
            self.send_error(404)

    class Moves(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            seen.append(self.headers["Authorization"])
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.2:{other.server_port}/a.tar")
            self.end_headers()

    other, moves = Server(("127.0.0.2", 0), Elsewhere), Server(("127.0.0.1", 0), Moves)
    for s in (other, moves):
        threading.Thread(target=s.serve_forever, daemon=True).start()
    try:
        result = batch(pelton, tmp_path, server, AWS_ENDPOINT_URL=f"http://127.0.0.1:{moves.server_port}",
                       PELTON_HTTP_ALLOW="127.0.0.1,127.0.0.2")
        assert_error(result, 1, "404")
        assert len(seen) == 2 and KEY_ID in seen[0] and seen[1] is None
    finally:
        for s in (other, moves):
            s.shutdown()
