# SPDX-License-Identifier: Apache-2.0
"""The first steps of docs/serving.md do what stands there, line by line."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import Server, binary

pytest.importorskip("tritonclient.http")
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "serving.md"
SERVE = "pelton serve --model-repository models\n"


def blocks():
    section = PAGE.read_text().split("## First steps\n")[1].split("\n## ")[0]
    return re.findall(r"```(\w+)\n(.*?)```", section, re.S)


def run(command, text, folder, ports=None):
    for published, real in (ports or {}).items():
        assert published in text, f"{published} is not among the lines"
        text = text.replace(published, real)
    path = f"{pathlib.Path(binary()).parent}:{os.environ['PATH']}"
    done = subprocess.run([*command, text], cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_first_steps(tmp_path):
    (_, begin), (_, ask), (language, client) = blocks()
    assert begin.endswith(SERVE) and language == "python"
    run(["sh", "-ec"], begin.removesuffix(SERVE), tmp_path)
    server = Server(tmp_path / "models")
    try:
        said = run(["sh", "-ec"], ask, tmp_path, {"localhost:8000": server.http, "localhost:8002": server.metrics})
        assert '"name":"features"' in said and "p99 us" in said
        assert re.search(r'nv_inference_count\{model="net",version="1"\} [1-9]', said), said
        assert run([sys.executable, "-c"], client, tmp_path, {"localhost:8000": server.http}).strip() == "(2, 10)"
    finally:
        server.stop()
