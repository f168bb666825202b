# SPDX-License-Identifier: Apache-2.0
"""gRPC beyond inference: health, reflection, deadlines, cancellation, limits, statuses."""
import random

import numpy as np
import pytest
from conftest import add_model, identity
from waiting import until

grpc = pytest.importorskip("grpc", reason="tritonclient is not installed")
service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2", reason="tritonclient is not installed")
service_pb2_grpc = pytest.importorskip("tritonclient.grpc.service_pb2_grpc", reason="tritonclient is not installed")


@pytest.fixture
def server(serve):
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "slow", identity(more='parameters { key: "execute_delay_ms" value { string_value: "500" } }'))
    return serve()


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.grpc) as c:
        yield c


def infer_request(model, values=(1.0,)):
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[len(values)])
    request.raw_input_contents.append(np.array(values, np.float32).tobytes())
    return request


def failures(server, model):
    return server.json(f"/v2/models/{model}/stats")[1]["model_stats"][0]["inference_stats"]["fail"]["count"]


def raw(channel, method):
    return channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)


def test_health_and_reflection(channel):
    assert raw(channel, "/grpc.health.v1.Health/Check")(b"") == b"\x08\x01"           # SERVING
    reflect = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                    request_serializer=bytes, response_deserializer=bytes)
    answer = next(reflect(iter([b"\x3a\x00"])))                                       # list_services
    assert b"inference.GRPCInferenceService" in answer and b"grpc.health.v1.Health" in answer


def test_deadline_and_cancellation_free_the_place(serve):
    add_model(serve.repository, "slow", identity(more='parameters { key: "execute_delay_ms" value { string_value: "2000" } }'))
    server = serve()
    assert server.infer("slow", [1], "INT32")[0] == 400                                # its metrics begin
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        kept = [stub.ModelInfer.future(infer_request("slow")) for _ in range(2)]
        until(lambda: server.waiting("slow") == 1)                                    # one has come, so the next is not the first
        cancelled = stub.ModelInfer.future(infer_request("slow"))
        server.until_waiting("slow", 2)
        with pytest.raises(grpc.RpcError) as error:
            stub.ModelInfer(infer_request("slow"), timeout=0.2)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        cancelled.cancel()
        until(lambda: failures(server, "slow") == 3)
        assert [k.result().outputs[0].shape for k in kept] == [[1], [1]]
        stub.ModelInfer(infer_request("slow"))
        assert server.json("/v2/models/slow/stats")[1]["model_stats"][0]["execution_count"] == 3


@pytest.mark.parametrize("change, code, words", [
    (lambda r: setattr(r, "model_name", "none"), "NOT_FOUND", "unknown model: 'none'"),
    (lambda r: setattr(r, "model_version", "7"), "NOT_FOUND", "version 7"),
    (lambda r: setattr(r.inputs[0], "datatype", "FP99"), "INVALID_ARGUMENT", "unknown datatype 'FP99'"),
    (lambda r: r.inputs[0].shape.append(-1), "INVALID_ARGUMENT", "negative dimension -1"),
    (lambda r: r.raw_input_contents.append(b""), "INVALID_ARGUMENT", "raw_input_contents has 2 entries for 1 inputs"),
    (lambda r: r.raw_input_contents.__setitem__(0, b"abc"), "INVALID_ARGUMENT", "holds 3 bytes"),
    (lambda r: r.inputs[0].contents.fp32_contents.append(1), "INVALID_ARGUMENT", "has contents although"),
    (lambda r: r.inputs[0].parameters["shared_memory_region"].__setattr__("string_param", "x"), "UNIMPLEMENTED", "shared memory is off"),
    (lambda r: r.parameters["sequence_id"].__setattr__("bool_param", True), "INVALID_ARGUMENT", "sequence_id"),
    (lambda r: r.parameters["triton_x"].__setattr__("bool_param", True), "INVALID_ARGUMENT", "reserved"),
])
def test_statuses_say_what_is_wrong(server, channel, change, code, words):
    request = infer_request("id")
    change(request)
    with pytest.raises(grpc.RpcError) as error:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    assert error.value.code() == getattr(grpc.StatusCode, code) and words in error.value.details()
    assert server.infer("id", [1])[0] == 200


def test_messages_are_bounded(serve):
    add_model(serve.repository, "id", identity())
    server = serve("--http-max-input-size=100000")
    with grpc.insecure_channel(server.grpc, options=[("grpc.max_receive_message_length", -1)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        assert stub.ModelInfer(infer_request("id", [0.0] * 20_000)).outputs[0].shape == [20_000]
        with pytest.raises(grpc.RpcError) as error:
            stub.ModelInfer(infer_request("id", [0.0] * 30_000))
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_model_control_over_grpc(serve):
    add_model(serve.repository, "id", identity())
    server = serve("--model-control-mode=explicit")
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        stub.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name="id"))
        assert stub.ModelReady(service_pb2.ModelReadyRequest(name="id")).ready
        config = stub.ModelConfig(service_pb2.ModelConfigRequest(name="id")).config
        assert config.input[0].dims == [-1] and config.backend == "identity"
        stub.RepositoryModelUnload(service_pb2.RepositoryModelUnloadRequest(model_name="id"))
        assert not stub.ModelReady(service_pb2.ModelReadyRequest(name="id")).ready
        with pytest.raises(grpc.RpcError) as error:
            stub.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name="none"))
        assert error.value.code() == grpc.StatusCode.NOT_FOUND


def test_messages_that_are_none(server, channel):
    """Bytes that are no protobuf, or one cut off anywhere: an error status each, and the server goes on."""
    rng = random.Random(3)
    call = raw(channel, "/inference.GRPCInferenceService/ModelInfer")
    request = infer_request("id", (1, 2))
    request.id = "x"
    whole = request.SerializeToString()
    answer = lambda: service_pb2.ModelInferResponse.FromString(call(whole, timeout=20)).id  # noqa: E731
    assert answer() == "x"
    for i in range(200):
        data = whole[:rng.randrange(len(whole))] if i % 2 else rng.randbytes(rng.randrange(1, 60))
        with pytest.raises(grpc.RpcError) as e:
            call(data, timeout=20)
        assert e.value.code() not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE), e.value
    assert answer() == "x"
