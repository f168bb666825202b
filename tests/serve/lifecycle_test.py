# SPDX-License-Identifier: Apache-2.0
"""Loading, unloading and replacing models of a running server, and what stays the same after many of them."""
import base64
import json
import os
import shutil
import threading
import time

import pytest
from conftest import add_model, identity
from waiting import until

ENSEMBLE = """
platform: "ensemble"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling {
  step [
    { model_name: "a" model_version: -1 input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "between" } },
    { model_name: "b" model_version: -1 input_map { key: "INPUT0" value: "between" } output_map { key: "OUTPUT0" value: "OUTPUT0" } }
  ]
}
"""


@pytest.fixture
def server(serve):
    add_model(serve.repository, "a", identity())
    add_model(serve.repository, "b", identity())
    add_model(serve.repository, "both", ENSEMBLE)
    add_model(serve.repository, "bad", 'backend: "identity" max_batch_size: -3')
    return serve("--model-control-mode=explicit")


def control(server, model, verb, parameters=None):
    return server.json(f"/v2/repository/models/{model}/{verb}", {"parameters": parameters} if parameters else b"", "POST")


def test_explicit_control(server):
    index = server.json("/v2/repository/index", b"", "POST")[1]
    assert sorted(e["name"] for e in index) == ["a", "b", "bad", "both"] and not any("state" in e for e in index)
    assert server.json("/v2/repository/index", {"ready": True})[1] == []
    assert server.infer("both", [1, 2])[0] == 404
    assert control(server, "both", "load")[0] == 200         # loads its steps too
    assert server.infer("both", [1, 2])[1]["outputs"][0]["data"] == [1, 2]
    assert server.infer("a", [1])[0] == 200
    status, answer = control(server, "bad", "load")
    assert status == 400 and "max_batch_size -3 is negative" in answer["error"]
    assert control(server, "nowhere", "load")[0] == 404
    assert control(server, "both", "unload", {"unload_dependents": True})[0] == 200
    states = {e["name"]: (e.get("state"), e.get("reason")) for e in server.json("/v2/repository/index", b"", "POST")[1]}
    assert states["a"] == states["both"] == ("UNAVAILABLE", "unloaded")
    status, headers, answer = server.request("/v2/models/a/infer", {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]})
    assert status == 404 and "Retry-After" not in headers and b"'a' has no available versions" in answer


def test_a_step_that_is_gone_fails_the_ensemble_by_name(server):
    control(server, "both", "load")
    control(server, "b", "unload")
    status, answer = server.infer("both", [1])
    assert status == 503 and "'b' has no available versions" in answer["error"] and "both step 'b'" in answer["error"]
    control(server, "b", "load")
    assert server.infer("both", [1])[0] == 200


def test_config_override(server):
    config = {"backend": "identity", "max_batch_size": 4,
              "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [2]}], "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [2]}]}
    assert control(server, "a", "load", {"config": json.dumps(config)})[0] == 200
    assert server.infer("a", [1, 2], shape=[1, 2])[0] == 200
    assert server.json("/v2/models/a/config")[1]["max_batch_size"] == 4
    status, answer = control(server, "a", "load", {"config": '{"max_batch": 3}'})
    assert status == 400 and "did you mean 'max_batch_size'" in answer["error"]
    status, answer = control(server, "a", "load", {"config": json.dumps(config), "file:1/model.bin": base64.b64encode(b"x").decode()})
    assert status == 400 and "--allow-model-upload" in answer["error"]
    assert control(server, "a", "load", {"confg": "x"})[0] == 400
    assert server.infer("a", [1, 2], shape=[1, 2])[0] == 200


def test_uploads_with_leave(serve):
    server = serve("--model-control-mode=explicit", "--allow-model-upload")
    config = json.dumps({"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
                         "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]})
    data = base64.b64encode(os.urandom(1000)).decode()
    assert control(server, "up", "load", {"config": config, "file:1/model.bin": data})[0] == 200
    assert server.infer("up", [3])[0] == 200
    for path in ("1/model.py", "1/x.so", "../x", "/x"):
        status, answer = control(server, "up", "load", {"config": config, "file:" + path: data})
        assert status == 400 and "uploaded file" in answer["error"]
    assert control(server, "up", "load", {"config": config, "file:1/m": "no base64!"})[0] == 400
    for backend, name in (("pelton", "model.pelton"), ("onnxruntime", "model.onnx")):
        bad = json.dumps(json.loads(config) | {"backend": backend})
        status, answer = control(server, "bad", "load", {"config": bad, f"file:1/{name}": data})
        assert status == 400 and "/tmp" not in answer["error"] and "pelton-upload" not in answer["error"], answer
        reasons = str(server.json("/v2/repository/index", b"", "POST")[1])
        assert "bad" in reasons and "/tmp" not in reasons and "pelton-upload" not in reasons
    assert server.infer("up", [3])[0] == 200


def test_polling(serve):
    add_model(serve.repository, "a", identity())
    server = serve("--model-control-mode=poll", "--repository-poll-secs=0.2")
    add_model(serve.repository, "new", identity())

    until(lambda: server.infer("new", [1])[0] == 200)
    add_model(serve.repository, "a", None, versions=(2,))
    until(lambda: server.infer("a", [1])[1].get("model_version") == "2")
    (serve.repository / "a" / "config.pbtxt").write_text("broken")
    until(lambda: "newer load failed" in str(server.json("/v2/repository/index", b"", "POST")[1]))
    assert server.infer("a", [1])[0] == 200
    shutil.rmtree(serve.repository / "new")
    until(lambda: server.infer("new", [1])[0] == 404)


def test_no_request_is_lost_while_models_are_reloaded(server):
    control(server, "both", "load")
    stop, outcomes = threading.Event(), []

    def client():
        while not stop.is_set():
            status, answer = server.infer("both", [5, 6])
            outcomes.append(status == 200 and answer["outputs"][0]["data"] == [5, 6])

    threads = [threading.Thread(target=client) for _ in range(3)]
    for t in threads:
        t.start()
    for i in range(40):
        assert control(server, "ab"[i % 2], "load")[0] == 200
        control(server, "bad", "load")
    stop.set()
    for t in threads:
        t.join()
    assert len(outcomes) > 20 and all(outcomes)


def test_load_cycles_leave_nothing_behind(server):
    pid = server.process.pid

    def counts():
        return (len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")))

    def rss_kib():
        with open(f"/proc/{pid}/status") as f:
            return int(next(l for l in f if l.startswith("VmRSS")).split()[1])

    def cycle(n):
        for _ in range(n):
            assert control(server, "a", "load")[0] == 200
            assert server.infer("a", [1])[0] == 200
            assert control(server, "bad", "load")[0] == 400
            assert control(server, "a", "unload")[0] == 200

    cycle(50)
    time.sleep(0.3)
    before, memory = counts(), rss_kib()
    cycle(300)
    time.sleep(0.3)
    after = counts()
    assert after[0] == before[0]
    # The pools of gRPC and of the management requests start a thread when all others are busy, up to a limit.
    assert after[1] <= before[1] + 4
    assert rss_kib() - memory < 16 * 1024


def cost(server, call, rounds=5):
    """The answer, and the CPU seconds that the server spends on it."""
    def spent():
        with open(f"/proc/{server.process.pid}/stat") as f:
            fields = f.read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    before = spent()
    for _ in range(rounds):
        answer = call()
    return answer, (spent() - before) / rounds


def test_a_thousand_models_are_listed_and_scraped_quickly(serve):
    for i in range(1000):
        add_model(serve.repository, f"m{i}", identity())
    server = serve()
    for i in range(1000):
        assert server.infer(f"m{i}", [1])[0] == 200
    # The bounds hold for the server's own time, which other work on the machine does not stretch.
    index, listed = cost(server, lambda: server.json("/v2/repository/index", b"", "POST")[1])
    text, scraped = cost(server, lambda: server.request("/metrics", base=server.metrics)[2])
    assert len(index) == 1000 and text.count(b"nv_inference_count{") == 1000
    assert listed < 0.2 and scraped < 0.1, (listed, scraped)
