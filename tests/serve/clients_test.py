# SPDX-License-Identifier: Apache-2.0
"""The public client library against the real server: HTTP, gRPC, their asynchronous forms, streaming."""
import asyncio
import threading

import numpy as np
import pytest
from conftest import add_model, identity

REASON = "tritonclient is not installed"
http = pytest.importorskip("tritonclient.http", reason=REASON)
grpc = pytest.importorskip("tritonclient.grpc", reason=REASON)
import tritonclient.grpc.aio as grpc_aio  # noqa: E402
import tritonclient.http.aio as http_aio  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

TYPES = ["BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP16", "FP32", "FP64"]
NUMPY = {"BOOL": bool, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}


@pytest.fixture
def server(serve):
    for t in TYPES:
        add_model(serve.repository, f"id_{t.lower()}", identity("TYPE_" + t, "-1, 3"))
    add_model(serve.repository, "text", identity("TYPE_STRING"))
    add_model(serve.repository, "scores", identity(more='').replace(
        'name: "OUTPUT0"', 'name: "OUTPUT0" label_filename: "labels.txt"'), files={"labels.txt": "cat\ndog\nbird\n"})
    add_model(serve.repository, "slow", identity(more='max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 2000 }'
                                                      ' parameters { key: "execute_delay_ms" value { string_value: "3" } }'))
    return serve()


def tensor(module, values, dtype, name="INPUT0"):
    t = module.InferInput(name, list(values.shape), dtype)
    t.set_data_from_numpy(values)
    return t


def connect(module, server):
    return module.InferenceServerClient(server.http if module is http else server.grpc)


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_every_type_comes_back_as_it_went(server, module):
    client = connect(module, server)
    for t in TYPES:
        dtype = NUMPY.get(t) or np.dtype(t.lower())
        values = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
        result = client.infer("id_" + t.lower(), [tensor(module, values, t)], request_id="r")
        got = result.as_numpy("OUTPUT0")
        assert got.dtype == values.dtype and np.array_equal(got, values), t
    strings = np.array([b"", b"a\x00b", "ü".encode()], dtype=object)
    assert list(client.infer("text", [tensor(module, strings, "BYTES")]).as_numpy("OUTPUT0")) == list(strings)
    empty = np.zeros((0, 3), np.float32)
    assert client.infer("id_fp32", [tensor(module, empty, "FP32")]).as_numpy("OUTPUT0").shape == (0, 3)


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_classification_and_management(server, module):
    client = connect(module, server)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("scores")
    scores = np.array([0.25, 4, 1], np.float32)
    out = module.InferRequestedOutput("OUTPUT0", class_count=2)
    result = client.infer("scores", [tensor(module, scores, "FP32")], outputs=[out]).as_numpy("OUTPUT0")
    assert list(result) == [b"4.000000:1:dog", b"1.000000:2:bird"]
    assert client.get_model_metadata("scores") and client.get_model_config("scores")
    assert client.get_inference_statistics("scores") and client.get_model_repository_index()
    assert client.get_log_settings() and client.get_trace_settings()
    with pytest.raises(InferenceServerException, match="unknown model"):
        client.infer("none", [tensor(module, scores, "FP32")])
    with pytest.raises(InferenceServerException, match="model control is off"):
        client.unload_model("scores")


def test_http_json_and_compression(server):
    client = connect(http, server)
    values = np.arange(900, dtype=np.float32).reshape(300, 3)
    t = http.InferInput("INPUT0", [300, 3], "FP32")
    t.set_data_from_numpy(values, binary_data=False)
    out = http.InferRequestedOutput("OUTPUT0", binary_data=False)
    for coding in (None, "gzip", "deflate"):
        result = client.infer("id_fp32", [t], outputs=[out], request_compression_algorithm=coding, response_compression_algorithm=coding)
        assert np.array_equal(result.as_numpy("OUTPUT0"), values)


def test_grpc_typed_contents(server):
    """Requests without raw_input_contents, as generated clients send them."""
    from tritonclient.grpc import service_pb2, service_pb2_grpc
    import grpc as grpcio
    stub = service_pb2_grpc.GRPCInferenceServiceStub(grpcio.insecure_channel(server.grpc))
    for name, dtype, field, values in (("id_int8", "INT8", "int_contents", [1, -2, 3]), ("id_uint64", "UINT64", "uint64_contents", [2**64 - 1, 0, 1]),
                                       ("id_fp64", "FP64", "fp64_contents", [0.5, 1, 2]), ("id_bool", "BOOL", "bool_contents", [True, False, True])):
        request = service_pb2.ModelInferRequest(model_name=name)
        t = request.inputs.add(name="INPUT0", datatype=dtype, shape=[1, 3])
        getattr(t.contents, field).extend(values)
        answer = stub.ModelInfer(request)
        kind = NUMPY.get(dtype) or np.dtype(dtype.lower())
        assert list(np.frombuffer(answer.raw_output_contents[0], kind)) == values
    request = service_pb2.ModelInferRequest(model_name="id_int8")
    request.inputs.add(name="INPUT0", datatype="INT8", shape=[1, 3]).contents.int_contents.extend([1, 2, 300])
    with pytest.raises(grpcio.RpcError) as error:
        stub.ModelInfer(request)
    assert error.value.code() == grpcio.StatusCode.INVALID_ARGUMENT and "holds 300, which is out of range" in error.value.details()


def test_stream_answers_in_order_and_carries_errors(server):
    client = connect(grpc, server)
    got, done = [], threading.Event()

    def collect(result, error):
        got.append((result, error))
        if len(got) == 201:
            done.set()

    client.start_stream(collect)
    for i in range(200):
        values = np.full((1, 1), i, np.float32)
        client.async_stream_infer("slow", [tensor(grpc, values, "FP32")], request_id=str(i))
    client.async_stream_infer("none", [tensor(grpc, np.zeros(1, np.float32), "FP32")])
    assert done.wait(60)
    client.stop_stream()
    assert [r.get_response().id for r, e in got[:200]] == [str(i) for i in range(200)]
    assert [float(r.as_numpy("OUTPUT0")[0, 0]) for r, e in got[:200]] == list(range(200))
    assert "unknown model" in str(got[200][1])
    stats = client.get_inference_statistics("slow", as_json=True)["model_stats"][0]
    assert int(stats["inference_count"]) == 200 and int(stats["execution_count"]) < 200, "nothing was batched"


def test_asynchronous_clients(server):
    async def run(module, address):
        async with module.InferenceServerClient(address) as client:
            base = http if module is http_aio else grpc
            answers = await asyncio.gather(*(client.infer("slow", [tensor(base, np.full((1, 2), i, np.float32), "FP32")]) for i in range(64)))
            return [float(a.as_numpy("OUTPUT0")[0, 1]) for a in answers]

    assert asyncio.run(run(http_aio, server.http)) == list(range(64))
    assert asyncio.run(run(grpc_aio, server.grpc)) == list(range(64))


def test_our_proto_equals_the_published_one():
    """Field by field: names, numbers, types, labels, services."""
    import pathlib
    import re
    from tritonclient.grpc import model_config_pb2, service_pb2
    folder = pathlib.Path(__file__).resolve().parents[2] / "src/serve/grpc/proto"
    scalar = {1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 12: "bytes", 13: "uint32"}

    def type_of(f):
        named = f.message_type or f.enum_type
        return named.full_name.removeprefix("inference.") if named else scalar[f.type]

    def published(descriptor):
        for f in descriptor.fields:
            if f.message_type and f.message_type.GetOptions().map_entry:
                k, v = f.message_type.fields
                yield descriptor.full_name.removeprefix("inference."), f"map<{type_of(k)}, {type_of(v)}>", f.name, f.number
            else:
                yield descriptor.full_name.removeprefix("inference."), ("repeated " if f.is_repeated else "") + type_of(f), f.name, f.number
        for n in descriptor.nested_types:
            if not n.GetOptions().map_entry:
                yield from published(n)

    for module, name in ((model_config_pb2, "model_config.proto"), (service_pb2, "grpc_service.proto")):
        ours, place = set(), []
        for line in (folder / name).read_text().splitlines():
            if m := re.match(r"\s*(message|enum|service|oneof) (\w+) \{", line):
                place.append(None if m[1] == "oneof" else m[2])
                enum = m[1] == "enum"
            elif line.strip() == "}":
                place.pop()
            elif (m := re.match(r"\s*((?:repeated )?(?:map<[^>]+>|[\w.]+)) (\w+) = (\d+);", line)) and not enum:
                ours.add((".".join(p for p in place if p), m[1], m[2], int(m[3])))
            if line.strip() == "}":
                enum = False
        theirs = {row for d in module.DESCRIPTOR.message_types_by_name.values() for row in published(d)}
        assert ours == theirs
    text = (folder / "grpc_service.proto").read_text()
    for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
        assert f"rpc {method.name}(" in text


def test_our_proto_has_the_messages_that_kserve_publishes(server):
    """The same names, numbers and types, and its classes read our answers to the last field."""
    import json
    from grpc import insecure_channel
    from kserve_interface import ROWS, messages
    from tritonclient.grpc import service_pb2
    ours = {}

    def add(descriptor):
        for f in descriptor.fields:
            of = f.message_type or f.enum_type
            ours[descriptor.full_name, f.name] = [f.number, f.type, f".{of.full_name}" if of else "", f.is_repeated]
        for nested in descriptor.nested_types:
            add(nested)

    for d in service_pb2.DESCRIPTOR.message_types_by_name.values():   # equal to ours: the test above
        add(d)
    other = {(m, f) for m, f, *row in json.loads(ROWS.read_text()) if ours.get((m, f)) != row[:4]}
    # The two publish different requests under these names; this server has tritonserver's.
    assert {m for m, _ in other} == {f"inference.RepositoryModel{w}" for w in ("LoadRequest", "LoadResponse", "UnloadRequest", "UnloadResponse")}
    classes = messages()
    with insecure_channel(server.grpc) as channel:
        def call(method, **fields):
            request, response = classes[f"{method}Request"], classes[f"{method}Response"]
            answer = channel.unary_unary(f"/inference.GRPCInferenceService/{method}", request.SerializeToString, response.FromString)(request(**fields))
            known = response()
            known.CopyFrom(answer)
            known.DiscardUnknownFields()
            assert known == answer and known.ByteSize() == answer.ByteSize()
            return answer

        assert call("ServerLive").live and call("ServerReady").ready and call("ModelReady", name="id_fp32").ready
        assert "binary_tensor_data" in call("ServerMetadata").extensions
        assert call("ModelMetadata", name="id_fp32").inputs[0].name == "INPUT0"
        given = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 3], "contents": {"fp32_contents": [1.5, -2, 0]}}
        answer = call("ModelInfer", model_name="id_fp32", id="7", inputs=[given])
        assert answer.id == "7" and np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [1.5, -2, 0]
