# SPDX-License-Identifier: Apache-2.0
"""Runs the built `pelton` on a model that the tests share."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
BINARY = pathlib.Path(os.environ.get("PELTON_BINARY_DIR", ROOT / "build/cpu-release")).resolve() / "pelton"
INPUTS = ("--input", "x=x.npy", "--input", "b=b.npy")

CHAIN = """graph "chain"(%x: f32[N,4], %b: f32[4]) {
  symbol N in [0, 1000]
  %w = constant() {value = tensor<f32[4]>{1, 2, 3, 4}} : f32[4]
  %0 = add(%x, %b) : f32[N,4]
  %1 = neg(%0) : f32[N,4] @"layer/neg"
  %2 = mul(%1, %w) : f32[N,4]
  return %2 @"y:0", %1 @"z"
}
"""


class Result:
    def __init__(self, process):
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr

    def json(self):
        """The one object on standard output."""
        lines = self.out.splitlines()
        assert len(lines) == 1, self.out + self.err
        return json.loads(lines[0])


def assert_error(result, code, *words):
    assert result.code == code, result.err
    errors = [line for line in result.err.splitlines() if line.startswith("pelton: error: ")]
    assert len(errors) == 1, result.err
    for word in words:
        assert word in errors[0], errors[0]


@pytest.fixture
def pelton(tmp_path):
    def run(*args, env=None):
        process = subprocess.run([str(BINARY), *map(str, args)], capture_output=True, text=True, errors="replace", cwd=tmp_path,
                                 env={**os.environ, **(env or {})}, timeout=300)
        assert process.returncode >= 0, f"ended by signal {-process.returncode}\n{process.stderr}"
        return Result(process)
    return run


@pytest.fixture
def chain(tmp_path):
    """Writes an IR text model and its inputs; returns its results by file name."""
    (tmp_path / "chain.plt").write_text(CHAIN)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    b = np.array([1, 2, 3, 4], dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "b.npy", b)
    z = -(x + b)
    return {"y_0": z * np.array([1, 2, 3, 4], dtype=np.float32), "z": z}
