# SPDX-License-Identifier: Apache-2.0
"""The REST protocol through plain HTTP: every endpoint, error statuses and bodies."""
import gzip
import json
import struct
import zlib

import pytest
from conftest import add_model, identity


@pytest.fixture
def server(serve):
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "text", identity("TYPE_STRING"))
    add_model(serve.repository, "batched", identity("TYPE_INT32", "4", "max_batch_size: 8"))
    add_model(serve.repository, "versions", identity(more="version_policy { specific { versions: [1, 3] } }"), (1, 2, 3))
    return serve()


def test_health_and_metadata(server):
    assert server.request("/v2/health/live")[0] == 200
    assert server.request("/v2/health/ready")[0] == 200
    assert server.request("/v2/models/id/ready")[0] == 200
    status, answer = server.json("/v2/models/none/ready")
    assert status == 400 and answer["error"] == "model 'none' is not ready"
    status, meta = server.json("/v2")
    assert status == 200 and meta["name"] == "pelton"
    assert {"binary_tensor_data", "classification", "statistics"} <= set(meta["extensions"])
    _, model = server.json("/v2/models/batched")
    assert model["versions"] == ["1"]
    assert model["inputs"] == [{"name": "INPUT0", "datatype": "INT32", "shape": [-1, 4]}]
    _, both = server.json("/v2/models/versions")
    assert both["versions"] == ["1", "3"]
    assert server.json("/v2/models/versions/versions/1")[1]["versions"] == ["1"]
    assert server.json("/v2/models/versions/versions/2")[0] == 404
    _, config = server.json("/v2/models/batched/config")
    assert config["max_batch_size"] == 8 and config["input"][0]["dims"] == [4]
    assert config["input"][0]["data_type"] == "TYPE_INT32"
    # What is in force where the folder says nothing.
    assert [(g["name"], g["kind"], g["count"], g["gpus"]) for g in config["instance_group"]] == [("batched_0", "KIND_CPU", 1, [])]
    assert config["version_policy"] == {"latest": {"num_versions": 1}}
    assert config["optimization"]["priority"] == "PRIORITY_DEFAULT" and config["optimization"]["input_pinned_memory"] == {"enable": True}
    assert server.json("/v2/models/versions/config")[1]["version_policy"] == {"specific": {"versions": [1, 3]}}


def test_a_shown_config_is_one_that_loads(serve):
    """What is shown is complete and means what the folder means: written back, it is shown the same."""
    groups = 'max_batch_size: 8 dynamic_batching { } instance_group [ { count: 2 }, { name: "own" kind: KIND_CPU } ]'
    add_model(serve.repository, "m", identity("TYPE_INT32", "4", groups))
    server = serve("--model-control-mode=explicit", "--load-model=m")
    config = server.json("/v2/models/m/config")[1]
    assert [(g["name"], g["kind"], g["count"]) for g in config["instance_group"]] == [("m_0", "KIND_CPU", 2), ("own", "KIND_CPU", 1)]
    assert config["dynamic_batching"]["preferred_batch_size"] == [8]
    assert server.json("/v2/repository/models/m/load", {"parameters": {"config": json.dumps(config)}})[0] == 200
    assert server.json("/v2/models/m/config")[1] == config


def test_infer_json_and_binary_in_every_mix(server):
    status, r = server.infer("id", [1, 2.5, -3], id="seven")
    assert status == 200
    assert r == {"id": "seven", "model_name": "id", "model_version": "1",
                 "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [3], "data": [1, 2.5, -3]}]}
    # nested lists flatten
    _, r = server.json("/v2/models/batched/infer", {"inputs": [
        {"name": "INPUT0", "datatype": "INT32", "shape": [2, 4], "data": [[1, 2, 3, 4], [5, 6, 7, 8]]}]})
    assert r["outputs"][0]["data"] == list(range(1, 9)) and r["outputs"][0]["shape"] == [2, 4]
    # binary in, JSON out
    tail = struct.pack("<3f", 1, 2, 3)
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [3],
                                   "parameters": {"binary_data_size": len(tail)}}]}).encode()
    lengths = {"Inference-Header-Content-Length": str(len(head))}
    _, _, text = server.request("/v2/models/id/infer", head + tail, headers=lengths)
    assert json.loads(text)["outputs"][0]["data"] == [1, 2, 3]
    # JSON in, binary out
    _, headers, data = server.request("/v2/models/id/infer", {"inputs": [
        {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [4, 5]}], "parameters": {"binary_data_output": True}})
    size = int(headers["Inference-Header-Content-Length"])
    output = json.loads(data[:size])["outputs"][0]
    assert output["parameters"]["binary_data_size"] == 8 and struct.unpack("<2f", data[size:]) == (4, 5)
    # the largest number that a type has, and what rounds to it
    most, = struct.unpack("<f", b"\xff\xff\x7f\x7f")
    data = server.infer("id", [3.4028235e38, -3.40282356e38])[1]["outputs"][0]["data"]  # in the digits that tell f32 apart
    assert struct.unpack("<2f", struct.pack("<2f", *data)) == (most, -most)
    # strings
    _, r = server.infer("text", ["a", "", "ü\n\"x\""], "BYTES")
    assert r["outputs"][0]["data"] == ["a", "", "ü\n\"x\""]


@pytest.mark.parametrize("pack, coding", [(gzip.compress, "gzip"), (zlib.compress, "deflate")])
def test_compression_both_ways(server, pack, coding):
    values = [float(i) for i in range(2000)]
    body = pack(json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2000], "data": values}]}).encode())
    status, headers, text = server.request("/v2/models/id/infer", body, headers={"Content-Encoding": coding, "Accept-Encoding": coding})
    assert status == 200 and headers["Content-Encoding"] == coding
    plain = gzip.decompress(text) if coding == "gzip" else zlib.decompress(text)
    assert json.loads(plain)["outputs"][0]["data"] == values


@pytest.mark.parametrize("body, status, words", [
    ({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1]}]}, 400, "1 elements, its shape [2] needs 2"),
    ({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [1]}]}, 400, "data type INT32, expected FP32"),
    ({"inputs": [{"name": "OTHER", "datatype": "FP32", "shape": [1], "data": [1]}]}, 400, "unexpected inference input 'OTHER' for model 'id': it has 'INPUT0'"),
    ({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}, 400, "expected [-1], got [1,1]"),
    ({"inputs": []}, 400, "'INPUT0' is missing"),
    ({"inputs": [{"name": "INPUT0", "datatype": "FP99", "shape": [1], "data": [1]}]}, 400, "unknown datatype 'FP99'"),
    ({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1], "data": [1]}]}, 400, "non-negative integers"),
    ({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2**62, 2**62], "data": [1]}]}, 400,
     "1 elements, its shape [4611686018427387904,4611686018427387904] needs more than 2^63"),
    ({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [3.4028236e38]}]}, 400, "expects numbers in range at element 0"),
    ({"inputs": [{"name": "INPUT0", "datatype": "FP16", "shape": [1], "data": [-65520]}]}, 400, "expects numbers in range at element 0"),
    ({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": ["x"]}]}, 400, "expects numbers at element 0"),
    ({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}], "outputs": [{"name": "NO"}]}, 400, "unexpected inference output 'NO'"),
    ({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}]}, 400, "only 0 bytes are left"),
    ({}, 400, "no 'inputs'"),
    ([], 400, "not an object"),
    (b"{", 400, "not JSON"),
    (b"", 400, "no JSON"),
    (b"[" * 100 + b"]" * 100, 400, "nested deeper than 64"),
    ({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4}}]}, 501, "shared memory is off"),
])
def test_bad_requests_say_what_is_wrong(server, body, status, words):
    before = server.json("/v2/models/id/stats")[1]["model_stats"][0]["inference_stats"]["fail"]["count"]
    got, answer = server.json("/v2/models/id/infer", body, method="POST")
    assert got == status and words in answer["error"]
    after = server.json("/v2/models/id/stats")[1]["model_stats"][0]["inference_stats"]["fail"]["count"]
    assert after == before + 1, "a request that cannot be read counts as a failure of its model"


def test_unknown_models_versions_and_paths(server):
    assert server.infer("none", [1])[0] == 404
    assert "unknown model: 'none'" in server.infer("none", [1])[1]["error"]
    assert server.json("/v2/models/id/versions/9/infer", {"inputs": []})[0] == 404
    assert server.json("/v2/models/id/versions/x/infer", {"inputs": []})[0] == 400
    assert server.request("/v2/nothing")[0] == 404
    assert server.request("/v1")[0] == 404
    assert server.json("/v2/modles/id?x=1")[1]["error"] == "no such path: /v2/modles/id?x=1"
    assert "--metrics-port" in server.json("/metrics")[1]["error"]
    status, headers, _ = server.request("/v2/repository/index")
    assert status == 405 and headers["Allow"] == "POST"
    assert server.request("/v2/models/id/infer", method="GET")[0] == 405
    assert server.request("/v2/models/%zz")[0] == 400


def test_binary_sizes_that_lie(server):
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}]}).encode()
    def post(announced, tail):
        status, _, text = server.request("/v2/models/id/infer", head + tail, headers={"Inference-Header-Content-Length": announced})
        return status, json.loads(text)["error"] if status != 200 else ""
    assert post(str(len(head)), bytes(8))[0] == 200
    assert "only 4 bytes are left" in post(str(len(head)), bytes(4))[1]
    assert "belong to no input" in post(str(len(head)), bytes(12))[1]
    assert "has only" in post("99999999", bytes(8))[1]
    assert "not a number" in post("-1", bytes(8))[1]
    assert "not a number" in post("1e3", bytes(8))[1]


def test_bytes_elements_that_lie(server):
    for tail, words in ((struct.pack("<I", 100) + b"abc", "runs past the end"), (b"\x01", "runs past the end"),
                        (struct.pack("<I", 0) * 3, "holds 3 BYTES elements")):
        head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(tail)}}]}).encode()
        status, _, text = server.request("/v2/models/text/infer", head + tail, headers={"Inference-Header-Content-Length": str(len(head))})
        assert status == 400 and words in json.loads(text)["error"]


def test_batch_limits(server):
    row = [0] * 4
    for rows in (1, 8):
        assert server.infer("batched", row * rows, "INT32", [rows, 4])[0] == 200
    status, answer = server.infer("batched", row * 9, "INT32", [9, 4])
    assert status == 400 and "batch size 9 for model 'batched' is outside 1 to 8" in answer["error"]


def test_statistics_and_metrics_count_exactly(server):
    for _ in range(5):
        server.infer("batched", [0] * 8, "INT32", [2, 4])
    stats = server.json("/v2/models/batched/stats")[1]["model_stats"][0]
    assert stats["inference_count"] == 10 and stats["execution_count"] == 5
    assert stats["inference_stats"]["success"]["count"] == 5
    assert [b["batch_size"] for b in stats["batch_stats"]] == [2]
    labels = '{model="batched",version="1"'
    assert server.metric("nv_inference_request_success" + labels) == 5
    assert server.metric("nv_inference_count" + labels) == 10
    assert server.metric("nv_inference_exec_count" + labels) == 5
    bucket = 'pelton_request_duration_seconds_bucket{model="batched",version="1",stage="request",le="+Inf"}'
    assert server.metric(bucket) == 5
    text = server.request("/metrics", base=server.metrics)[2].decode()
    assert 'model="text"' not in text.replace("nv_model_load_duration_secs{model=\"text\"", "")
    assert len(server.json("/v2/models/stats")[1]["model_stats"]) == 5


def test_index_status_page_and_settings(server):
    _, index = server.json("/v2/repository/index", b"", "POST")
    assert {(e["name"], e["version"], e["state"]) for e in index} >= {("id", "1", "READY"), ("versions", "3", "READY")}
    status, headers, page = server.request("/")
    assert status == 200 and headers["Content-Type"].startswith("text/html") and b"batched" in page
    assert server.json("/v2/logging")[1]["log_warning"] is True
    assert server.json("/v2/logging", {"log_info": False})[1]["log_info"] is False
    assert server.json("/v2/logging", {"log_file": "x"})[0] == 400
    assert server.json("/v2/logging", {"log_inf": True})[0] == 400
    assert server.json("/v2/trace/setting")[1]["trace_level"] == ["OFF"]
    assert server.json("/v2/trace/setting", {"trace_level": ["TENSORS"]})[0] == 501
    status, answer = server.json("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]})
    assert status == 400 and "no file for the traces is named" in answer["error"]
    assert server.json("/v2/trace/setting")[1]["trace_level"] == ["OFF"]
    assert server.json("/v2/trace/setting", {"trace_file": "x"})[0] == 400


def test_model_control_is_off_by_default(server):
    status, answer = server.json("/v2/repository/models/id/unload", b"", "POST")
    assert status == 503 and "model control is off" in answer["error"]
    assert server.json("/v2/repository/models/id/load", b"", "POST")[0] == 503
    assert server.infer("id", [1])[0] == 200


def test_raw_requests(serve):
    """The body is the one input's tensor, its shape the configuration's; every output comes back as binary data."""
    add_model(serve.repository, "open", identity())
    add_model(serve.repository, "rows", identity(dims="2, -1", more="max_batch_size: 4"))
    add_model(serve.repository, "fixed", identity("TYPE_INT16", "3"))
    add_model(serve.repository, "text", identity("TYPE_STRING", "1", "max_batch_size: 4"))
    add_model(serve.repository, "texts", identity("TYPE_STRING", "2"))
    add_model(serve.repository, "wide", identity(dims="-1, -1"))
    add_model(serve.repository, "two", """
        backend: "identity"
        input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
        output [ { name: "A_OUT" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "B_OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
        """)
    server = serve()

    def raw(model, body, **headers):
        status, told, answer = server.request(f"/v2/models/{model}/infer", body, headers={"Inference-Header-Content-Length": "0"} | headers)
        if status != 200:
            return status, json.loads(answer)["error"]
        size = int(told["Inference-Header-Content-Length"])
        output, = json.loads(answer[:size])["outputs"]
        return output["shape"], answer[size:]

    floats = struct.pack("<4f", 1, 2, 3, 4)
    assert raw("open", floats) == ([4], floats)
    assert raw("rows", floats) == ([1, 2, 2], floats)
    assert raw("fixed", b"abcdef") == ([3], b"abcdef")
    assert raw("text", b"any bytes\0at all") == ([1, 1], struct.pack("<I", 16) + b"any bytes\0at all")
    assert raw("open", gzip.compress(floats), **{"Content-Encoding": "gzip"}) == ([4], floats)
    for model, body, words in (("open", b"12345", "5 bytes does not fit input 'INPUT0' of type FP32 and shape [-1]"),
                               ("rows", floats[:12], "12 bytes does not fit input 'INPUT0' of type FP32 and shape [-1,2,-1]"),
                               ("wide", floats, "16 bytes does not fit"), ("texts", b"a", "1 bytes does not fit"),
                               ("fixed", b"abcd", "shape [3] of INT16 needs 6"), ("two", floats, "model 'two' has 2: A, B"),
                               ("open", b"", "the body holds no JSON")):
        status, error = raw(model, body)
        assert status == 400 and words in error, error
    assert raw("nix", floats)[0] == 404
