# SPDX-License-Identifier: Apache-2.0
"""Safe by default, and what hostile or broken clients meet: raw sockets against the real server."""
import gzip
import json
import os
import signal
import socket
import time

import pytest
from conftest import add_model, identity
from waiting import until


@pytest.fixture
def server(serve):
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "slow", identity(more='parameters { key: "execute_delay_ms" value { string_value: "400" } }'))
    return serve("--header-timeout-secs=1")


def talk(server, data: bytes, wait=10.0) -> bytes:
    """Everything the server sends until it closes or `wait` seconds pass."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as s:
        s.sendall(data)
        out = b""
        try:
            while chunk := s.recv(65536):
                out += chunk
        except (TimeoutError, ConnectionResetError):
            pass
        return out


BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()


def infer_head(extra="", length=None, model="id", close=True):
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n{extra}"
    if length is not None:
        head += f"Content-Length: {length}\r\n"
    return (head + ("Connection: close\r\n" if close else "") + "\r\n").encode()


def test_listens_on_loopback_only(server):
    for address in (server.http, server.grpc, server.metrics):
        assert address.startswith("127.0.0.1:")


def test_foreign_hosts_and_origins_get_403(server):
    own = server.http
    assert server.request("/v2", headers={"Host": "evil.example"})[0] == 403
    assert server.request("/v2", headers={"Host": "127.0.0.1.evil.example:80"})[0] == 403
    assert server.request("/v2", headers={"Host": "localhost:1"})[0] == 200
    assert server.request("/v2", headers={"Origin": "http://evil.example"})[0] == 403
    assert server.request("/v2", headers={"Origin": "null"})[0] == 403
    status, headers, _ = server.request("/v2", headers={"Origin": f"http://{own}"})
    assert status == 200 and not [h for h in headers if h.lower().startswith("access-control")]
    assert server.request("/metrics", base=server.metrics, headers={"Host": "evil.example"})[0] == 403


@pytest.mark.parametrize("data, status", [
    (b"GET /v2 HTTP/1.1\r\n\r\n", 400),
    (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", 400),
    (b"nonsense\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (b"GET /v2 HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
    (infer_head("Transfer-Encoding: chunked\r\n", 3) + b"0\r\n\r\n", 400),
    (infer_head("Transfer-Encoding: chunked\r\n") + b"zz\r\n", 400),
    (infer_head("Transfer-Encoding: identity\r\n"), 501),
    (infer_head("Transfer-Encoding: gzip, chunked\r\n"), 501),
    (infer_head("Transfer-Encoding: xchunked\r\n"), 501),
    (infer_head("Transfer-Encoding: chunked\r\n").replace(b"HTTP/1.1", b"HTTP/1.0"), 501),
    (infer_head(length="-1"), 400),
    (infer_head(length="99999999999999999999999"), 400),
    (infer_head(length=65 << 20), 413),
    (infer_head("X: " + "a" * 9000 + "\r\n", len(BODY)) + BODY, 431),
    (infer_head("".join(f"X{i}: 1\r\n" for i in range(120)), len(BODY)) + BODY, 431),
    (infer_head("Content-Encoding: br\r\n", len(BODY)) + BODY, 400),
    (infer_head("Content-Encoding: gzip\r\n", len(BODY)) + BODY, 400),
])
def test_broken_http_is_refused(server, data, status):
    answer = talk(server, data)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b'{"error":' in answer
    assert server.infer("id", [1])[0] == 200


def test_a_body_of_unknown_length_is_not_the_next_request(server):
    """What follows a head that is refused, or whose body's end nobody knows, is never answered."""
    hidden = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for coding in ("foo", "identity", "chunked, gzip", '"chunked"', "chunked, chunked"):
        answer = talk(server, infer_head(f"Transfer-Encoding: {coding}\r\n", close=False) + hidden, wait=3)
        assert answer.count(b"\r\n\r\n") == 1 and answer.startswith(b"HTTP/1.1 501 "), answer


def test_head_absolute_targets_and_methods(server):
    """HEAD is GET without its body; a target may name the host; 405 says what is allowed."""
    for path in ("/v2/health/live", "/v2", "/v2/models/id/config", "/", "/none"):
        def ask(method):
            return talk(server, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        (head, nothing), (same, body) = ask("HEAD").split(b"\r\n\r\n", 1), ask("GET").split(b"\r\n\r\n", 1)
        assert nothing == b"" and b"Content-Length: %d" % len(body) in head
        if path != "/":                                   # the page tells the time
            assert head == same
    two = b"HEAD /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" + infer_head(length=len(BODY)) + BODY
    assert talk(server, two).count(b"HTTP/1.1 200 OK") == 2
    assert talk(server, infer_head(length=len(BODY)).replace(b" /v2", b" http://localhost/v2") + BODY).startswith(b"HTTP/1.1 200 ")
    assert talk(server, infer_head(length=len(BODY)).replace(b" /v2", b" HTTP://evil.com/v2") + BODY).startswith(b"HTTP/1.1 403 ")
    for method, path, allow in (("PUT", "/v2/models/id/infer", "POST"), ("DELETE", "/v2", "GET, HEAD, POST"),
                                ("POST", "/v2", "GET, HEAD"), ("GET", "/v2/models/id/infer", "POST")):
        status, headers, _ = server.request(path, b"" if method == "POST" else None, method)
        assert (status, headers["Allow"]) == (405, allow)


def test_a_decompression_bomb_is_refused(server):
    bomb = gzip.compress(b" " * (80 << 20))
    answer = talk(server, infer_head("Content-Encoding: gzip\r\n", len(bomb)) + bomb)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"larger than 67108864 bytes when decompressed" in answer


def test_slow_loris_is_cut_off(server):
    began = time.time()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
        s.sendall(b"GET /v2 HTTP/1.1\r\n")
        assert s.recv(100) == b""
    assert 0.7 < time.time() - began < 5
    assert server.infer("id", [1])[0] == 200


def test_chunked_pipelined_and_expect_continue(server):
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(BODY[i:i + 7]), BODY[i:i + 7]) for i in range(0, len(BODY), 7)) + b"0\r\n\r\n"
    assert talk(server, infer_head("Transfer-Encoding: chunked\r\n") + chunked).startswith(b"HTTP/1.1 200 ")
    two = talk(server, infer_head(length=len(BODY), close=False) + BODY + infer_head(length=len(BODY)) + BODY)
    assert two.count(b"HTTP/1.1 200 OK") == 2
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as s:
        s.sendall(infer_head("Expect: 100-continue\r\n", len(BODY)))
        assert s.recv(1000).startswith(b"HTTP/1.1 100 Continue")
        s.sendall(BODY)
        assert s.recv(1000).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_vanishes_frees_its_place(serve):
    """The first request runs, the second waits; its client goes and it is never computed."""
    add_model(serve.repository, "slow", identity(more='parameters { key: "execute_delay_ms" value { string_value: "2500" } }'))
    server = serve("--http-thread-count=1")                # which reads in the order of arrival
    assert server.infer("slow", [1], "INT32")[0] == 400    # its metrics begin
    body_head = infer_head(length=len(BODY), model="slow", close=False) + BODY
    running = socket.create_connection(("127.0.0.1", server.port))
    running.sendall(body_head)
    waiting = socket.create_connection(("127.0.0.1", server.port))
    waiting.sendall(body_head)
    server.until_waiting("slow", 1)
    waiting.close()
    assert running.recv(1000).startswith(b"HTTP/1.1 200")
    running.close()
    assert server.infer("slow", [2])[0] == 200
    stats = server.json("/v2/models/slow/stats")[1]["model_stats"][0]
    assert stats["execution_count"] == 2 and stats["inference_stats"]["fail"]["count"] == 2
    assert server.metric('nv_inference_request_failure{model="slow",version="1",reason="CANCELED"}') == 1


def test_a_running_request_ends_early_when_its_client_goes(serve):
    """Before a request of a second that is sent after that: however busy the machine is, both meet it."""
    add_model(serve.repository, "long", identity(more='parameters { key: "execute_delay_ms" value { string_value: "100000" } }'))
    add_model(serve.repository, "second", identity(more='parameters { key: "execute_delay_ms" value { string_value: "1000" } }'))
    server = serve()
    assert server.infer("long", [1], "INT32")[0] == 400    # its metrics begin
    both = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    for s in both:
        s.sendall(infer_head(length=len(BODY), model="long") + BODY)
    server.until_waiting("long", 1)                        # the other one runs
    for s in both:
        s.close()
    assert server.infer("second", [1])[0] == 200
    assert server.metric('nv_inference_request_failure{model="long",version="1",reason="CANCELED"}') == 2


def test_connections_are_bounded(serve):
    add_model(serve.repository, "id", identity())
    server = serve("--max-connections=20")
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    answer = until(lambda: talk(server, b"", wait=3))      # "" where it was taken in before one of those
    assert answer.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in answer
    for s in held:
        s.close()
    until(lambda: server.infer("id", [1])[0] == 200)


def test_request_bytes_are_bounded(serve):
    add_model(serve.repository, "id", identity())
    server = serve("--max-inflight-bytes=100000")
    assert server.infer("id", [1.0] * 1000)[0] == 200
    answer = talk(server, infer_head(length=200_000) + b" " * 200_000)
    assert answer.startswith(b"HTTP/1.1 503 ") and b"as many request bytes" in answer
    for _ in range(50):                        # what was taken is given back
        assert server.infer("id", [1.0] * 5000)[0] == 200


def test_what_a_request_becomes_is_bounded_too(serve):
    """Small on the wire, large in memory: compressed bodies and numbers of one digit count by what they become."""
    add_model(serve.repository, "id", identity("TYPE_FP64"))
    server = serve("--max-inflight-bytes=400000")
    def body(n):
        return json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP64", "shape": [n], "data": [1] * n}]},
                          separators=(",", ":")).encode()
    for head, data in (("Content-Encoding: gzip\r\n", gzip.compress(body(200_000))), ("", body(60_000))):
        answer = talk(server, infer_head(head, len(data)) + data)
        assert len(data) < 130_000 and answer.startswith(b"HTTP/1.1 503 ") and b"as many request bytes" in answer, answer[:200]
    for _ in range(20):                        # what was taken is given back
        assert server.infer("id", [1.0] * 20_000, "FP64")[0] == 200


def test_an_output_is_asked_for_once(serve):
    """Else a small request could ask for an answer of any size."""
    add_model(serve.repository, "id", identity())
    server = serve()
    status, body = server.infer("id", [1], outputs=[{"name": "OUTPUT0"}] * 100_000)
    assert status == 400 and body["error"] == "output 'OUTPUT0' for model 'id' is asked for twice"


def test_many_keys_hold_nobody_up(serve):
    """Reading an object takes time by the number of its keys and not by the square of it, which would be minutes here."""
    add_model(serve.repository, "id", identity())
    server = serve("--http-thread-count=1")
    body = ("{" + ",".join(f'"key{i}":1' for i in range(200_000)) + "}").encode()
    for path, words in (("/v2/models/id/generate", b"'INPUT0' is missing"), ("/v2/logging", b"unknown log setting"),
                        ("/v2/trace/setting", b"unknown trace setting")):
        began = time.monotonic()
        status, _, text = server.request(path, body)
        assert status == 400 and words in text
        assert time.monotonic() - began < 5, path


def test_booleans_are_0_or_1(serve):
    add_model(serve.repository, "flags", identity("TYPE_BOOL"))
    server = serve()
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "BOOL", "shape": [3],
                                   "parameters": {"binary_data_size": 3}}]}).encode()
    lengths = {"Inference-Header-Content-Length": str(len(head))}
    assert json.loads(server.request("/v2/models/flags/infer", head + b"\0\1\0", headers=lengths)[2])["outputs"][0]["data"] == [
        False, True, False]
    status, _, text = server.request("/v2/models/flags/infer", head + b"\0\1\2", headers=lengths)
    assert status == 400 and b"of type BOOL holds a byte that is neither 0 nor 1" in text


def test_names_are_escaped_on_the_status_page(serve):
    name = "<script>alert(1)<&\"'"
    add_model(serve.repository, name.replace("/", ""), identity())
    server = serve()
    page = server.request("/")[2].decode()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)&lt;&amp;&quot;&#39;" in page
    from urllib.parse import quote
    assert server.json(f"/v2/models/{quote(name)}")[1]["name"] == name
    server.json(f"/v2/models/{quote(name)}/infer", {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]})
    assert 'model="<script>alert(1)<&\\"\'"' in server.request("/metrics", base=server.metrics)[2].decode()


def test_sigterm_answers_what_is_under_way(serve):
    add_model(serve.repository, "slow", identity(more='parameters { key: "execute_delay_ms" value { string_value: "1500" } }'))
    server = serve()
    assert server.infer("slow", [1], "INT32")[0] == 400    # its metrics begin
    both = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(2)]
    for s in both:
        s.sendall(infer_head(length=len(BODY), model="slow", close=False) + BODY)
    server.until_waiting("slow", 1)                        # the other one runs
    server.process.send_signal(signal.SIGTERM)
    for s in both:
        assert s.recv(1000).startswith(b"HTTP/1.1 200 OK")
    assert server.process.wait(60) == 143


def test_sigterm_waits_no_longer_than_it_is_told(serve):
    """A request that does not end is given up."""
    add_model(serve.repository, "long", identity(more='parameters { key: "execute_delay_ms" value { string_value: "60000" } }'))
    server = serve("--exit-timeout-secs=1")
    assert server.infer("long", [1], "INT32")[0] == 400    # its metrics begin
    both = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(2)]
    for s in both:
        s.sendall(infer_head(length=len(BODY), model="long") + BODY)
    server.until_waiting("long", 1)                        # the other one runs
    began = time.time()
    status, err = server.stop()
    for s in both:
        s.close()
    assert status == 128 + signal.SIGTERM and "the time to stop is over" in err
    assert time.time() - began < 10


def test_starts_fast_and_idles_at_rest(serve):
    server = serve()

    def cpu_seconds():
        with open(f"/proc/{server.process.pid}/stat") as f:
            fields = f.read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    assert cpu_seconds() <= 0.2                # own time until ready; the clock's depends on what else runs
    before = cpu_seconds()
    time.sleep(5)
    assert cpu_seconds() - before <= 0.01      # 60 ms in a minute; make test-soak waits for a whole one


@pytest.mark.parametrize("flags", [[], ["--strict-readiness=false"]])
def test_not_ready_before_the_models_are(serve, flags):
    add_model(serve.repository, "m", identity(more='parameters { key: "execute_delay_ms" value { string_value: "700" } }'
                                                   ' model_warmup { name: "w" inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [1] zero_data: true } } }'))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = serve(f"--http-port={port}", *flags, expect_ready=False)
    seen, end = [], time.time() + 20
    while seen[-1:] != [200]:
        assert time.time() < end
        try:
            seen.append(server.request("/v2/health/ready", base=f"127.0.0.1:{port}")[0])
        except OSError:                        # not listening yet
            time.sleep(0.01)
    assert 400 in seen and server.process.stdout.readline().startswith("ready:")
    assert server.request("/v2/models/m/ready", base=f"127.0.0.1:{port}")[0] == 200


def test_models_that_fail_end_the_start_unless_told_otherwise(serve):
    add_model(serve.repository, "bad", "nonsense: 1")
    add_model(serve.repository, "good", identity())
    server = serve(expect_ready=False)
    assert server.process.wait(20) == 1
    error = server.process.stderr.read()
    assert "unknown field 'nonsense'" in error and "--exit-on-error=false" in error
    server = serve("--exit-on-error=false")
    assert server.infer("good", [1])[0] == 200
    assert server.request("/v2/health/ready")[0] == 400
    status, answer = server.infer("bad", [1])
    assert status == 404 and "unknown field 'nonsense'" in answer["error"]  # 503 would make clients come again


@pytest.mark.parametrize("flags, words", [
    (["--host-policy=x"], "flag --host-policy is not supported: bind the process with taskset or a cpuset"),
    (["--load-model=x"], "--load-model needs --model-control-mode=explicit"),
    (["--model-control-mode=maybe"], "none, explicit or poll"),
    (["--allow-http=false", "--allow-grpc=false"], "nothing could be served"),
    (["--no-such-flag"], "--no-such-flag"),
    (["--http-address=nowhere"], "is not an IP address"),
    (["--grpc-address=nowhere"], "is not an IP address"),
    (["--http-address=unix:"], "is not unix:PATH"),
])
def test_wrong_flags_end_with_2(serve, flags, words):
    server = serve(*flags, expect_ready=False)
    assert server.process.wait(20) == 2
    assert words in server.process.stderr.read() + server.process.stdout.read()


def test_a_taken_port_is_named(serve):
    first = serve()
    second = serve(f"--http-port={first.port}", expect_ready=False)
    assert second.process.wait(20) == 1
    assert f"127.0.0.1:{first.port}" in second.process.stderr.read()
