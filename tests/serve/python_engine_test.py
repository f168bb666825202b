# SPDX-License-Identifier: Apache-2.0
"""Backend python: model.py files as they are written for other servers, in processes that may crash."""
import json
import os
import queue
import signal
import sys
import threading
import time

import numpy as np
import pytest
from conftest import add_model, identity
from waiting import until

REASON = "tritonclient is not installed"
http = pytest.importorskip("tritonclient.http", reason=REASON)
grpc = pytest.importorskip("tritonclient.grpc", reason=REASON)
from tritonclient.utils import InferenceServerException  # noqa: E402

ADD_SUB = '''
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.config = json.loads(args["model_config"])
        assert args["model_name"] == "add_sub" and args["model_version"] == "1" and args["model_instance_kind"] == "CPU"
        out = pb_utils.get_output_config_by_name(self.config, "SUM")
        self.dtype = pb_utils.triton_string_to_numpy(out["data_type"])

    def execute(self, requests):
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A")
            b = pb_utils.get_input_tensor_by_name(request, "B").as_numpy()
            if (b == 13).any():
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("thirteen", pb_utils.TritonError.INVALID_ARG)))
                continue
            if (b == 14).any():
                raise pb_utils.TritonModelException("fourteen")
            outputs = [pb_utils.Tensor("SUM", (a.as_numpy() + b).astype(self.dtype)), pb_utils.Tensor("DIFF", a.as_numpy() - b)]
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs, parameters={"rows": len(requests)}))
        return responses

    def finalize(self):
        open(self.config["parameters"]["bye"]["string_value"], "w").write("finalized")
'''
IO = """
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "SUM" data_type: TYPE_FP64 dims: [ -1 ] }, { name: "DIFF" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def start(serve, *flags):
    return serve(f"--python-executable={sys.executable}", *flags)


def tensors(module, **arrays):
    out = []
    for name, a in arrays.items():
        kind = {"f": "FP32", "i": "INT32", "O": "BYTES"}[a.dtype.kind]
        t = module.InferInput(name, list(a.shape), kind)
        t.set_data_from_numpy(a)
        out.append(t)
    return out


def f32(*values):
    return np.array([values], np.float32)


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_a_model_as_others_write_it(serve, tmp_path, module):
    bye = tmp_path / "bye"
    config = 'backend: "python" max_batch_size: 8 dynamic_batching { }' + IO + \
        'parameters { key: "bye" value { string_value: "%s" } }' % bye
    add_model(serve.repository, "add_sub", config, files={"1/model.py": ADD_SUB})
    server = start(serve, "--model-control-mode=explicit", "--load-model=*")
    client = module.InferenceServerClient(server.http if module is http else server.grpc)
    result = client.infer("add_sub", tensors(module, A=f32(1, 2, 3), B=f32(10, 20, 30)))
    assert result.as_numpy("SUM").dtype == np.float64 and result.as_numpy("SUM").tolist() == [[11, 22, 33]]
    assert result.as_numpy("DIFF").tolist() == [[-9, -18, -27]]
    only = client.infer("add_sub", tensors(module, A=f32(1), B=f32(2)), outputs=[module.InferRequestedOutput("DIFF")])
    assert only.as_numpy("SUM") is None and only.as_numpy("DIFF").tolist() == [[-1]]
    with pytest.raises(InferenceServerException, match="^.*thirteen"):
        client.infer("add_sub", tensors(module, A=f32(1), B=f32(13)))
    with pytest.raises(InferenceServerException, match="TritonModelException: fourteen"):
        client.infer("add_sub", tensors(module, A=f32(1), B=f32(14)))
    big = np.arange(100, 400_100, dtype=np.float32).reshape(1, -1)
    assert np.array_equal(client.infer("add_sub", tensors(module, A=big, B=big)).as_numpy("SUM"), big.astype(np.float64) * 2)
    client.unload_model("add_sub")
    until(lambda: bye.exists() and bye.read_text() == "finalized")


CRASH = '''
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for r in requests:
            v = pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy()
            if v[0] == -1:
                os.kill(os.getpid(), 9)
            if v[0] == -2:
                os._exit(3)
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([os.getpid()], np.int32))]))
        return out
'''
INT_IO = 'backend: "python" input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }'


def test_a_process_that_ends_takes_nobody_with_it(serve):
    add_model(serve.repository, "crash", INT_IO, files={"1/model.py": CRASH})
    add_model(serve.repository, "id", identity())
    server = start(serve)
    stop, lost = threading.Event(), []

    def other():
        while not stop.is_set():
            if server.infer("id", [1, 2])[1]["outputs"][0]["data"] != [1, 2]:
                lost.append(1)

    t = threading.Thread(target=other)
    t.start()
    pids = set()
    for how, words in ((-1, "ended with signal 9"), (-2, "ended with status 3")):
        pids.add(server.infer("crash", [1], "INT32")[1]["outputs"][0]["data"][0])
        status, answer = server.infer("crash", [how], "INT32")
        assert status == 500 and words in answer["error"] and "started again" in answer["error"]
        pids.add(server.infer("crash", [1], "INT32")[1]["outputs"][0]["data"][0])
    victim = pids.pop()
    assert len(pids) == 2
    stop.set()
    t.join()
    assert not lost
    for p in (*pids, victim):                                       # killed from outside between two requests
        try:
            os.kill(p, signal.SIGKILL)
        except ProcessLookupError:
            pass
    time.sleep(0.2)
    answers = [server.infer("crash", [1], "INT32")[0] for _ in range(2)]
    assert answers[1] == 200
    assert server.request("/v2/health/ready")[0] == 200


def children_of(pid):
    out = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat") as f:
                if int(f.read().rsplit(") ", 1)[1].split()[1]) == pid:
                    out.append(p)
        except OSError:
            pass                                                    # ended meanwhile
    return out


def test_the_processes_go_with_the_server(serve):
    add_model(serve.repository, "crash", INT_IO + " instance_group { count: 3 }", files={"1/model.py": CRASH})
    server = start(serve)
    children = children_of(server.process.pid)
    assert len(children) == 3
    server.stop()
    until(lambda: not any(os.path.exists(f"/proc/{c}") for c in children))


BLS = '''
import asyncio
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    async def execute(self, requests):
        out = []
        for r in requests:
            x = pb_utils.get_input_tensor_by_name(r, "INPUT0")
            ask = lambda name, v: pb_utils.InferenceRequest(model_name=name, requested_output_names=["OUTPUT0"],
                                                            inputs=[pb_utils.Tensor("INPUT0", v)])
            one = ask("double", x.as_numpy()).exec()
            two, three = await asyncio.gather(ask("double", pb_utils.get_output_tensor_by_name(one, "OUTPUT0").as_numpy()).async_exec(),
                                              ask("nowhere", x.as_numpy()).async_exec())
            assert three.has_error() and "unknown model" in three.error().message()
            assert pb_utils.is_model_ready("double") and not pb_utils.is_model_ready("nowhere")
            out.append(pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(two, "OUTPUT0")]))
        return out
'''
DOUBLE = '''
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily(name="doubled_total", description="values doubled", kind=pb_utils.MetricFamily.COUNTER)
        self.metric = family.Metric(labels={"model": args["model_name"]})
        pb_utils.Logger.log_warn("double is here")

    def execute(self, requests):
        self.metric.increment(len(requests))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy() * 2)]) for r in requests]
'''


def test_models_ask_models_and_keep_metrics(serve):
    add_model(serve.repository, "double", INT_IO, files={"1/model.py": DOUBLE})
    add_model(serve.repository, "asks", INT_IO, files={"1/model.py": BLS})
    server = start(serve)
    assert server.infer("asks", [5], "INT32")[1]["outputs"][0]["data"] == [20]
    assert server.metric('doubled_total{model="double"}') == 2
    assert server.metric('nv_inference_request_success{model="double",version="1"}') == 2
    _, err = server.stop()
    assert "double: double is here" in err


DECOUPLED = '''
import threading
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.running = 0

    def execute(self, requests):
        for r in requests:
            threading.Thread(target=self.answer, args=(r, r.get_response_sender())).start()

    def answer(self, request, sender):
        n = int(request.inputs()[0].as_numpy()[0])
        if n == -1:
            import os
            os._exit(7)
        if n == -2:
            while not sender.is_cancelled():
                time.sleep(0.01)
            pb_utils.MetricFamily("stopped_total", "seen", pb_utils.MetricFamily.COUNTER).Metric().increment(1)
            return sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("cancelled", pb_utils.TritonError.CANCELLED)), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        for i in range(n):
            time.sleep(0.01)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([i], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''


def test_decoupled_senders(serve):
    add_model(serve.repository, "many", INT_IO + " model_transaction_policy { decoupled: true }", files={"1/model.py": DECOUPLED})
    server = start(serve)
    client = grpc.InferenceServerClient(server.grpc)
    got = queue.Queue()
    client.start_stream(lambda result, error: got.put((result, error)))
    for n in (4, 0, 3):
        client.async_stream_infer("many", tensors(grpc, INPUT0=np.array([n], np.int32)), request_id=str(n), enable_empty_final_response=True)
    seen = {"4": [], "0": [], "3": []}
    finals = 0
    while finals < 3:
        result, error = got.get(timeout=30)
        assert error is None
        answer = result.get_response()
        if answer.parameters["triton_final_response"].bool_param:
            finals += 1
            assert not answer.outputs
        else:
            seen[answer.id].append(int(result.as_numpy("OUTPUT0")[0]))
    assert seen == {"4": [0, 1, 2, 3], "0": [], "3": [0, 1, 2]}
    stats = client.get_inference_statistics("many", as_json=True)["model_stats"][0]["inference_stats"]
    stages = {name: int(stats[name]["ns"]) for name in ("queue", "compute_input", "compute_infer", "compute_output")}
    assert {stats[name]["count"] for name in stages} == {"3"} and min(stages.values()) > 0, stats
    assert stages["compute_infer"] >= 70e6 and sum(stages.values()) <= int(stats["success"]["ns"])    # it sleeps 7 x 10 ms
    client.async_stream_infer("many", tensors(grpc, INPUT0=np.array([-1], np.int32)), request_id="crash")
    result, error = got.get(timeout=30)
    assert "ended with status 7" in str(error)
    client.async_stream_infer("many", tensors(grpc, INPUT0=np.array([1], np.int32)), request_id="again")
    result, error = got.get(timeout=30)
    assert error is None and result.as_numpy("OUTPUT0").tolist() == [0]
    client.async_stream_infer("many", tensors(grpc, INPUT0=np.array([-2], np.int32)))
    time.sleep(0.2)
    client.stop_stream(cancel_requests=True)
    until(lambda: "stopped_total 1" in server.request("/metrics", base=server.metrics)[2].decode())
    text = server.request("/v2/models/many/generate_stream", {"INPUT0": 3})[2].decode()
    assert [json.loads(p[6:])["OUTPUT0"] for p in text.strip().split("\n\n")] == [0, 1, 2]


COMPLETE = '''
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "INPUT0", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "OUTPUT0", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        return config

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())]) for r in requests]
'''


def test_a_config_that_the_model_completes(serve):
    add_model(serve.repository, "free", None, files={"1/model.py": COMPLETE})
    server = start(serve)
    config = server.json("/v2/models/free/config")[1]
    assert config["max_batch_size"] == 4 and config["input"][0]["data_type"] == "TYPE_STRING" and "dynamic_batching" in config
    values = np.array([["ü".encode()], [b""], [b"a\x00b"]], dtype=object)
    client = http.InferenceServerClient(server.http)
    assert client.infer("free", tensors(http, INPUT0=values)).as_numpy("OUTPUT0").tolist() == values.tolist()


def test_what_is_wrong_with_a_model_is_said(serve):
    bad = {"syntax": ("def execute(", "SyntaxError"), "noclass": ("x = 1", "has no class TritonPythonModel"),
           "init": ("class TritonPythonModel:\n  def initialize(self, args):\n    raise ValueError('no weights')", "ValueError: no weights"),
           "dies": ("import os\nos._exit(4)", "ended with status 4")}
    for name, (text, _) in bad.items():
        add_model(serve.repository, name, INT_IO, files={"1/model.py": text})
    add_model(serve.repository, "short", INT_IO, files={"1/model.py": "class TritonPythonModel:\n  def execute(self, requests):\n    return []"})
    server = start(serve, "--exit-on-error=false", "--model-control-mode=explicit", "--allow-model-upload", "--load-model=*")
    for name, (_, words) in bad.items():
        status, answer = server.infer(name, [1], "INT32")
        assert status == 404 and words in answer["error"]
    assert "returned 0 responses for 1 requests" in server.infer("short", [1], "INT32")[1]["error"]
    # A load request decides nothing about what code runs.
    config = {"backend": "python", "default_model_filename": "notes.txt",
              "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}], "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}]}
    load = "/v2/repository/models/short/load"
    for parameters in ({"config": json.dumps(config)},
                       {"config": json.dumps(config | {"default_model_filename": "", "parameters": {"EXECUTION_ENV_PATH": {"string_value": "/tmp"}}})},
                       {"config": json.dumps(config), "file:1/notes.txt": "eA=="}):
        status, answer = server.json(load, {"parameters": parameters})
        assert status == 400 and "a load request may not" in answer["error"], answer
    status, answer = server.json("/v2/repository/models/fresh/load", {"parameters": {"config": json.dumps(config), "file:1/notes.txt": "eA=="}})
    assert status == 400 and "a load request may not" in answer["error"]
    plain = {k: v for k, v in config.items() if k != "default_model_filename"}
    assert server.json(load, {"parameters": {"config": json.dumps(plain)}})[0] == 200


RECURSE = '''
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for r in requests:
            n = int(pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy()[0])
            if n > 0:
                inner = pb_utils.InferenceRequest(model_name=self.other, requested_output_names=["OUTPUT0"],
                                                  inputs=[pb_utils.Tensor("INPUT0", np.array([n - 1], np.int32))]).exec()
                if inner.has_error():
                    out.append(pb_utils.InferenceResponse(error=inner.error()))
                    continue
                n = int(pb_utils.get_output_tensor_by_name(inner, "OUTPUT0").as_numpy()[0]) + 1
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([n], np.int32))]))
        return out

    def initialize(self, args):
        self.other = "%s"
'''


def test_a_model_that_would_wait_for_itself_is_told_so(serve):
    """Calls in a circle: served while an instance is free, refused by name when the last one is held by those who wait."""
    add_model(serve.repository, "self", INT_IO, files={"1/model.py": RECURSE % "self"})
    add_model(serve.repository, "three", INT_IO + " instance_group { count: 3 }", files={"1/model.py": RECURSE % "three"})
    add_model(serve.repository, "ping", INT_IO, files={"1/model.py": RECURSE % "pong"})
    add_model(serve.repository, "pong", INT_IO, files={"1/model.py": RECURSE % "ping"})
    server = start(serve)
    ask = lambda model, n: server.infer(model, [n], "INT32")  # noqa: E731
    assert ask("self", 0)[1]["outputs"][0]["data"] == [0]
    status, answer = ask("self", 1)
    assert status == 503 and "a call of model 'self' would wait for ever" in answer["error"]
    assert ask("three", 2)[1]["outputs"][0]["data"] == [2]
    assert "would wait for ever: its 3 instances are held" in ask("three", 3)[1]["error"]
    assert ask("ping", 1)[1]["outputs"][0]["data"] == [1]
    assert "a call of model 'ping' would wait for ever" in ask("ping", 2)[1]["error"]
    # Circles that close from both sides, and ones that do not, all at once: everybody gets an answer.
    answers = []
    threads = [threading.Thread(target=lambda m=m: answers.extend(ask(m, n) for n in (0, 1, 2, 1, 0)))
               for m in ("ping", "pong", "three", "self", "ping", "three")]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(answers) == 30
    assert all(status == 200 or "would wait for ever" in answer["error"] for status, answer in answers)
    assert ask("ping", 1)[0] == ask("three", 2)[0] == 200


def test_a_crash_takes_one_request_of_many_along(serve):
    """Quick requests are in the process many at a time; those behind the fatal one go to its successor."""
    add_model(serve.repository, "crash", INT_IO, files={"1/model.py": CRASH})
    server = start(serve)
    client = grpc.InferenceServerClient(server.grpc)
    answers = queue.Queue()
    for _ in range(50):
        client.infer("crash", tensors(grpc, INPUT0=np.array([1], np.int32)))        # it is known to be quick
    kinds = [-1 if i in (40, 41, 90) else i for i in range(150)]
    for i, n in enumerate(kinds):
        client.async_infer("crash", tensors(grpc, INPUT0=np.array([n], np.int32)), request_id=str(i),
                           callback=lambda result, error, i=i: answers.put((i, result, error)))
    seen = {}
    for _ in kinds:
        i, result, error = answers.get(timeout=60)
        assert i not in seen
        seen[i] = error
    assert [i for i, error in seen.items() if error] and {i for i, error in seen.items() if error} == {40, 41, 90}
    assert all("ended with signal 9" in str(seen[i]) for i in (40, 41, 90))


BROKEN = '''
import json
import os
import struct
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        link, kind = pb_utils._link, int(requests[0].inputs()[0].as_numpy()[0])
        if kind == 1:                                               # a part of a frame
            link.ring.words[0] = link.ring.head + 8
            link.ring.wake()
            time.sleep(60)
        if kind == 2:                                               # an error that is no text
            more, now = json.dumps({"error": [5]}).encode(), time.monotonic_ns()
            head = struct.pack("<QIIQQ", link.ring.words[2], 1, 0, now, now) + struct.pack("<IIII", 0, len(more), 0, 0)
            link._send(*link.frame(2, head + more + bytes(-len(more) % 8), [])[0])
        if kind == 3:                                               # half a terabyte is to come
            link._send(struct.pack("<IIQ", 2, 16, 1 << 39), bytes(16))
            time.sleep(0.5)
            os._exit(3)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]
'''


def test_a_process_that_breaks_the_rules_is_answered_for(serve):
    add_model(serve.repository, "broken", INT_IO, files={"1/model.py": BROKEN})
    server = start(serve)
    for kind, words in ((1, "has damaged the memory"), (2, "type must be string"), (3, "ended with status 3")):
        begun = time.time()
        status, answer = server.infer("broken", [kind], "INT32")
        assert status >= 400 and words in answer["error"] and time.time() - begun < 30, answer
        assert server.infer("broken", [7], "INT32")[1]["outputs"][0]["data"] == [7]


    with open(f"/proc/{server.process.pid}/status") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmPeak"))
    assert peak < 64 << 20, "KiB: nothing is allocated for what a process only claims"


GROWING = '''
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.full(r.inputs()[0].as_numpy()[0], os.getpid(), np.int32))])
                for r in requests]
'''


def test_answers_of_processes_are_bounded(serve):
    """One that has no room costs its own request, neither the process nor others."""
    add_model(serve.repository, "growing", INT_IO, files={"1/model.py": GROWING})
    server = start(serve, "--max-inflight-bytes=8000000")
    pid = server.infer("growing", [1], "INT32")[1]["outputs"][0]["data"][0]
    status, answer = server.infer("growing", [4_000_000], "INT32")
    assert status == 503 and "as many bytes of answers as it may" in answer["error"]
    for n in (3, 100_000, 7):
        assert server.infer("growing", [n], "INT32")[1]["outputs"][0]["data"] == [pid] * n


NAMED = '''
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([self.name.encode()], object))]) for r in requests]
'''


def test_instances_carry_the_name_of_their_group(serve):
    io = INT_IO.replace('"OUTPUT0" data_type: TYPE_INT32', '"OUTPUT0" data_type: TYPE_STRING')
    add_model(serve.repository, "plain", io, files={"1/model.py": NAMED})
    add_model(serve.repository, "named", io + 'instance_group { name: "left" kind: KIND_CPU count: 1 }', files={"1/model.py": NAMED})
    server = start(serve)
    assert server.infer("plain", [1], "INT32")[1]["outputs"][0]["data"] == ["plain_0"]
    assert server.infer("named", [1], "INT32")[1]["outputs"][0]["data"] == ["left_0"]


def test_values_are_the_models_own_and_kept_when_it_keeps_them(serve):
    """Inputs of earlier requests stay as they were, though later ones came through the same socket."""
    keep = '''
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        out = []
        for r in requests:
            self.kept.append(r.inputs()[0].as_numpy())
            assert self.kept[-1].flags.aligned
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([sum(int(k.sum()) for k in self.kept)], np.int64))]))
        return out
'''
    add_model(serve.repository, "keep", 'backend: "python" input { name: "INPUT0" data_type: TYPE_INT32 dims: -1 } '
              'output { name: "OUTPUT0" data_type: TYPE_INT64 dims: 1 }', files={"1/model.py": keep})
    server = start(serve)
    client = http.InferenceServerClient(server.http)
    total = 0
    for i, size in enumerate((1, 3, 100_000, 7, 1_000_000, 2, 65_536, 16_384, 5)):
        total += i * size
        assert client.infer("keep", tensors(http, INPUT0=np.full(size, i, np.int32))).as_numpy("OUTPUT0")[0] == total


LOADS = '''
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        if "%s":
            pb_utils.load_model("%s")

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]
'''


def test_models_that_load_models_as_they_load(serve):
    """As many at once as the server has management threads: their own loads need others."""
    names = [f"m{i}" for i in range(4)]
    for name in names:
        add_model(serve.repository, name, INT_IO, files={"1/model.py": LOADS % ("leaf", "leaf")})
    add_model(serve.repository, "leaf", INT_IO, files={"1/model.py": LOADS % ("", "")})
    server = start(serve, "--model-control-mode=explicit")
    done = []
    threads = [threading.Thread(target=lambda n=n: done.append(server.json(f"/v2/repository/models/{n}/load", b"", "POST")[0])) for n in names]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert done == [200] * 4
    assert all(server.infer(n, [5], "INT32")[1]["outputs"][0]["data"] == [5] for n in (*names, "leaf"))


def test_cached_answers_hold_what_is_asked_for(serve):
    """A model may return what is asked for only; what is cached of it must not answer those who ask for more."""
    model = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(name, pb_utils.get_input_tensor_by_name(r, "A").as_numpy())
                                            for name in r.requested_output_names()]) for r in requests]
"""
    add_model(serve.repository, "m", """
        backend: "python"
        response_cache { enable: true }
        input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } ]
        output [ { name: "B" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "C" data_type: TYPE_FP32 dims: [ 2 ] } ]
        """, files={"1/model.py": model})
    server = start(serve, "--cache-config=local,size=1048576")
    tensor = {"name": "A", "datatype": "FP32", "shape": [2], "data": [1, 2]}
    for _ in range(2):
        for wanted in (["B"], ["C"], ["C", "B"], []):
            status, answer = server.json("/v2/models/m/infer", {"inputs": [tensor], "outputs": [{"name": n} for n in wanted]})
            assert status == 200, answer
            assert [t["name"] for t in answer["outputs"]] == (wanted or ["B", "C"])
    metrics = server.request("/metrics", base=server.metrics)[2].decode()
    assert 'nv_cache_num_hits_per_model{model="m",version="1"} 4' in metrics
