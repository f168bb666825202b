# SPDX-License-Identifier: Apache-2.0
"""Clients that take without giving: connections, answers that they do not read, messages that they do not end."""
import contextlib
import json
import socket
import struct
import time

import numpy as np
import pytest
from conftest import add_model, identity
from frames import GOAWAY, Frames
from waiting import until

ELEMENTS = 1 << 20


@pytest.fixture
def service():
    pytest.importorskip("grpc", reason="tritonclient is not installed")
    return pytest.importorskip("tritonclient.grpc.service_pb2", reason="tritonclient is not installed")


def message(service, elements):
    m = service.ModelInferRequest(model_name="id")
    m.inputs.add(name="INPUT0", datatype="FP32", shape=[elements])
    m.raw_input_contents.append(bytes(4 * elements))
    return m.SerializeToString()


def resident(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024


def wait_served(server, model, n):
    until(lambda: server.stats(model)["success"]["count"] >= n)


def ask_unread(server, elements):
    """An HTTP request for thirds as JSON, nearly three times as long as they are; only the beginning of its answer is read."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(20)
    s.connect(("127.0.0.1", server.port))
    data = np.full(elements, 1 / 3, np.float32).tobytes()
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [elements], "parameters": {"binary_data_size": len(data)}}]}).encode()
    s.sendall(b"POST /v2/models/id/infer HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
              % (len(head), len(head) + len(data)) + head + data)
    return s, s.recv(400)


def test_answers_that_nobody_reads_are_bounded_over_http(serve):
    add_model(serve.repository, "id", identity())
    server = serve(f"--max-inflight-bytes={20 << 20}")
    held = [ask_unread(server, 350_000) for _ in range(12)]
    kept = [answer.startswith(b"HTTP/1.1 200 ") for _, answer in held]
    assert kept[:3] == [True] * 3 and 3 <= sum(kept) <= 7, kept
    for taken, (_, answer) in zip(kept, held):
        if not taken:
            assert answer.startswith(b"HTTP/1.1 503 ") and b"as many bytes of answers as it may" in answer and b"Retry-After: 1" in answer
    assert server.infer("id", [1.0])[0] == 200          # small answers pass
    for s, _ in held:
        s.close()
    def answered():
        s, answer = ask_unread(server, 350_000)
        s.close()
        return answer.startswith(b"HTTP/1.1 200 ")
    until(answered)                                     # given back with the connections


def test_answers_that_nobody_reads_are_bounded_over_grpc(serve, service):
    import grpc
    from tritonclient.grpc import service_pb2_grpc
    add_model(serve.repository, "id", identity())
    server = serve(f"--max-inflight-bytes={40 << 20}")
    with contextlib.closing(Frames(server.grpc, answer_window=0)) as silent, \
            grpc.insecure_channel(server.grpc, options=[("grpc.max_receive_message_length", -1)]) as channel:
        ask = message(service, ELEMENTS)
        for _ in range(9):
            silent.message(silent.call("ModelInfer"), ask)
        wait_served(server, "id", 9)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        assert stub.ModelInfer(service.ModelInferRequest.FromString(message(service, 1000))).outputs[0].shape == [1000]
        with pytest.raises(grpc.RpcError) as error:
            stub.ModelInfer(service.ModelInferRequest.FromString(message(service, 2 * ELEMENTS)))
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE and "as many bytes of answers as it may" in error.value.details()
        silent.close()
        for _ in range(200):                                # given back with the connection
            with contextlib.suppress(grpc.RpcError):
                assert stub.ModelInfer(service.ModelInferRequest.FromString(message(service, 2 * ELEMENTS))).outputs[0].shape == [2 * ELEMENTS]
                break
            time.sleep(0.05)
        else:
            raise AssertionError("the room never came back")


def test_grpc_connections_are_bounded(serve, service):
    add_model(serve.repository, "id", identity())
    server = serve("--max-connections=20")
    held = [Frames(server.grpc) for _ in range(20)]
    for f in held:
        assert f.receive() is not None
    frames, one_more = [], Frames(server.grpc)
    with contextlib.suppress(ConnectionError):
        while (frame := one_more.receive()) is not None:
            frames.append(frame)
    assert frames[-1][0] == GOAWAY and frames[-1][3].endswith(b"too many connections")
    held.pop().close()
    def accepted():
        with contextlib.closing(Frames(server.grpc)) as f, contextlib.suppress(ConnectionError):
            first = f.receive()
            stream = f.call("ServerLive")
            f.message(stream, b"")
            while (frame := f.receive()) is not None and frame[0] != GOAWAY:
                if frame[0] == 0 and frame[2] == stream:
                    return True
            assert first is not None
        return False
    until(accepted)
    for f in held:
        f.close()


def test_messages_that_do_not_end_are_bounded(serve, service):
    """Many calls each of which announces the largest message and sends nearly all of it."""
    add_model(serve.repository, "id", identity())
    server = serve(f"--max-inflight-bytes={64 << 20}", f"--http-max-input-size={32 << 20}")
    before = resident(server)
    f = Frames(server.grpc)
    most = before
    f.socket.settimeout(3)
    with contextlib.suppress(ConnectionError, TimeoutError):
        for _ in range(16):
            f.data(f.call("ModelInfer"), b"\0" + struct.pack(">I", 31 << 20) + bytes(30 << 20))
            most = max(most, resident(server))
    print(f"{(most - before) >> 20} MiB")
    assert most - before < 200 << 20
    f.close()
    assert server.infer("id", [1.0])[0] == 200
