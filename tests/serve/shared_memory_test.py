# SPDX-License-Identifier: Apache-2.0
"""System shared memory with the public client: both protocols, every mistake, and regions that change under way."""
import os
import pathlib
import sys
import threading

import numpy as np
import pytest
from conftest import add_model, identity
from waiting import until

REASON = "tritonclient is not installed"
http = pytest.importorskip("tritonclient.http", reason=REASON)
grpc = pytest.importorskip("tritonclient.grpc", reason=REASON)
shm = pytest.importorskip("tritonclient.utils.shared_memory", reason=REASON)
from tritonclient.utils import InferenceServerException  # noqa: E402

KEY = f"/test-{os.getpid()}"
# A request waits here until another one comes. As many elements as are read in place.
PAIRS = "max_batch_size: 2 dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 600000000 }"
MAPPED = 8192


@pytest.fixture
def region():
    handle = shm.create_shared_memory_region("mine", KEY, 4096)
    yield handle
    shm.destroy_shared_memory_region(handle)


def connect(module, server):
    return module.InferenceServerClient(server.http if module is http else server.grpc)


def ask(module, client, count, in_size, out_size, in_offset=0, out_offset=2048):
    tensor = module.InferInput("INPUT0", [count], "FP32")
    tensor.set_shared_memory("mine", in_size, offset=in_offset)
    output = module.InferRequestedOutput("OUTPUT0")
    output.set_shared_memory("mine", out_size, offset=out_offset)
    return client.infer("id", [tensor], outputs=[output])


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_inputs_and_outputs_in_a_region(serve, region, module):
    add_model(serve.repository, "id", identity())
    client = connect(module, serve("--allow-client-shm=true"))
    values = np.arange(64, dtype=np.float32)
    shm.set_shared_memory_region(region, [values])
    client.register_system_shared_memory("mine", KEY, 4096)
    assert "mine" in str(client.get_system_shared_memory_status())
    result = ask(module, client, 64, 256, 256)
    assert np.array_equal(shm.get_contents_as_numpy(region, np.float32, [64], offset=2048), values)
    output = result.get_output("OUTPUT0")
    if module is http:
        assert "parameters" not in output                           # the C++ client would look for a size of binary data there
    else:
        assert "mine" in str(output.parameters)

    def refused(words, call, *args, **more):
        with pytest.raises(InferenceServerException, match=words):
            call(*args, **more)

    refused("holds 128 bytes", ask, module, client, 64, 128, 256)
    refused("has 256 bytes, its place", ask, module, client, 64, 256, 128)
    refused("lie outside", ask, module, client, 64, 256, 256, in_offset=4000)
    refused("lie outside", ask, module, client, 64, 256, 256, out_offset=2**63 - 8)
    refused("already registered", client.register_system_shared_memory, "mine", KEY, 4096)
    refused("ends at byte 9000", client.register_system_shared_memory, "large", KEY, 9000)
    refused("cannot open", client.register_system_shared_memory, "none", "/no-such-segment", 10)
    refused("unusable", client.register_system_shared_memory, "path", "/../etc/passwd", 10)
    refused("unusable", client.register_system_shared_memory, "own", "/pelton-internal", 10)
    os.truncate(f"/dev/shm{KEY}", 100)                      # the owner shrinks it: an error, never a crash
    refused("was truncated", ask, module, client, 64, 256, 256)
    os.truncate(f"/dev/shm{KEY}", 4096)
    ask(module, client, 64, 256, 256)
    client.unregister_system_shared_memory("mine")
    refused("no shared memory region 'mine'", ask, module, client, 64, 256, 256)
    assert client.is_server_live()


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_large_inputs_are_read_in_place_and_may_be_cut_off_meanwhile(serve, module):
    """The mapping is used (no copy of 32 MiB is made), and a region that shrinks while its request runs is an error."""
    add_model(serve.repository, "id", identity())
    add_model(serve.repository, "pairs", identity(more=PAIRS))
    server = serve("--allow-client-shm=true")
    client = connect(module, server)
    size, key = 32 << 20, KEY + "-large"
    handle = shm.create_shared_memory_region("large", key, 2 * size)
    try:
        values = np.arange(size // 4, dtype=np.float32)
        shm.set_shared_memory_region(handle, [values])
        client.register_system_shared_memory("large", key, 2 * size)
        tensor = module.InferInput("INPUT0", [size // 4], "FP32")
        tensor.set_shared_memory("large", size)
        output = module.InferRequestedOutput("OUTPUT0")
        output.set_shared_memory("large", size, offset=size)

        def anonymous_peak_kib():
            with open(f"/proc/{server.process.pid}/status") as f:
                return int(next(line for line in f if line.startswith("RssAnon")).split()[1])

        before = anonymous_peak_kib()
        client.infer("id", [tensor], outputs=[output])
        assert np.array_equal(shm.get_contents_as_numpy(handle, np.float32, [size // 4], offset=size), values)
        assert anonymous_peak_kib() - before < 8 * 1024
        answers = []

        def ask_for_pair():
            t = module.InferInput("INPUT0", [1, MAPPED], "FP32")
            t.set_shared_memory("large", 4 * MAPPED)
            try:
                connect(module, server).infer("pairs", [t])
                answers.append("no error")
            except InferenceServerException as e:
                answers.append(str(e))

        assert server.infer("pairs", [1], "INT32")[0] == 400        # its metrics begin
        thread = threading.Thread(target=ask_for_pair)
        thread.start()
        until(lambda: server.waiting("pairs") == 1)
        os.truncate(f"/dev/shm{key}", 4096)
        assert server.infer("pairs", [0] * MAPPED, shape=[1, MAPPED])[0] == 200
        thread.join()
        assert "truncated while its request ran" in answers[0]
        assert client.is_server_live() and server.infer("id", [1])[0] == 200
        with pytest.raises(InferenceServerException, match="truncated|cut"):
            client.infer("id", [tensor], outputs=[output])
        assert client.is_server_live()
    finally:
        client.unregister_system_shared_memory()
        shm.destroy_shared_memory_region(handle)


def test_a_region_that_is_unregistered_while_its_request_runs(serve):
    """The input stays what it was; an output that has no place any more is an error."""
    add_model(serve.repository, "pairs", identity(more=PAIRS))
    server = serve("--allow-client-shm=true")
    client = connect(http, server)
    size, key = 1 << 20, KEY + "-gone"
    handle = shm.create_shared_memory_region("gone", key, 2 * size)
    try:
        values = np.arange(size // 4, dtype=np.float32)
        shm.set_shared_memory_region(handle, [values])
        for place_output, words in ((False, None), (True, "no shared memory region 'gone'")):
            client.register_system_shared_memory("gone", key, 2 * size)
            got = []

            def ask_for_pair(place_output=place_output, got=got):
                t = http.InferInput("INPUT0", [1, MAPPED], "FP32")
                t.set_shared_memory("gone", 4 * MAPPED)
                o = http.InferRequestedOutput("OUTPUT0")
                if place_output:
                    o.set_shared_memory("gone", size, offset=size)
                try:
                    got.append(connect(http, server).infer("pairs", [t], outputs=[o]).as_numpy("OUTPUT0"))
                except InferenceServerException as e:
                    got.append(str(e))

            assert server.infer("pairs", [1], "INT32")[0] == 400    # its metrics begin
            thread = threading.Thread(target=ask_for_pair)
            thread.start()
            until(lambda: server.waiting("pairs") == 1)
            client.unregister_system_shared_memory("gone")
            assert server.infer("pairs", [0] * MAPPED, shape=[1, MAPPED])[0] == 200
            thread.join()
            assert words in got[0] if words else np.array_equal(got[0][0], values[:MAPPED])
    finally:
        shm.destroy_shared_memory_region(handle)


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_off_by_default(serve, region, module):
    add_model(serve.repository, "id", identity())
    client = connect(module, serve())
    for call in (lambda: client.register_system_shared_memory("mine", KEY, 4096), client.get_system_shared_memory_status,
                 lambda: ask(module, client, 1, 4, 4), client.unregister_system_shared_memory):
        with pytest.raises(InferenceServerException, match="--allow-client-shm"):
            call()
    assert "system_shared_memory" not in str(client.get_server_metadata())


ECHO = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())]) for r in requests]
"""


def test_memory_of_the_servers_own_has_no_name(serve):
    """Nothing that a client could register: what the server shares with the processes of Python models is under no name."""
    add_model(serve.repository, "echo", identity().replace("identity", "python"), files={"1/model.py": ECHO})
    server = serve("--allow-client-shm=true", f"--python-executable={sys.executable}")
    assert server.infer("echo", [1.0] * 100_000)[0] == 200
    pid = server.process.pid
    processes = [pid, *(int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split())]
    assert len(processes) > 1
    for process in processes:
        opened = [os.readlink(f) for f in pathlib.Path(f"/proc/{process}/fd").iterdir()]
        assert not [f for f in opened if f.startswith("/dev/shm/")] and "/dev/shm/" not in pathlib.Path(f"/proc/{process}/maps").read_text()
    status, answer = server.json("/v2/systemsharedmemory/region/r/register", {"key": "/pelton_worker", "offset": 0, "byte_size": 64})
    assert status == 400 and "/proc" not in answer["error"]
