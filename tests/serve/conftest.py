# SPDX-License-Identifier: Apache-2.0
"""Starts the real server on loopback for a test and stops it after."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from waiting import until  # noqa: E402

IDENTITY = """
backend: "identity"
input [ {{ name: "INPUT0" data_type: {type} dims: [ {dims} ] }} ]
output [ {{ name: "OUTPUT0" data_type: {type} dims: [ {dims} ] }} ]
{more}
"""


def identity(dtype="TYPE_FP32", dims="-1", more=""):
    return IDENTITY.format(type=dtype, dims=dims, more=more)


def add_model(repository: pathlib.Path, name: str, config: str | None, versions=(1,), files=None) -> pathlib.Path:
    folder = repository / name
    for v in versions:
        (folder / str(v)).mkdir(parents=True, exist_ok=True)
    if config is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.pbtxt").write_text(textwrap.dedent(config))
    for path, content in (files or {}).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def binary() -> str:
    return str(pathlib.Path(os.environ["PELTON_BINARY_DIR"]).resolve() / "pelton")


class Server:
    """A running server. `http`, `grpc` and `metrics` are its addresses as host:port."""

    def __init__(self, repository, *flags, expect_ready=True):
        ports = [f"--{p}-port=0" for p in ("http", "grpc", "metrics") if not any(f.startswith(f"--{p}-port") for f in flags)]
        self.command = [binary(), "serve", "--model-repository", str(repository), *ports, *flags]
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.http = self.grpc = self.metrics = None
        if not expect_ready:
            return
        line = self.process.stdout.readline().split()
        if line[:1] != ["ready:"]:
            raise AssertionError(f"no ready line: {line} {self.process.stderr.read()}")
        for name, address in zip(line[1::2], line[2::2]):
            setattr(self, name, address)

    @property
    def port(self):
        return int(self.http.rsplit(":", 1)[1])

    def request(self, path, body=None, method=None, headers=None, base=None):
        """Status, headers and body, whatever the status is."""
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        request = urllib.request.Request(f"http://{base or self.http}{path}", data=data, headers=headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def json(self, path, body=None, method=None):
        status, _, text = self.request(path, body, method)
        return status, json.loads(text) if text else None

    def infer(self, model, values, dtype="FP32", shape=None, **more):
        tensor = {"name": "INPUT0", "datatype": dtype, "shape": shape or [len(values)], "data": values}
        return self.json(f"/v2/models/{model}/infer", {"inputs": [tensor], **more})

    def metric(self, start):
        """Value of the one metrics line that starts with `start`."""
        lines = [l for l in self.request("/metrics", base=self.metrics)[2].decode().splitlines() if l.startswith(start)]
        assert len(lines) == 1, lines
        return float(lines[0].rsplit(" ", 1)[1])

    def stats(self, model):
        return self.json(f"/v2/models/{model}/stats")[1]["model_stats"][0]["inference_stats"]

    def waiting(self, model):
        """Requests of the model that are accepted and not executed yet. Its metrics begin with the first answer."""
        return self.metric(f'nv_inference_pending_request_count{{model="{model}",version="1"')

    def until_waiting(self, model, count):
        """Until so many wait behind those that run, for longer than a thread takes to begin."""
        until(lambda: self.waiting(model) == count and (time.sleep(0.2) or self.waiting(model) == count))

    def stop(self, sig=signal.SIGTERM):
        """Ends the server; its exit status and standard error."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


@pytest.fixture
def serve(tmp_path):
    """serve(flags...) on the repository folder serve.repository."""
    running = []

    def start(*flags, **options):
        server = Server(start.repository, *flags, **options)
        running.append(server)
        return server

    start.repository = tmp_path / "models"
    start.repository.mkdir()
    yield start
    for server in running:
        if server.process.poll() is None:
            status, err = server.stop()
            assert status == 128 + signal.SIGTERM, f"exit {status}: {err}"
