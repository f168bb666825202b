# SPDX-License-Identifier: Apache-2.0
"""Python models that say, print and answer what nobody expects, or do not end: only their own requests notice."""
import os
import signal
import sys
import threading
import time

import pytest
from conftest import add_model
from python_engine_test import INT_IO, start
from waiting import until, until_taken


ODD = '''
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        ok = pb_utils.Tensor("OUTPUT0", np.array([7], np.int32))
        out = []
        for r in requests:
            kind = int(r.inputs()[0].as_numpy()[0])
            if kind == 1:
                raise ValueError("no file \\udcff")
            if kind == 2:
                pb_utils.Logger.log_error("a\\x1b[2Jb\\npelton: error: forged \\udcff")
            out.append({3: lambda: pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([7.0]))]),
                        4: lambda: pb_utils.InferenceResponse(error=pb_utils.TritonError("bad \\udcff", pb_utils.TritonError.NOT_FOUND)),
                        5: lambda: pb_utils.InferenceResponse([ok], parameters={"p": float("nan")}),
                        6: lambda: pb_utils.InferenceResponse([ok], parameters={"p": [1]}),
                        7: lambda: pb_utils.InferenceResponse([ok], parameters={"p": "\\udcff"})}
                       .get(kind, lambda: pb_utils.InferenceResponse([ok]))())
        return out
'''


def test_odd_texts_and_answers_of_a_model_end_no_process(serve):
    """Texts that are no UTF-8, numbers that JSON lacks, outputs of another type: an error of that request, the model's own."""
    add_model(serve.repository, "odd", INT_IO, files={"1/model.py": ODD})
    server = start(serve)
    def ask(kind):
        status, answer = server.infer("odd", [kind], "INT32")
        return status, answer.get("error", answer.get("outputs"))
    for kind, status, words in ((1, 500, "ValueError: no file ?"), (3, 500, "'OUTPUT0' is FP64, the configuration says INT32"),
                                (4, 404, "bad ?"), (5, 500, "not JSON compliant"),
                                (6, 500, "parameter 'p' is neither a boolean, a number nor a string")):
        got, text = ask(kind)
        assert got == status and words in text, (kind, got, text)
    for kind in (0, 2, 7):
        assert ask(kind)[0] == 200
    code, err = server.stop()
    assert "ended with" not in err                     # one process all the while
    assert "odd: a\\x1b[2Jb\n  pelton: error: forged ?" in err


HANGS = '''
import os
import time

class TritonPythonModel:
    def execute(self, requests):
        with open(os.environ["HANG_PID"], "w") as f:
            f.write(str(os.getpid()))
        time.sleep(600)
'''


def test_the_end_of_the_server_is_the_end_of_a_model_that_hangs(serve, tmp_path, monkeypatch):
    pid = tmp_path / "pid"
    monkeypatch.setenv("HANG_PID", str(pid))
    add_model(serve.repository, "hangs", INT_IO, files={"1/model.py": HANGS})
    server = start(serve, "--exit-timeout-secs=1")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(server.infer("hangs", [1], "INT32")))
    thread.start()
    until(lambda: pid.exists() and pid.read_text())
    began = time.time()
    status, _ = server.stop()
    thread.join()
    assert status == 128 + 15 and time.time() - began < 20
    assert answers[0][0] == 500 and "ended with signal 9" in answers[0][1]["error"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


NOISY = '''
import os
import sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        print("hello from the model", file=sys.stderr, flush=True)
        os.write(1, b"x" * 200000 + b"\\n")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]
'''


def test_a_model_may_print_what_nobody_reads(serve):
    add_model(serve.repository, "noisy", INT_IO, files={"1/model.py": NOISY})
    server = start(serve)
    for i in range(20):                                             # 4 MB into a pipe that nobody reads
        assert server.infer("noisy", [i], "INT32")[1]["outputs"][0]["data"] == [i]
    _, err = server.stop()
    assert "pelton: info: noisy: hello from the model\n" in err      # at a level that is off, and shown all the same


SLOW_START = '''
import os
import pathlib
import time

class TritonPythonModel:
    def initialize(self, args):
        pathlib.Path(__file__).with_name("pid").write_text(str(os.getpid()))
        time.sleep(600)

    def execute(self, requests):
        pass
'''


def is_gone(pid):
    """Ended, whoever reads its status."""
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGTERM, signal.SIGTERM], [signal.SIGKILL]], ids=["once", "twice", "kill"])
def test_a_signal_is_heard_while_models_load(serve, signals):
    """A stop ends a model that takes for ever to start; a server that is gone leaves no process behind."""
    folder = add_model(serve.repository, "slow", INT_IO, files={"1/model.py": SLOW_START})
    server = serve(f"--python-executable={sys.executable}", "--exit-timeout-secs=1", "--log-info=true", expect_ready=False)
    until(lambda: (folder / "1" / "pid").exists() and (folder / "1" / "pid").read_text())
    pid = int((folder / "1" / "pid").read_text())
    for s in signals[:-1]:
        server.process.send_signal(s)
        until_taken(server.process, s)
    server.process.send_signal(signals[-1])
    begun = time.time()
    _, err = server.process.communicate(timeout=30)
    assert time.time() - begun < 8
    if len(signals) == 1 and signals[0] == signal.SIGTERM:
        assert server.process.returncode == 128 + signal.SIGTERM and "signal 15 while models load" in err
    else:
        assert server.process.returncode == -signals[0]
    until(lambda: is_gone(pid))
