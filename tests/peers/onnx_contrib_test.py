# SPDX-License-Identifier: Apache-2.0
"""com.microsoft ops against ONNX Runtime, which defines them, and ops of ai.onnx.ml that the conformance cases lack:
one-op models with its results as conformance cases."""
import os
import pathlib
import subprocess

import pytest

pytest.importorskip("numpy", reason="numpy is absent")
onnx = pytest.importorskip("onnx", reason="the onnx package is absent")
ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is absent")
from onnx import helper, numpy_helper  # noqa: E402

from contrib_cases import CASES, ML_CASES, model_of  # noqa: E402


def write_case(folder, op, *case):
    model, feeds = model_of(op, *case)
    atol = case[3]
    results = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for slot, value in zip(model.graph.output, results):
        slot.CopyFrom(helper.make_tensor_value_info(slot.name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "data.json").write_text(f'{{"rtol": 0.001, "atol": {atol}}}')
    for what, values in (("input", feeds.values()), ("output", results)):
        for k, value in enumerate(values):
            (data / f"{what}_{k}.pb").write_bytes(numpy_helper.from_array(value).SerializeToString())


def test_contrib_ops_agree_with_onnx_runtime(tmp_path):
    tool = pathlib.Path(os.environ["PELTON_BINARY_DIR"]) / "conform_reference"
    for i, case in enumerate(CASES + ML_CASES):
        write_case(tmp_path / f"{i:02}_{case[0]}", *case)
    done = subprocess.run([tool, tmp_path], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == f"{len(CASES + ML_CASES)} passed, 0 failed, 0 skipped", done.stdout
