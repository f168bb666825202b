# SPDX-License-Identifier: Apache-2.0
"""Traces of requests: to a file and to a collector, sampled, with the caller's context; the log's file."""
import http.server
import json
import socket
import threading
import time

import pytest
from conftest import add_model, identity
from lifecycle_test import ENSEMBLE

pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")


@pytest.fixture
def collector():
    """A collector on loopback that keeps the spans it gets."""
    spans, resources, sizes = [], [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
            for r in body["resourceSpans"]:
                resources.append({a["key"]: a["value"]["stringValue"] for a in r["resource"]["attributes"]})
                for s in r["scopeSpans"]:
                    spans.extend(s["spans"])
                    sizes.append(len(s["spans"]))
            time.sleep(server.pause)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.spans, server.resources, server.sizes, server.pause = spans, resources, sizes, 0
    yield server
    server.shutdown()


def test_spans_reach_the_collector(serve, collector):
    add_model(serve.repository, "a", identity(more='parameters { key: "execute_delay_ms" value { string_value: "5" } }'))
    add_model(serve.repository, "b", identity())
    add_model(serve.repository, "both", ENSEMBLE)
    url = f"http://127.0.0.1:{collector.server_port}"
    server = serve("--trace-config=mode=opentelemetry", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS",
                   f"--trace-config=opentelemetry,url={url}", "--trace-config=opentelemetry,resource=service.name=tested")
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}
    body = json.dumps({"id": "r1", "inputs": [tensor]}).encode()
    assert server.request("/v2/models/both/infer", body, headers={"traceparent": f"00-{trace}-{parent}-01"})[0] == 200
    assert server.infer("a", [1, 2], shape=[1])[0] == 400          # not accepted, so not traced
    server.infer("b", [1])
    server.stop()
    by_name = {}
    for s in collector.spans:
        by_name.setdefault(s["name"], []).append(s)
    root, = by_name["both"]
    assert root["traceId"] == trace and root["parentSpanId"] == parent and root["kind"] == 2
    attributes = {a["key"]: a["value"]["stringValue"] for a in root["attributes"]}
    assert attributes == {"model_name": "both", "model_version": "1", "request_id": "r1"}
    step, = by_name["a"]
    assert step["traceId"] == trace and step["parentSpanId"] == root["spanId"] and step["kind"] == 1
    assert len(by_name["b"]) == 2 and {s["traceId"] == trace for s in by_name["b"]} == {True, False}
    infer = [s for s in by_name["compute_infer"] if s["parentSpanId"] == step["spanId"]][0]
    assert int(infer["endTimeUnixNano"]) - int(infer["startTimeUnixNano"]) >= 5_000_000
    assert int(root["startTimeUnixNano"]) <= int(step["startTimeUnixNano"]) <= int(infer["startTimeUnixNano"])
    assert abs(int(root["startTimeUnixNano"]) / 1e9 - time.time()) < 60
    for s in collector.spans:
        assert len(s["traceId"]) == 32 and len(s["spanId"]) == 16
    assert collector.resources[0] == {"service.name": "tested"}


def test_a_slow_collector_gets_no_vast_messages(serve, collector):
    """While it is busy with one message many spans wait; they leave 512 at a time."""
    add_model(serve.repository, "id", identity())
    collector.pause = 1
    server = serve("--trace-config=mode=opentelemetry", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS",
                   f"--trace-config=opentelemetry,url=http://127.0.0.1:{collector.server_port}")
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()
    ask = f"POST /v2/models/id/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(ask * 400)                       # 5 spans each
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 400:
            answers += s.recv(1 << 16)
    collector.pause = 0
    server.stop()
    assert len(collector.spans) == 2000 and max(collector.sizes) <= 512


def test_a_collector_that_is_away_disturbs_nobody(serve):
    add_model(serve.repository, "id", identity())
    server = serve("--trace-config=mode=opentelemetry", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS",
                   "--trace-config=opentelemetry,url=http://127.0.0.1:1")
    for _ in range(200):
        assert server.infer("id", [1])[0] == 200
    _, err = server.stop()
    assert "spans could not be sent" in err


def test_a_trace_file_and_settings_over_the_network(serve, tmp_path):
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "other", identity())
    path = tmp_path / "trace.json"
    server = serve(f"--trace-config=triton,file={path}", "--trace-config=rate=2")
    off = server.json("/v2/trace/setting")[1]
    assert off == {"trace_level": ["OFF"], "trace_rate": "2", "trace_count": "-1", "log_frequency": "0", "trace_file": str(path), "trace_mode": "triton"}
    server.infer("id", [1])
    import tritonclient.grpc as grpc
    client = grpc.InferenceServerClient(server.grpc)
    client.update_trace_settings(model_name="id", settings={"trace_level": ["TIMESTAMPS"], "trace_count": "3"})
    assert list(client.get_trace_settings("id").settings["trace_level"].value) == ["TIMESTAMPS"]
    for _ in range(20):
        server.infer("id", [1], id="q")
        server.infer("other", [1])
    assert server.json("/v2/models/id/trace/setting")[1]["trace_count"] == "0"
    for changes, status in (({"trace_file": "/tmp/x"}, 400), ({"trace_mode": "opentelemetry"}, 400), ({"trace_level": ["TENSORS"]}, 501),
                            ({"trace_rate": "0"}, 400), ({"trace_rat": "1"}, 400), ({"trace_rate": {}}, 400)):
        assert server.json("/v2/trace/setting", changes)[0] == status, changes
    server.json("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "log_frequency": "5"})
    for _ in range(7):
        server.infer("other", [1])
    server.json("/v2/trace/setting", {"trace_level": None})
    assert server.json("/v2/trace/setting")[1]["trace_level"] == ["OFF"]
    server.stop()
    traces = []
    for part in sorted(tmp_path.glob("trace.json*")):
        traces += json.loads(part.read_text())
    assert [t["model_name"] for t in traces].count("id") == 3 and [t["model_name"] for t in traces].count("other") == 7
    names = [s["name"] for s in traces[0]["timestamps"]]
    assert names == ["REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END"]
    times = [s["ns"] for s in traces[0]["timestamps"]]
    assert times == sorted(times) and traces[0]["request_id"] == "q"


def test_the_log_goes_to_its_file(serve, tmp_path):
    add_model(serve.repository, "bad", "nonsense: 1")
    log = tmp_path / "log"
    server = serve(f"--log-file={log}", "--exit-on-error=false", "--log-info=true")
    assert server.json("/v2/logging")[1]["log_file"] == str(log)
    assert server.json("/v2/logging", {"log_file": "/tmp/other"})[0] == 400
    _, err = server.stop()
    text = log.read_text()
    assert "nonsense" not in err and "unknown field 'nonsense'" in text
    assert all(line[4] == "-" and line[10] == "T" and line[23] == "Z" for line in text.splitlines())


def test_every_caller_that_samples_is_traced(serve, tmp_path):
    """Whatever other flags it sets: bit 0 says that it samples."""
    add_model(serve.repository, "a", identity())
    server = serve(f"--trace-config=triton,file={tmp_path}/traces.json", "--trace-config=rate=1000000", "--trace-config=level=TIMESTAMPS")
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()
    server.infer("a", [1])                                          # the one of the rate
    for flags in ("00", "01", "02", "03"):
        headers = {"traceparent": f"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}"}
        assert server.request("/v2/models/a/infer", body, headers=headers)[0] == 200
    server.stop()
    assert len(json.loads((tmp_path / "traces.json").read_text())) == 3


def test_traces_without_a_file_end_the_start(serve):
    server = serve("--trace-config=level=TIMESTAMPS", expect_ready=False)
    _, err = server.process.communicate(timeout=30)
    assert server.process.returncode == 2 and "no file for the traces is named" in err and "--trace-config triton,file=PATH" in err
