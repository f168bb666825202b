# SPDX-License-Identifier: Apache-2.0
"""Long runs of the server, apart from `make test`: make test-soak. CYCLES and SECONDS set their length."""
import http.client
import json
import os
import random
import socket
import subprocess
import threading
import time

import numpy as np
from conftest import add_model, binary, identity, serve  # noqa: F401 - a fixture
from onnx import TensorProto, helper, numpy_helper

CYCLES = int(os.environ.get("PELTON_SOAK_CYCLES", 10_000))
SECONDS = float(os.environ.get("PELTON_SOAK_SECONDS", 300))


def counts(pid):
    with open(f"/proc/{pid}/maps") as f:
        maps = sum(1 for _ in f)
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), maps


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def plan_of_ten_megabytes(folder):
    weight = numpy_helper.from_array(np.ones((1600, 1600), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1600])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1600])], [weight])
    source, plan = folder / "m.onnx", folder / "m.pelton"
    source.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    subprocess.run([binary(), "compile", str(source), "-o", str(plan)], check=True, capture_output=True)
    return plan.read_bytes()


def test_load_cycles(serve, tmp_path):  # noqa: F811
    """Of a 10 MB model, a failed load in each; after cycle 100 nothing may grow."""
    content = plan_of_ten_megabytes(tmp_path)
    add_model(serve.repository, "big", 'backend: "pelton"', files={"1/model.pelton": content})
    add_model(serve.repository, "cut", 'backend: "pelton"', files={"1/model.pelton": content[:len(content) // 2]})
    # Not to standard error: nobody reads that pipe, and a full one would stop the server.
    server = serve("--model-control-mode=explicit", f"--log-file={tmp_path / 'log'}")
    pid = server.process.pid
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1600], "data": [1.0] * 1600}]})
    kept = http.client.HTTPConnection(server.http)

    def post(path, content=""):
        kept.request("POST", path, content)
        answer = kept.getresponse()
        return answer.status, answer.read()

    # All threads that administration may have are there before the counting begins.
    loaders = [threading.Thread(target=server.json, args=("/v2/repository/models/big/load", b"", "POST")) for _ in range(16)]
    for t in loaders:
        t.start()
    for t in loaders:
        t.join()
    after = {}
    for cycle in range(1, CYCLES + 1):
        assert post("/v2/repository/models/big/load")[0] == 200
        assert post("/v2/repository/models/cut/load")[0] >= 400
        if cycle % 50 == 0:
            assert json.loads(post("/v2/models/big/infer", body)[1])["outputs"][0]["data"][0] == 1600
        assert post("/v2/repository/models/big/unload")[0] == 200
        if cycle in (100, CYCLES) or cycle % 1000 == 0:
            time.sleep(1)                                           # the last version may be on its way out
            after[cycle] = counts(pid), rss_kib(pid)
            print("cycle", cycle, "descriptors, threads, mappings:", after[cycle][0], "RSS KiB:", after[cycle][1], flush=True)
    (first, rss), (last, rss_last) = after[min(100, CYCLES)], after[CYCLES]
    assert first == last, "descriptors, threads, mappings"
    assert rss_last - rss <= 16 * 1024


def test_a_minute_at_rest(serve):  # noqa: F811
    add_model(serve.repository, "id", identity())
    server = serve()
    assert server.infer("id", [1])[0] == 200
    time.sleep(2)
    before = cpu_seconds(server.process.pid)
    time.sleep(60)
    used = cpu_seconds(server.process.pid) - before
    print("CPU seconds in a minute:", used)
    assert used <= 0.06


def test_faults_for_a_while(serve):  # noqa: F811
    """Honest clients, rude clients, reloads and swaps at once: every honest request gets its own answer."""
    for name in "ab":
        add_model(serve.repository, name, identity(more='max_batch_size: 8 dynamic_batching { } parameters { key: "execute_delay_ms" value { string_value: "1" } }'))
    server = serve("--model-control-mode=explicit", "--load-model=*", "--header-timeout-secs=1")
    pid, stop, wrong, right = server.process.pid, threading.Event(), [], [0]

    def honest(k):
        while not stop.is_set():
            status, answer = server.infer("ab"[k % 2], [k, k], shape=[1, 2])
            if status == 200 and answer["outputs"][0]["data"] == [k, k]:
                right[0] += 1
            else:
                wrong.append((status, answer))

    def rude(k):
        rng = random.Random(k)
        while not stop.is_set():
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as s:
                s.sendall(rng.randbytes(rng.randrange(300)) if rng.random() < 0.3 else
                          b"POST /v2/models/a/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n{" % rng.randrange(1000))
                time.sleep(rng.random() * 0.02)

    def reload():
        while not stop.is_set():
            assert server.json("/v2/repository/models/a/load", b"", "POST")[0] == 200
            time.sleep(0.05)

    time.sleep(1)
    threads = [threading.Thread(target=honest, args=(k,)) for k in range(4)] + [threading.Thread(target=rude, args=(k,)) for k in range(4)]
    threads.append(threading.Thread(target=reload))
    for t in threads:
        t.start()
    time.sleep(min(30, SECONDS / 4))
    rss = rss_kib(pid)
    time.sleep(SECONDS - min(30, SECONDS / 4))
    grown = rss_kib(pid) - rss
    stop.set()
    for t in threads:
        t.join()
    print("right answers:", right[0], "grown KiB:", grown)
    assert not wrong and right[0] > 100
    assert grown <= 16 * 1024
