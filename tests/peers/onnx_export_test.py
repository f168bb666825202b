# SPDX-License-Identifier: Apache-2.0
"""Graphs written as ONNX pass onnx.checker, and ONNX Runtime computes the stored results from them."""
import os
import pathlib
import subprocess
import sys

import pytest

np = pytest.importorskip("numpy", reason="numpy is absent")
onnx = pytest.importorskip("onnx", reason="the onnx package is absent")
ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is absent")

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPS = ["Add", "Softmax", "Conv", "MaxPool", "LayerNormalization", "Gemm", "ReduceMean", "Slice", "Concat", "Gather",
       "Transpose", "Where", "TopK", "QuantizeLinear", "Pad"]


def load(path):
    return onnx.numpy_helper.to_array(onnx.load_tensor(path))


def test_exported_models_run_elsewhere(tmp_path):
    tool = pathlib.Path(os.environ["PELTON_BINARY_DIR"]) / "conform_reference"
    cases, out = tmp_path / "cases", tmp_path / "out"
    out.mkdir()
    made = subprocess.run([sys.executable, "tools/random_models.py", cases, "--seed", "3", "--count", "3", "--op", *OPS],
                          cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run([tool, "--export", out, cases], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == f"{3 * len(OPS)} passed, 0 failed, 0 skipped", done.stdout
    for path in sorted(out.glob("*.onnx")):
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        data = cases / path.stem / "test_data_set_0"
        feeds = {i.name: load(data / f"input_{k}.pb") for k, i in enumerate(model.graph.input)}
        results = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
        for k, got in enumerate(results):
            np.testing.assert_allclose(got, load(data / f"output_{k}.pb"), rtol=1e-3, atol=1e-5, err_msg=path.stem)
