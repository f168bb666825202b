# SPDX-License-Identifier: Apache-2.0
"""Sequences, decoupled and iterative models, generation, with the public client and plans that carry state."""
import json
import queue
import socket

import numpy as np
import pytest
from conftest import add_model, identity
from onnx import TensorProto, helper, numpy_helper
from waiting import until

REASON = "tritonclient is not installed"
http = pytest.importorskip("tritonclient.http", reason=REASON)
grpc = pytest.importorskip("tritonclient.grpc", reason=REASON)
from tritonclient.utils import InferenceServerException  # noqa: E402


def tensor(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, initializers=()) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def running_sum() -> bytes:
    """y = state' = state * (1 - start) + x: needs the START control and the state, both from the server."""
    return model([helper.make_node("Sub", ["one", "start"], ["keep"]), helper.make_node("Mul", ["state", "keep"], ["kept"]),
                  helper.make_node("Add", ["kept", "x"], ["state_out"]), helper.make_node("Identity", ["state_out"], ["y"])],
                 [tensor("x", ["N", 2]), tensor("start", ["N", 1]), tensor("state", ["N", 2])],
                 [tensor("y", ["N", 2]), tensor("state_out", ["N", 2])],
                 [numpy_helper.from_array(np.ones((1, 1), np.float32), "one")])


SUM = """
backend: "onnxruntime"
max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  %s
  control_input [ { name: "start" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ]
  state [ { input_name: "state" output_name: "state_out" data_type: TYPE_FP32 dims: [ 2 ] } ]
}
"""


def countdown() -> bytes:
    """Each step takes 1 off the state, which begins at n; done when it is there."""
    return model([helper.make_node("Mul", ["n", "start"], ["fresh"]), helper.make_node("Add", ["state", "fresh"], ["now"]),
                  helper.make_node("Sub", ["now", "one"], ["state_out"]), helper.make_node("Identity", ["state_out"], ["left"]),
                  helper.make_node("LessOrEqual", ["state_out", "zero"], ["done"])],
                 [tensor("n", ["N", 1]), tensor("start", ["N", 1]), tensor("state", ["N", 1])],
                 [tensor("left", ["N", 1]), tensor("done", ["N", 1], TensorProto.BOOL), tensor("state_out", ["N", 1])],
                 [numpy_helper.from_array(np.ones((1, 1), np.float32), "one"), numpy_helper.from_array(np.zeros((1, 1), np.float32), "zero")])


COUNT = """
backend: "onnxruntime"
max_batch_size: 8
model_transaction_policy { decoupled: true }
sequence_batching {
  iterative_sequence: true
  control_input [ { name: "start" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ]
  state [ { input_name: "state" output_name: "state_out" data_type: TYPE_FP32 dims: [ 1 ] } ]
}
parameters { key: "iterative_done_output" value { string_value: "done" } }
"""


@pytest.fixture
def server(serve):
    for name, strategy in (("direct", "direct { }"), ("oldest", "oldest { max_candidate_sequences: 3 }")):
        add_model(serve.repository, name, SUM % strategy, files={"1/model.onnx": running_sum()})
    add_model(serve.repository, "count", COUNT, files={"1/model.onnx": countdown()})
    add_model(serve.repository, "plain", identity("TYPE_STRING", "1"))
    return serve()


def part(client, module, name, sequence, values, start=False, end=False):
    t = module.InferInput("x", [1, 2], "FP32")
    t.set_data_from_numpy(np.array([values], np.float32))
    return client.infer(name, [t], sequence_id=sequence, sequence_start=start, sequence_end=end).as_numpy("y")[0].tolist()


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
@pytest.mark.parametrize("name", ["direct", "oldest"])
def test_state_lives_in_the_server(server, module, name):
    client = module.InferenceServerClient(server.http if module is http else server.grpc)
    config = client.get_model_config(name)
    inputs = config["input"] if module is http else list(config.config.input)
    assert len(inputs) == 1, "the state and the control are the server's own inputs"
    for sequence in (7, "seven"):
        assert part(client, module, name, sequence, [1, 2], start=True) == [1, 2]
        assert part(client, module, name, 99, [100, 100], start=True) == [100, 100]
        assert part(client, module, name, sequence, [1, 1]) == [2, 3]
        assert part(client, module, name, sequence, [1, 1], end=True) == [3, 4]
        with pytest.raises(InferenceServerException, match="must carry the START flag"):
            part(client, module, name, sequence, [1, 1])
        assert part(client, module, name, 99, [1, 1]) == [101, 101]
    with pytest.raises(InferenceServerException, match="non-zero or non-empty sequence_id"):
        part(client, module, name, 0, [1, 1])
    assert "sequence" in str(client.get_server_metadata())


def test_many_sequences_over_one_stream(server):
    client = grpc.InferenceServerClient(server.grpc)
    got = queue.Queue()
    client.start_stream(lambda result, error: got.put((result, error)))
    for step in range(5):
        for s in range(1, 4):
            t = grpc.InferInput("x", [1, 2], "FP32")
            t.set_data_from_numpy(np.full((1, 2), s, np.float32))
            client.async_stream_infer("direct", [t], request_id=f"{s}:{step}", sequence_id=s, sequence_start=step == 0, sequence_end=step == 4)
    for _ in range(15):
        result, error = got.get(timeout=30)
        assert error is None
        s, step = map(int, result.get_response().id.split(":"))
        assert result.as_numpy("y").tolist() == [[s * (step + 1)] * 2]
    client.stop_stream()


def test_decoupled_responses_over_a_stream(server):
    client = grpc.InferenceServerClient(server.grpc)
    got = queue.Queue()
    client.start_stream(lambda result, error: got.put((result, error)))
    t = grpc.InferInput("n", [1, 1], "FP32")
    for n, empty in ((3, False), (2, True)):
        t.set_data_from_numpy(np.full((1, 1), n, np.float32))
        client.async_stream_infer("count", [t], request_id=str(n), enable_empty_final_response=empty)
        left, finals = [], []
        for _ in range(n):
            result, error = got.get(timeout=30)
            assert error is None and result.get_response().id == str(n)
            left.append(float(result.as_numpy("left")[0, 0]))
            finals.append(result.get_response().parameters["triton_final_response"].bool_param)
        assert left == [float(v) for v in reversed(range(n))]
        assert finals == ([False] * (n - 1) + [True] if empty else [False] * n)
    client.stop_stream()
    with pytest.raises(InferenceServerException, match="decoupled"):
        client.infer("count", [t])
    with pytest.raises(InferenceServerException, match="decoupled"):
        t = http.InferInput("n", [1, 1], "FP32")
        t.set_data_from_numpy(np.ones((1, 1), np.float32))
        http.InferenceServerClient(server.http).infer("count", [t])
    stats = client.get_inference_statistics("count", as_json=True)["model_stats"][0]
    assert set(stats["response_stats"]) == {"0", "1", "2"}
    assert server.metric('nv_inference_first_response_histogram_ms_count{model="count",version="1"}') == 2


def events(text: str):
    assert text.endswith("\n\n")
    parts = text[:-2].split("\n\n")
    assert all(p.startswith("data: ") for p in parts)
    return [json.loads(p[6:]) for p in parts]


def test_generate_and_generate_stream(server):
    status, headers, text = server.request("/v2/models/count/generate_stream", {"n": 4, "id": "x"})
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream")
    got = events(text.decode())
    assert [e["left"] for e in got] == [3, 2, 1, 0] and [e["done"] for e in got] == [False, False, False, True]
    assert got[0]["model_name"] == "count" and got[0]["id"] == "x"
    assert server.json("/v2/models/count/versions/1/generate", {"n": 1})[1]["left"] == 0
    # f32 0.6 - 1 in as many digits as it takes to tell it from its neighbours, as from infer
    assert b'"left":-0.39999998,' in server.request("/v2/models/count/generate", {"n": 0.6})[2]
    status, answer = server.json("/v2/models/count/generate", {"n": 3})
    assert status == 501 and "generate_stream" in answer["error"]
    assert server.json("/v2/models/plain/generate", {"INPUT0": "héllo"})[1]["OUTPUT0"] == "héllo"
    assert events(server.request("/v2/models/plain/generate_stream", {"INPUT0": ["a"]})[2].decode())[0]["OUTPUT0"] == "a"
    for body, words in (({"INPUT0": 3}, "expects strings"), ({"INPUT0": ["a", "b"]}, "expected [1], got [2]"), ({}, "is missing"),
                        ({"INPUT0": "a", "other": [1]}, "'other' is no input"), (b"[]", "not an object"),
                        (b'{"INPUT0": "a", "INPUT0": "b"}', "'INPUT0' is in the body twice"),
                        (b'{"INPUT0": "a", "id": "1", "id": "2"}', "'id' is in the body twice"),
                        (b'{"INPUT0": "a", "p": 1, "p": 2}', "'p' is in the body twice"),
                        (b'{"INPUT0": "a", "p": 1, "parameters": {"p": 2}}', "'p' is in the body twice")):
        for path in ("generate", "generate_stream"):
            status, answer = server.json(f"/v2/models/plain/{path}", body, "POST")
            assert status == 400 and words in answer["error"]
    assert server.json("/v2/models/none/generate", {})[0] == 404
    assert server.request("/v2/models/plain/generate")[0] == 405


def test_a_reader_that_goes_ends_its_generation(server):
    body = b'{"n": 1000}'
    head = b"POST /v2/models/count/generate_stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
        s.sendall(head + body)
        assert b"text/event-stream" in s.recv(1000)
    until(lambda: (now := server.stats("count"))["fail"]["count"] + now["success"]["count"] >= 1)
    two = socket.create_connection(("127.0.0.1", server.port), timeout=10)      # one connection serves on after a stream
    for _ in range(2):
        two.sendall(head.replace(b"%d" % len(body), b"8") + b'{"n": 2}')
        text = b""
        while not text.endswith(b"0\r\n\r\n"):
            text += two.recv(65536)
        assert text.count(b"data: ") == 2
    two.close()
