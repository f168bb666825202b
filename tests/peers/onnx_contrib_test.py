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

from contrib_cases import CASES, ML_CASES, model_of, real  # noqa: E402


def write_case(folder, op, *case, results=None):
    model, feeds = model_of(op, *case)
    atol = case[3]
    if results is None:
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


def all_pass(folder, count):
    tool = pathlib.Path(os.environ["PELTON_BINARY_DIR"]) / "conform_reference"
    done = subprocess.run([tool, folder], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == f"{count} passed, 0 failed, 0 skipped", done.stdout


def test_contrib_ops_agree_with_onnx_runtime(tmp_path):
    for i, case in enumerate(CASES + ML_CASES):
        write_case(tmp_path / f"{i:02}_{case[0]}", *case)
    all_pass(tmp_path, len(CASES + ML_CASES))


def test_packed_attention_is_that_of_its_parts(tmp_path):
    """ONNX Runtime takes packed queries, keys and values on GPUs alone: its results of the parts are those expected."""
    packed, pair = real(2, 4, 2, 3, 4), real(2, 6, 2, 2, 4)
    query, keys, values = (packed[:, :, :, i].reshape(2, 4, 8) for i in range(3))
    heads = {"num_heads": 2}
    for name, given, parts in (("all", [packed], [query, keys, values]),
                               ("pair", [query, pair], [query, *(pair[:, :, :, i].reshape(2, 6, 8) for i in range(2))])):
        model, feeds = model_of("MultiHeadAttention", parts, heads, 1, 1e-5)
        results = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        write_case(tmp_path / name, "MultiHeadAttention", given, heads, 1, 1e-5, results=results)
    all_pass(tmp_path, 2)
