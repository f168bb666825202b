# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: loaded only by --plugin, kept in plans by name, refused by name when they do not fit."""
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from conftest import BINARY, ROOT, assert_error

PLUGIN = BINARY.parent / "example_clip_norm.so"
KINDS = BINARY.parent / "example_kinds.so"

MODEL = """graph "m"(%x: f32[N,3]) {
  symbol N in [1, 100]
  %0 = custom(%x) {attributes = "{\\"limit\\": 2}", domain = "example", name = "clip_norm"} : f32[N,3]
  %1 = neg(%0) : f32[N,3]
  return %1 @"y"
}
"""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "m.plt").write_text(MODEL)
    x = np.array([[3, 4, 0], [0.5, 0, 0]], np.float32)
    np.save(tmp_path / "x.npy", x)
    return -np.array([[1.2, 1.6, 0], [0.5, 0, 0]], np.float32)


def test_custom_op_runs_from_model_and_plan(pelton, model, tmp_path):
    run = ("--input", "x=x.npy", "--output-dir", "out", "--plugin", PLUGIN)
    assert pelton("compile", "m.plt", "-o", "m.pelton", "--plugin", PLUGIN).code == 0
    for file in ("m.plt", "m.pelton"):
        result = pelton("run", file, *run)
        assert result.code == 0, result.err
        np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), model, rtol=1e-6)
    support = pelton("inspect", "m.pelton", "--support", "--json", "--plugin", PLUGIN).json()["support"]
    assert [s["implementation"] for s in support if s["op"] == "custom"] == ["plugin"]


def test_a_plan_names_its_op_but_never_loads_it(pelton, model):
    assert pelton("compile", "m.plt", "-o", "m.pelton", "--plugin", PLUGIN).code == 0
    for file in ("m.plt", "m.pelton"):
        assert_error(pelton("run", file, "--input", "x=x.npy"), 1, "example::clip_norm version 1", "--plugin")


def build(tmp_path, old, new, name="clip_norm"):
    source = (ROOT / f"examples/custom_op/{name}.c").read_text()
    assert old in source
    (tmp_path / "p.c").write_text(source.replace(old, new))
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{ROOT}/include", "p.c", "-lm", "-o", "p.so"], cwd=tmp_path, check=True)
    return tmp_path / "p.so"


def test_plugins_that_do_not_fit(pelton, model, tmp_path):
    doctor = lambda file: pelton("doctor", "--plugin", file)
    assert_error(doctor("absent.so"), 1, "absent.so", "cannot be loaded")
    (tmp_path / "text.so").write_text("no library")
    assert_error(doctor("text.so"), 1, "text.so", "cannot be loaded")
    assert_error(doctor(build(tmp_path, "pelton_plugin_table(void)", "another_table(void)")), 1, "no pelton_plugin_table")
    for abi in (1, 7):  # older and newer
        assert_error(doctor(build(tmp_path, "PELTON_PLUGIN_ABI, ", f"{abi}, ")), 1, "'clip_norm'", f"ABI {abi}", "host has 2")
    assert_error(doctor(build(tmp_path, ".infer = infer,", ".infer = infer, .flags = 64,")), 1, "example::clip_norm", "flags")
    assert doctor(PLUGIN).code == 0


@pytest.mark.parametrize("old, new, words", [
    (".flags = PELTON_OP_EFFECTS", ".flags = PELTON_OP_EFFECTS, .gradient = \"x\"", ["example::run_number", "has effects"]),
    ("\"example.neg\"", "\"neg\"", ["'neg'", "no dot"]),
    (".op = \"neg\"", ".op = \"negg\"", ["'example.neg'", "'negg'", "no op"]),
    (".op = \"neg\"", ".op = \"if\"", ["'example.neg'", "'if'", "no op that takes kernels"]),
    (".op = \"neg\"", ".op = \"example::other\"", ["'example.neg'", "example::other", "nothing provides"]),
    (".device = \"cpu\"", ".device = \"tpu\"", ["'example.neg'", "'tpu'"]),
    (".run = run_neg", ".run = NULL", ["implementation 0", "kernel"]),
])
def test_tables_that_do_not_fit(pelton, tmp_path, old, new, words):
    assert_error(pelton("doctor", "--plugin", build(tmp_path, old, new, "kinds")), 1, *words)


def onnx_model(tmp_path, nodes, outputs=("y",), inputs=()):
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3])
    graph = helper.make_graph(nodes, "m", [info("x"), *inputs], [info(o) for o in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("example", 1)])
    onnx.save(model, tmp_path / "m.onnx")
    x = np.array([[3, 4, 0], [-0.5, 0, 1]], np.float32)
    np.save(tmp_path / "x.npy", x)
    return x


def test_custom_ops_of_onnx_models(pelton, tmp_path):
    x = onnx_model(tmp_path, [helper.make_node("Neg", ["x"], ["a"]),
                              helper.make_node("scale_shift", ["a"], ["y"], domain="example", scale=2.0, shift=0.5)])
    run = ("--input", "x=x.npy", "--output-dir", "out", "--plugin", KINDS)
    expected = -x * 2 + 0.5
    assert pelton("compile", "m.onnx", "-o", "m.pelton", "--plugin", KINDS).code == 0
    assert pelton("export", "m.onnx", "-o", "back.onnx", "--plugin", KINDS).code == 0
    back = onnx.load(tmp_path / "back.onnx")
    assert ("example", 1) in [(o.domain, o.version) for o in back.opset_import]
    assert ("example", "scale_shift") in [(n.domain, n.op_type) for n in back.graph.node]
    for file in ("m.onnx", "m.pelton", "back.onnx"):
        result = pelton("run", file, *run)
        assert result.code == 0, result.err
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), expected)
    assert pelton("verify", "m.onnx", "--shape", "x=4x3", "--plugin", KINDS).code == 0
    assert_error(pelton("run", "m.onnx", "--input", "x=x.npy"), 1, "'scale_shift'", "'example'", "plug-in")
    onnx_model(tmp_path, [helper.make_node("scale_shift", ["x"], ["y"], domain="example", scale=helper.make_tensor(
        "t", TensorProto.FLOAT, [1], [2.0]))])
    assert_error(pelton("run", "m.onnx", *run), 1, "scale_shift", "'scale'", "make a tensor an input")


def test_effects_of_onnx_models_are_kept_and_ordered(pelton, tmp_path):
    count = lambda i, o: helper.make_node("run_number", [i], [o], domain="example")
    onnx_model(tmp_path, [count("x", "unread"), count("x", "y")])
    text = pelton("inspect", "m.onnx", "--graph", "--plugin", KINDS).out
    assert text.count("run_number") == 2 and text.count("= token()") == 1
    assert pelton("compile", "m.onnx", "-o", "m.pelton", "--plugin", KINDS).code == 0
    assert pelton("inspect", "m.pelton", "--graph", "--plugin", KINDS).out.count("run_number") == 2
    branches = {f"{b}_branch": helper.make_graph([count("x", "r")], b, [], [helper.make_tensor_value_info(
        "r", TensorProto.FLOAT, None)]) for b in ("then", "else")}
    onnx_model(tmp_path, [helper.make_node("Neg", ["x"], ["z"]), helper.make_node("If", ["c"], ["y"], **branches)],
               inputs=[helper.make_tensor_value_info("c", TensorProto.BOOL, [1])])
    assert_error(pelton("inspect", "m.onnx", "--plugin", KINDS), 1, "run_number", "cannot stand in a branch or loop")


def test_an_implementation_of_a_built_in_op(pelton, tmp_path):
    x = onnx_model(tmp_path, [helper.make_node("Neg", ["x"], ["y"])])
    flags = ("--plugin", KINDS, "--device", "cpu")
    report = pelton("inspect", "m.onnx", "--support", "--json", *flags).json()["support"]
    assert [s["implementation"] for s in report if s["op"] == "neg"] == ["example.neg"]
    assert pelton("compile", "m.onnx", "-o", "m.pelton", *flags).code == 0
    run = ("run", "m.pelton", "--input", "x=x.npy", "--output-dir", "out", "--device", "cpu", "-v")
    assert "example.neg" not in pelton(*run, "--plugin", KINDS).err
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), -x)
    without = pelton(*run)  # the plan runs on what there is, and says so
    assert without.code == 0 and "example.neg is not in this build" in without.err
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), -x)


def test_a_plugin_says_why_it_refuses(pelton, model, tmp_path):
    (tmp_path / "i.plt").write_text(MODEL.replace("f32", "i32"))
    report = pelton("inspect", "i.plt", "--support", "--json", "--plugin", PLUGIN).json()["support"]
    refusals = [r for s in report if s["op"] == "custom" for r in s["refusals"]]
    assert refusals == [{"implementation": "plugin", "reason": "needs f32"}]
    (tmp_path / "s.plt").write_text(MODEL.replace("[N,3]", "[]"))
    assert_error(pelton("inspect", "s.plt", "--plugin", PLUGIN), 1, "clip_norm", "rank 1 or more")
