# SPDX-License-Identifier: Apache-2.0
"""ONNX models through the command line: compile, run, verify, conform; files that are damaged."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conftest import ROOT, assert_error

RNG = np.random.default_rng(5)
W1, W2 = (RNG.standard_normal(shape).astype(np.float32) for shape in ((8, 16), (16, 3)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mlp():
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"], name="fc1"), helper.make_node("Relu", ["h"], ["r"], name="act"),
             helper.make_node("MatMul", ["r", "w2"], ["l"], name="fc2"), helper.make_node("Softmax", ["l"], ["y"], name="sm")]
    graph = helper.make_graph(nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
                              [numpy_helper.from_array(W1, "w1"), numpy_helper.from_array(W2, "w2")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def model(tmp_path):
    (tmp_path / "mlp.onnx").write_bytes(mlp().SerializeToString())
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    return softmax(np.maximum(x @ W1, 0) @ W2)


def test_model_and_plan_agree_with_the_definition(pelton, model, tmp_path):
    assert pelton("compile", "mlp.onnx", "-o", "mlp.pelton").code == 0
    for file in ("mlp.onnx", "mlp.pelton"):
        assert pelton("run", file, "--input", "x=x.npy", "--output-dir", "out").code == 0
        np.testing.assert_allclose(np.load(tmp_path / "out/y.npy"), model, rtol=1e-4, atol=1e-6)
        report = pelton("verify", file, "--input", "x=x.npy", "--json").json()
        assert report["matches"] and report["alone"] and "y" in {v["value"] for v in report["cumulative"]}
        # Every value of the source has a row: its own, or the group it is inside.
        if file == "mlp.onnx":
            named = {v["value"] for v in report["cumulative"]} | {v["value"] for v in report["fused"]}
            assert {"h", "r", "l", "y"} <= named
    info = pelton("inspect", "mlp.onnx", "--json").json()
    assert info["format"] == "onnx" and info["parameters"] == W1.size + W2.size
    assert info["inputs"][0]["shape"] == ["N", 8]


def test_a_level_beside_the_border_of_two_is_no_difference(pelton, tmp_path):
    """Integers round what the source rounds in f32: a few values land a level apart, and a layer on more do."""
    nodes, values = [], {"s": np.float32(0.03), "z": np.uint8(128), "ws": np.float32(0.01), "wz": np.int8(0)}
    for i in range(3):
        values[f"w{i}"] = RNG.integers(-127, 128, (64, 64)).astype(np.int8)
        nodes += [helper.make_node("QuantizeLinear", [f"h{i}", "s", "z"], [f"q{i}"]),
                  helper.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"]),
                  helper.make_node("DequantizeLinear", [f"w{i}", "ws", "wz"], [f"f{i}"]),
                  helper.make_node("MatMul", [f"d{i}", f"f{i}"], [f"h{i + 1}"])]
    nodes.append(helper.make_node("QuantizeLinear", ["h3", "s", "z"], ["y"]))
    graph = helper.make_graph(nodes, "levels", [helper.make_tensor_value_info("h0", TensorProto.FLOAT, [64, 64])],
                              [helper.make_tensor_value_info("y", TensorProto.UINT8, [64, 64])],
                              [numpy_helper.from_array(np.asarray(v), k) for k, v in values.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "levels.onnx")
    report = pelton("verify", "levels.onnx", "--json").json()
    assert report["matches"] and all(v["max_rel_error"] <= 1e-4 for v in report["alone"])
    assert report["tolerance"] == {"alone": 1e-4, "cumulative": 1e-3, "behind_quantisation": 0.08}
    assert any(v["max_abs_error"] == 1 for v in report["cumulative"])
    assert pelton("verify", "levels.onnx", "--rtol", "1e-3").code == 1


def test_shapes(pelton, model):
    assert pelton("compile", "mlp.onnx", "--shape", "x=2x8", "-o", "fixed.pelton").code == 0
    assert_error(pelton("run", "fixed.pelton", "--input", "x=x.npy"), 1, "input 'x'", "expected size 2")
    assert pelton("compile", "mlp.onnx", "--shape", "x=1:4:8x8", "-o", "range.pelton").code == 0
    assert pelton("run", "range.pelton", "--input", "x=x.npy").code == 0
    assert_error(pelton("bench", "range.pelton", "--shape", "x=9x8", "--iterations", "10"), 1, "9", "range 1 to 8")
    assert pelton("bench", "range.pelton", "--batch", "3", "--iterations", "10", "--json").json()["shapes"] == {"x": [3, 8]}
    assert_error(pelton("compile", "mlp.onnx", "--shape", "q=1x8"), 1, "'q'", "x")


def test_sizes_computed_in_floats_from_a_shape(pelton, tmp_path):
    """The resize of torchvision's detectors: the run computes the sizes, --shape makes them known beforehand. Parts of a split likewise."""
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
             helper.make_node("Mul", ["f", "scale"], ["g"]), helper.make_node("Floor", ["g"], ["h"]),
             helper.make_node("Cast", ["h"], ["sizes"], to=TensorProto.INT64),
             helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], name="shrink", mode="nearest", nearest_mode="floor",
                              coordinate_transformation_mode="asymmetric"),
             helper.make_node("Split", ["x", "sizes"], ["first", "second"], axis=0)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "first", "second")]
    graph = helper.make_graph(nodes, "shrink", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["h", "w"])], values,
                              [numpy_helper.from_array(np.array([0.5, 0.25], np.float32), "scale")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "shrink.onnx")
    shape = ["--shape", "x=4x8"]
    assert pelton("compile", "shrink.onnx", *shape, "-o", "fixed.pelton").code == 0
    assert pelton("compile", "shrink.onnx", "-o", "open.pelton").code == 0
    assert pelton("compile", "shrink.onnx", "--shape", "x=1:4:9x8", "-o", "range.pelton").code == 0
    commands = [["fixed.pelton"], ["open.pelton"], ["range.pelton"], ["shrink.onnx"], ["shrink.onnx", *shape]]
    for h, w in ((4, 8), (8, 16)):
        x = np.arange(h * w, dtype=np.float32).reshape(h, w)
        np.save(tmp_path / "x.npy", x)
        for command in commands if h == 4 else commands[1:2]:
            result = pelton("run", *command, "--input", "x=x.npy", "--output-dir", "out")
            assert result.code == 0, result.err
            assert (np.load(tmp_path / "out/y.npy") == x[::2, ::4]).all()
            assert (np.load(tmp_path / "out/first.npy") == x[:h // 2]).all() and (np.load(tmp_path / "out/second.npy") == x[h // 2:]).all()
    assert pelton("inspect", "shrink.onnx", *shape).code == 0
    assert pelton("verify", "shrink.onnx", *shape).code == 0
    assert pelton("verify", "open.pelton", *shape).code == 0
    np.save(tmp_path / "x.npy", np.zeros((4, 16), np.float32))
    assert_error(pelton("run", "open.pelton", "--input", "x=x.npy"), 1, "slice")  # parts of 2 and 4 from 4 rows


def test_windows_larger_than_the_picture_of_a_run(pelton, tmp_path):
    """Found at fixed sizes by compile, at open ones by the run: kernels would yield no elements, and means of them numbers."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Conv", ["r", "w"], ["c"], name="reduce", strides=[4, 4]),
             helper.make_node("ReduceSum", ["c"], ["y"], keepdims=0)]
    graph = helper.make_graph(nodes, "windows", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, "h", "w_"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.ones((2, 1, 4, 4), np.float32), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "windows.onnx")
    np.save(tmp_path / "x.npy", np.ones((1, 1, 4, 8), np.float32))
    assert pelton("compile", "windows.onnx", "-o", "windows.pelton").code == 0
    assert pelton("run", "windows.pelton", "--input", "x=x.npy", "--output-dir", "out").code == 0
    assert np.load(tmp_path / "out/y.npy") == 64
    for size in (3, 1):
        np.save(tmp_path / "x.npy", np.ones((1, 1, 4, size), np.float32))
        assert_error(pelton("run", "windows.pelton", "--input", "x=x.npy"), 1, "reduce", f"a window of 4 does not fit into size {size}")
    assert_error(pelton("compile", "windows.onnx", "--shape", "x=1x1x4x3"), 1, "reduce", "window of 4")


def test_damaged_models(pelton, model, tmp_path):
    good = (tmp_path / "mlp.onnx").read_bytes()
    (tmp_path / "short.onnx").write_bytes(good[:len(good) // 2])
    assert_error(pelton("inspect", "short.onnx"), 1, "short.onnx")
    (tmp_path / "noise.onnx").write_bytes(bytes(RNG.integers(0, 256, 4096, dtype=np.uint8)))
    assert_error(pelton("inspect", "noise.onnx"), 1, "noise.onnx")
    bad = mlp()
    bad.graph.node[1].op_type = "Relux"
    (tmp_path / "op.onnx").write_bytes(bad.SerializeToString())
    assert_error(pelton("compile", "op.onnx"), 1, "op.onnx", "Relux")


def write_case(folder, wrong):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(mlp().SerializeToString())
    x = RNG.standard_normal((2, 8)).astype(np.float32)
    y = softmax(np.maximum(x @ W1, 0) @ W2) + (0.25 if wrong else 0)
    for name, value in (("input_0", x), ("output_0", y)):
        (data / f"{name}.pb").write_bytes(numpy_helper.from_array(value.astype(np.float32)).SerializeToString())


@pytest.mark.parametrize("path", ["reference", "optimised"])
def test_conform(pelton, tmp_path, path):
    write_case(tmp_path / "cases/test_right", False)
    write_case(tmp_path / "cases/test_wrong", True)
    result = pelton("conform", "cases", "--path", path)
    assert result.code == 1
    *failures, last = result.out.splitlines()
    assert last == "1 passed, 1 failed, 0 skipped"
    assert len(failures) == 1 and "test_wrong" in failures[0] and "'y'" in failures[0]
    lines = [json.loads(line) for line in pelton("conform", "cases/test_right", "--path", path, "--json").out.splitlines()]
    assert lines[-1] == {"final": True, "passed": 1, "failed": 0, "skipped": 0}
    ran = {node["implementation"] for node in lines[0]["ran"]}
    assert ran == {"reference"} if path == "reference" else ran and "reference" not in ran
    assert pelton("conform", "cases/test_right").code == 0
    assert_error(pelton("conform", "absent"), 1, "absent")


MODELS = ROOT.parent / "shared/real/models"


@pytest.mark.skipif(not MODELS.is_dir(), reason="../shared/real is absent")
@pytest.mark.parametrize("file", sorted(MODELS.rglob("*.onnx")) if MODELS.is_dir() else [], ids=lambda p: p.stem)
def test_real_models_run_what_inspect_says(pelton, file, tmp_path):
    plan = pelton("compile", file, "-o", "m.pelton", "--json")
    if "negative" in file.parts:
        assert_error(plan, 1, file.name)
        return
    assert plan.code == 0, plan.err
    support = pelton("inspect", "m.pelton", "--support", "--json").json()["support"]
    inputs = []
    for i in json.loads(file.with_suffix(".golden.json").read_text())["runs"][0]["inputs"]:
        gen, name = i["gen"], f"input{len(inputs)}.npy"
        if "const" in gen:
            value = np.full(i["shape"], gen["const"])
        elif "arange_last_axis_from" in gen:
            value = np.broadcast_to(gen["arange_last_axis_from"] + np.arange(i["shape"][-1]), i["shape"])
        elif "int_lo" in gen:
            value = RNG.integers(gen["int_lo"], gen["int_hi"] + 1, i["shape"])
        else:
            value = RNG.uniform(gen["lo"], gen["hi"], i["shape"])
        np.save(tmp_path / name, np.asarray(value).astype(i["dtype"]))
        inputs += ["--input", f"{i['name']}={name}"]
    result = pelton("run", "m.pelton", *inputs, "--trace", "trace.json", "--json")
    assert result.code == 0, result.err
    ran = [(r["node"], r["implementation"]) for r in result.json()["ran"] if r["depth"] == 0]
    assert ran == [(s["node"], s["implementation"]) for s in support
                   if s["depth"] == 0 and s["implementation"] != "none"]
    assert sum(s["implementation"] == "reference" for s in support) == plan.json()["reference_nodes"]


@pytest.mark.parametrize("source", ["mlp.onnx", "mlp.pelton"])
def test_export_runs_the_same(pelton, model, tmp_path, source):
    assert pelton("compile", "mlp.onnx", "-o", "mlp.pelton").code == 0
    result = pelton("export", source, "-o", "again.onnx")
    assert result.code == 0, result.err
    onnx.checker.check_model(str(tmp_path / "again.onnx"))
    assert pelton("run", "again.onnx", "--input", "x=x.npy", "--output-dir", "out").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "out/y.npy"), model, rtol=1e-4, atol=1e-6)
    assert_error(pelton("export", source, "-o", "absent/a.onnx"), 1, "absent/a.onnx")


@pytest.fixture
def two_rates(tmp_path):
    """y = x as rows of 2 (rate 1) or of 3, flattened again and scaled: 4 and 6 samples fit one branch alone."""
    def branch(name, rows, factor):
        nodes = [helper.make_node("Reshape", ["x", f"{name}_rows"], [f"{name}_2d"], name=f"{name}_split"),
                 helper.make_node("Reshape", [f"{name}_2d", f"{name}_flat"], [f"{name}_1d"]),
                 helper.make_node("Mul", [f"{name}_1d", f"{name}_factor"], [f"{name}_y"])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
                                 [numpy_helper.from_array(np.array([2, rows], np.int64), f"{name}_rows"),
                                  numpy_helper.from_array(np.array([-1], np.int64), f"{name}_flat"),
                                  numpy_helper.from_array(np.float32(factor), f"{name}_factor")])
    nodes = [helper.make_node("Equal", ["rate", "one"], ["is_one"]),
             helper.make_node("If", ["is_one"], ["y"], name="rates", then_branch=branch("low", 2, 10), else_branch=branch("high", 3, 20))]
    graph = helper.make_graph(nodes, "rates", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["samples"]),
                                               helper.make_tensor_value_info("rate", TensorProto.INT64, [])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["samples"])],
                              [numpy_helper.from_array(np.array(1, np.int64), "one")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "rates.onnx")
    for name, value in (("four", np.arange(4, dtype=np.float32)), ("one", np.array(1, np.int64)), ("two", np.array(2, np.int64))):
        np.save(tmp_path / f"{name}.npy", value)


def test_sizes_that_fit_one_branch_alone(pelton, two_rates, tmp_path):
    compiled = pelton("compile", "rates.onnx", "--shape", "x=4", "-o", "four.pelton")
    assert compiled.code == 0 and "the else branch of If 'rates' cannot run at these sizes" in compiled.err, compiled.err
    for file in ("rates.onnx", "four.pelton"):
        assert pelton("run", file, "--input", "x=four.npy", "--input", "rate=one.npy", "--output-dir", "out").code == 0
        assert (np.load(tmp_path / "out/y.npy") == np.arange(4) * 10).all()
    assert pelton("verify", "four.pelton", "--input", "x=four.npy", "--input", "rate=one.npy").code == 0
    for command in (["run"], ["verify"]):
        assert_error(pelton(*command, "four.pelton", "--input", "x=four.npy", "--input", "rate=two.npy"), 1,
                     "the run takes a branch that no sizes allow", "else branch of If 'rates'", "high_split")
    assert_error(pelton("export", "four.pelton", "-o", "again.onnx"), 1, "a branch that no sizes allow", "high_split", "without --shape")
    assert_error(pelton("compile", "rates.onnx", "--shape", "x=5", "-o", "five.pelton"), 1, "reshape")  # neither fits


def test_declared_results_are_held_against_the_graph(pelton, model, tmp_path):
    proto = mlp()
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    onnx.save(proto, tmp_path / "wrong.onnx")
    for command in (["inspect", "wrong.onnx"], ["compile", "wrong.onnx", "-o", "w.pelton"]):
        assert_error(pelton(*command), 1, "declares 'y' as int32", "f32[N,3]", "output 'y'")
    proto = mlp()
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 4
    onnx.save(proto, tmp_path / "wrong.onnx")
    result = pelton("run", "wrong.onnx", "--input", "x=x.npy", "--output-dir", "out")
    assert result.code == 0 and "warning: the model declares output 'y' with sizes [N,4]" in result.err
    np.testing.assert_allclose(np.load(tmp_path / "out/y.npy"), model, rtol=1e-4, atol=1e-6)


def optional_and_sequence(tmp_path):
    """s = the two columns of x, y = o, which is an optional input."""
    nodes = [helper.make_node("SplitToSequence", ["x"], ["s"], axis=1), helper.make_node("OptionalGetElement", ["o"], ["y"])]
    row = helper.make_tensor_type_proto(TensorProto.FLOAT, ["N"])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2]), helper.make_value_info("o", helper.make_optional_type_proto(row))]
    column = helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 1])
    outputs = [helper.make_value_info("s", helper.make_sequence_type_proto(column)), helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "parts.onnx")


def test_sequences_are_written_and_optional_inputs_read_as_arrays(pelton, tmp_path):
    optional_and_sequence(tmp_path)
    x, o = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(3, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "o.npy", o)
    given = ("--input", "x=x.npy", "--input", "o=o.npy")
    report = pelton("run", "parts.onnx", *given, "--output-dir", "out", "--json").json()
    assert [r["name"] for r in report["outputs"]] == ["s/0", "s/1", "y"] and report["outputs"][1]["shape"] == [3, 1]
    for i in range(2):
        assert (np.load(tmp_path / f"out/s/{i}.npy") == x[:, i:i + 1]).all()
    assert (np.load(tmp_path / "out/y.npy") == o).all()
    assert pelton("run", "parts.onnx", *given, "--compare", "out").code == 0
    np.save(tmp_path / "out/s/1.npy", x[:, :1])
    assert pelton("run", "parts.onnx", *given, "--compare", "out").code == 1


def test_a_size_that_open_sizes_exclude_names_shape(pelton, tmp_path):
    """Squeeze if the size is 1: with an open size the branch is taken to be possible, a run of 4 shows that it is not."""
    then = helper.make_graph([helper.make_node("Squeeze", ["x", "axes"], ["a"])], "t", [], [helper.make_tensor_value_info("a", TensorProto.FLOAT, None)])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["c"])], "e", [], [helper.make_tensor_value_info("c", TensorProto.FLOAT, None)])
    nodes = [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "one"], ["m"], axis=0),
             helper.make_node("Equal", ["m", "one"], ["is"]), helper.make_node("If", ["is"], ["y"], then_branch=then, else_branch=other)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "M"])],
                              [onnx.ValueInfoProto(name="y")],
                              [numpy_helper.from_array(np.array(1), "one"), numpy_helper.from_array(np.array([1]), "axes")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "rank.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    refused = pelton("run", "rank.onnx", "--input", "x=x.npy")
    assert_error(refused, 1, "sizes must satisfy", "--shape NAME=AxBxC")
    assert pelton("run", "rank.onnx", "--input", "x=x.npy", "--shape", "x=2x4").code == 0


def test_outputs_whose_names_make_one_file(pelton, tmp_path):
    names = ["a/b", "a_b", "a:b", "\u03b1", "\u03b2"]
    nodes = [helper.make_node("Mul", ["x", f"c{i}"], [name]) for i, name in enumerate(names)]
    graph = helper.make_graph(nodes, "many", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names],
                              [numpy_helper.from_array(np.float32(i + 2), f"c{i}") for i in range(len(names))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "many.onnx")
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    report = pelton("run", "many.onnx", "--input", "x=x.npy", "--output-dir", "out", "--json").json()
    files = {o["name"]: o["file"] for o in report["outputs"]}
    assert files["a_b"] == "out/a_b.npy" and len(set(files.values())) == len(names)
    for i, name in enumerate(names):
        assert (np.load(tmp_path / files[name]) == i + 2).all(), name
    assert pelton("run", "many.onnx", "--input", "x=x.npy", "--compare", "out").code == 0


def test_operator_sets_of_exports(pelton, model, tmp_path):
    for opset in (18, 20, 23, 28):
        assert pelton("export", "mlp.onnx", "-o", "out.onnx", "--opset", str(opset)).code == 0
        exported = onnx.load(tmp_path / "out.onnx")
        assert exported.opset_import[0].version == opset
        if opset <= 23:
            onnx.checker.check_model(exported, full_check=True)
    for opset in (0, 17, 29):
        assert_error(pelton("export", "mlp.onnx", "-o", "out.onnx", "--opset", str(opset)), 1, f"operator set {opset} is not written",
                     "18 to 28")
    # An op that came later raises it.
    graph = helper.make_graph([helper.make_node("Gelu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "gelu.onnx")
    assert pelton("export", "gelu.onnx", "-o", "out.onnx", "--opset", "18").code == 0
    exported = onnx.load(tmp_path / "out.onnx")
    assert exported.opset_import[0].version == 20
    onnx.checker.check_model(exported, full_check=True)
