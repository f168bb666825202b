# SPDX-License-Identifier: Apache-2.0
"""Hostile and damaged models: one clear error each, status 1, in little memory."""
import contextlib
import os
import resource
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conftest import BINARY, Result, assert_error

F = TensorProto.FLOAT
MEMORY_BYTES = 6 << 30  # address space, so that a size trick that works ends in an error of its own


@pytest.fixture
def limited(tmp_path):
    def run(*args):
        process = subprocess.run([str(BINARY), *map(str, args)], capture_output=True, text=True, cwd=tmp_path, timeout=120,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)))
        assert process.returncode >= 0, f"ended by signal {-process.returncode}\n{process.stderr}"
        return Result(process)
    return run


def info(name, shape, kind=F):
    return helper.make_tensor_value_info(name, kind, shape)


def model(*nodes, inputs=None, outputs=("y",), weights=(), opset=17, functions=()):
    """Nodes are (op, inputs, outputs[, attributes])."""
    made = [helper.make_node(n[0], n[1].split(" ") if n[1] else [], n[2].split(" "), **(n[3] if len(n) > 3 else {})) for n in nodes]
    graph = helper.make_graph(made, "g", inputs or [info("x", [2])], [info(o, None) for o in outputs], list(weights))
    domains = {d for n in made for d in [n.domain] if d}
    return helper.make_model(graph, ir_version=8, functions=functions,
                             opset_imports=[helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)])


def weight(dims, data=b"", kind=F):
    return TensorProto(name="w", data_type=kind, dims=dims, raw_data=data)


def whole(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def real(name, values):
    return numpy_helper.from_array(np.array(values, np.float32), name)


def branch(*results):
    return helper.make_graph([helper.make_node("Neg", ["x"], [r]) for r in results], "b", [], [info(r, None) for r in results])


def twice(proto):
    proto.graph.node[0].attribute.append(proto.graph.node[0].attribute[0])
    return proto


def two_sets(proto):
    proto.opset_import.append(helper.make_opsetid("", 9))
    return proto


def tree(children, modes, target=0):
    """A tree whose node i goes to children[i] either way."""
    n = len(modes)
    return model(("TreeEnsembleRegressor", "x", "y", {
        "domain": "ai.onnx.ml", "n_targets": 1, "nodes_treeids": [0] * n, "nodes_nodeids": list(range(n)), "nodes_featureids": [0] * n,
        "nodes_values": [0.0] * n, "nodes_modes": modes, "nodes_truenodeids": children, "nodes_falsenodeids": children,
        "target_treeids": [0], "target_nodeids": [0], "target_ids": [target], "target_weights": [1.0]}), inputs=[info("x", [2, 3])])


BODY = helper.make_graph([helper.make_node("Neg", ["a"], ["b"])], "body", [info("a", None)], [info("b", None)])
ADD = ("Add", "x w", "y")
MODELS = {
    "a cycle": (model(("Add", "x b", "a"), ("Neg", "a", "y"), ("Neg", "y", "b")), ["cycle"]),
    "a node that feeds itself": (model(("Add", "x y", "y")), ["cycle"]),
    "no producer": (model(ADD), ["nothing produces 'w'"]),
    "no producer of an output": (model(("Neg", "x", "y"), outputs=["z"]), ["nothing produces 'z'"]),
    "two producers": (model(("Neg", "x", "y"), ("Exp", "x", "y")), ["two values are named 'y'"]),
    "a product beyond 64 bits": (model(ADD, weights=[weight([1 << 40, 1 << 40])]), ["'w'", "too large"]),
    "a tensor of 1 TiB": (model(ADD, weights=[weight([1 << 38])]), ["'w'", "holds 0 bytes", "1099511627776"]),
    "a negative size": (model(ADD, weights=[weight([-2], bytes(8))]), ["'w'", "negative size", "[-2]"]),
    "too few bytes": (model(ADD, weights=[weight([4], bytes(8))]), ["'w'", "8 bytes", "needs 16"]),
    "no such element type": (model(ADD, weights=[weight([4], bytes(8), 99)]), ["'w'", "type 99"]),
    "mixed types": (model(ADD, weights=[whole("w", [1, 2])]), ["f32 and i64", "'y'"]),
    "an attribute of another type": (model(("Concat", "x x", "y", {"axis": "one"})), ["'axis'", "integer"]),
    "no such op": (model(("Relux", "x", "y")), ["Relux", "'y'"]),
    "no such domain": (model(("Foo", "x", "y", {"domain": "acme"})), ["'Foo'", "'acme'", "plug-in"]),
    "an operator set of the future": (model(("Neg", "x", "y"), opset=999), ["999", "newest known"]),
    "a split that does not divide": (model(("Split", "x", "y a b"), opset=11), ["2 into 3", "'y'"]),
    "a pad beyond 64 bits": (model(("Pad", "x p", "y"), weights=[whole("p", [1 << 62, 1 << 62])]), ["overflow", "'y'"]),
    "a permutation that repeats": (model(("Transpose", "x", "y", {"perm": [0, 0]}), inputs=[info("x", [2, 2])]), ["transpose", "[0,0]"]),
    "an attribute twice": (twice(model(("Elu", "x", "y", {"alpha": 1.0}))), ["'alpha'", "twice"]),
    "no operator set 0": (model(("Neg", "x", "y"), opset=0), ["operator set 0", "does not exist"]),
    "two operator sets": (two_sets(model(("Neg", "x", "y"))), ["operator sets 17 and 9", "at once"]),
    "an infinite scale": (model(("Resize", "x r s", "y"), weights=[whole("r", []), real("s", [np.inf])]), ["scale inf"]),
    "a scan of fewer than none": (model(("Scan", "x", "y", {"num_scan_inputs": -1, "body": BODY})), ["scans -1"]),
    "a loop whose body takes less": (model(("Loop", "n  x", "y", {"body": BODY}), weights=[whole("n", 3)]), ["'body'", "inputs"]),
    "branches that differ": (model(("If", "c", "y", {"then_branch": branch("r"), "else_branch": branch("r", "s")}),
                                   inputs=[info("x", [2]), info("c", [], TensorProto.BOOL)]), ["1 and 2 values"]),
    "a hidden size below 1": (model(("LSTM", "x w r", "y", {"hidden_size": -4}), inputs=[info("x", [3, 1, 2])],
                                    weights=[real("w", np.ones((1, 16, 2))), real("r", np.ones((1, 16, 4)))]), ["hidden_size is -4"]),
    "a tree that is a circle": (tree([1, 0], ["BRANCH_LEQ", "BRANCH_LEQ"]), ["cycle"]),
    "a tree with a circle": (tree([1, 2, 1], ["BRANCH_LEQ"] * 3), ["node"]),
    "a tree that votes for no target": (tree([0], ["LEAF"], target=7), ["target 7 of 1"]),
    "a block whose square is no size": (model(("DepthToSpace", "x", "y", {"blocksize": 1 << 33}), inputs=[info("x", [1, 4, 2, 2])]), ["8589934592"]),
    "a product of vectors by Gemm": (model(("Gemm", "x x", "y")), ["takes matrices", "f32[2]"]),
    "a class below none": (model(("OneHot", "i d v", "y"), weights=[whole("i", [0]), whole("d", [-3]), real("v", [0, 1])]), ["-3", "'y'"]),
    "an equation of garbage": (model(("Einsum", "x", "y", {"equation": "i>j"})), ["einsum", "'>'"]),
    "a long equation": (model(("Einsum", "x", "y", {"equation": "i" * 100_000 + "->"})), ["einsum", " ... "]),
    "names that speak to a terminal": (model(("Neg", "x\n\x1b[31mfake", "y")), ["nothing produces", "fake"]),
    "an index that no sequence has": (model(("SequenceConstruct", "x", "s"), ("SequenceAt", "s i", "y"), weights=[whole("i", 5)]), ["index 5", "of 1"]),
    "an item of an empty sequence": (model(("SequenceEmpty", "", "s"), ("ConcatFromSequence", "s", "y", {"axis": 0})), ["empty sequence"]),
    "more picks than there are": (model(("TopK", "x k", "y i"), weights=[whole("k", [100])]), ["100 of 2"]),
    "a function called with too much": (model(("F", "x x", "y", {"domain": "local"}), functions=[helper.make_function(
        "local", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 17)])]), ["'F'", "2 inputs"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_are_refused(limited, tmp_path, name):
    proto, words = MODELS[name]
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    for command in ("inspect", "compile"):
        result = limited(command, "m.onnx")
        assert_error(result, 1, "m.onnx", *words)
        assert len(result.err) < 4000 and result.err.rstrip("\n").isprintable()


def test_a_window_wider_than_memory(limited, tmp_path):
    proto = model(("LRN", "x", "y", {"size": 1 << 40}), inputs=[info("x", [1, 2, 3, 3])])
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    np.save(tmp_path / "x.npy", np.ones((1, 2, 3, 3), np.float32))
    assert limited("run", "m.onnx", "--input", "x=x.npy").code == 0


@pytest.mark.parametrize("location, offset, words", [
    ("../out.bin", 0, ["leads out of the folder"]), ("/etc/passwd", 0, ["not a relative path"]),
    ("link.bin", 0, ["leads out of the folder"]), ("absent.bin", 0, ["cannot open", "absent.bin"]),
    ("data.bin", 12, ["offset 12", "outside 'data.bin' of 16 bytes"]), ("data.bin", -4, ['"-4"', "not a size"]),
])
def test_external_data(limited, tmp_path, location, offset, words):
    (tmp_path / "out.bin").write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "data.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "out.bin")
    tensor = TensorProto(name="w", data_type=F, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(offset)), ("length", "8")):
        tensor.external_data.add(key=key, value=value)
    (folder / "m.onnx").write_bytes(model(ADD, weights=[tensor]).SerializeToString())
    assert_error(limited("compile", "model/m.onnx"), 1, "m.onnx", "'w'", *words)


def field(number, content):
    def varint(n):
        return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested(depth):
    """An If in an If in an If, deeper than the protobuf package itself writes."""
    def branch(node):
        return field(1, node) + field(2, b"b") + field(12, field(1, b"r"))

    node = leaf = field(1, b"x") + field(2, b"r") + field(4, b"Identity")
    for _ in range(depth):
        branches = b"".join(field(5, field(1, name) + field(6, graph) + field(20, 5))
                            for name, graph in ((b"then_branch", branch(node)), (b"else_branch", branch(leaf))))
        node = field(1, b"c") + field(2, b"r") + field(4, b"If") + branches
    inputs = [info("x", [2]), info("c", [], TensorProto.BOOL)]
    graph = branch(node) + b"".join(field(11, i.SerializeToString()) for i in inputs)
    return field(1, 8) + field(7, graph) + field(8, field(1, b"") + field(2, 17))


def test_depth(limited, tmp_path):
    (tmp_path / "ten.onnx").write_bytes(nested(10))
    assert limited("compile", "ten.onnx").code == 0
    (tmp_path / "deep.onnx").write_bytes(nested(1000))
    assert_error(limited("compile", "deep.onnx"), 1, "deep.onnx", "nested more than 100 deep")

    def function(name, *ops):
        names = ["a", *(f"t{i}" for i in range(len(ops) - 1)), "b"]
        nodes = [helper.make_node(op, [names[i]], [names[i + 1]], domain="local" if op[0] == "F" else "")
                 for i, op in enumerate(ops)]
        return helper.make_function("local", name, ["a"], ["b"], nodes,
                                    [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)])

    def calls(op, functions):
        (tmp_path / "f.onnx").write_bytes(model((op, "x", "y", {"domain": "local"}), functions=functions).SerializeToString())
        return limited("compile", "f.onnx")

    assert_error(calls("F", [function("F", "F")]), 1, "f.onnx", "nested more than 64 deep")
    doubling = [function("F0", "Neg", "Neg")] + [function(f"F{i}", f"F{i - 1}", f"F{i - 1}") for i in range(1, 40)]
    assert_error(calls("F39", doubling), 1, "f.onnx", "unfolds to more than")


@pytest.mark.parametrize("nodes, weights, words", [
    ([("Expand", "x s", "y")], {"s": [1 << 31, 1 << 31]}, ["too large"]),
    ([("Tile", "x s", "y")], {"s": [1 << 40]}, ["bytes"]),
    ([("ConstantOfShape", "s", "k"), ("ReduceSum", "k", "t"), ("Add", "x t", "y")], {"s": [1 << 20, 1 << 20]}, ["bytes"]),
    ([("Range", "a b c", "k"), ("Cast", "k", "f", {"to": F}), ("Add", "x f", "y")], {"a": 0, "b": 1 << 40, "c": 1}, ["bytes"]),
])
def test_sizes_that_a_few_bytes_ask_for(limited, tmp_path, nodes, weights, words):
    proto = model(*nodes, inputs=[info("x", [1])], weights=[whole(n, v) for n, v in weights.items()])
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    assert limited("compile", "m.onnx").code == 0  # nothing of that size is made before a run
    result = limited("run", "m.onnx", "--input", "x=x.npy", "--json")
    assert_error(result, 1, *words)
    assert result.json()["error"]["code"] in ("out_of_memory", "limit")


@contextlib.contextmanager
def full_disk(folder):
    folder.mkdir()
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", folder], capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no small file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_full_disk(limited, tmp_path):
    big = numpy_helper.from_array(np.random.default_rng(1).random((128, 128), np.float32), "w")
    (tmp_path / "m.onnx").write_bytes(model(("MatMul", "x w", "y"), inputs=[info("x", ["N", 128])], weights=[big]).SerializeToString())
    np.save(tmp_path / "x.npy", np.ones((200, 128), np.float32))
    with full_disk(tmp_path / "small") as folder:
        for command in (["compile", "m.onnx", "-o", "small/m.pelton"], ["export", "m.onnx", "-o", "small/m2.onnx"],
                        ["run", "m.onnx", "--input", "x=x.npy", "--output-dir", "small"]):
            result = limited(*command, "--json")
            assert_error(result, 1, "No space left", "small/")
            assert result.json()["error"]["code"] == "disk_full"
            assert not list(folder.iterdir()), "a part of a file stays behind"


def test_files_that_cannot_be_read(limited, tmp_path):
    (tmp_path / "folder.onnx").mkdir()
    assert_error(limited("inspect", "folder.onnx"), 1, "folder holds no training run", "folder.onnx")
    assert_error(limited("inspect", "absent.onnx"), 1, "No such file", "absent.onnx")
    (tmp_path / "secret.onnx").write_bytes(model(("Neg", "x", "y")).SerializeToString())
    (tmp_path / "secret.onnx").chmod(0)
    command = [str(BINARY), "inspect", "secret.onnx"]
    if os.access(tmp_path / "secret.onnx", os.R_OK):  # root without its right to read everything
        if not shutil.which("setpriv"):
            pytest.skip("root reads every file")
        command = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *command]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert_error(Result(process), 1, "Permission denied", "secret.onnx")


@pytest.mark.parametrize("value, code, words", [("-1", 1, ["--threads is -1"]), ("5000", 1, ["5000"]), ("1.5", 2, ["1.5"]),
                                                ("99999999999999999999", 2, ["99999999999999999999"])])
def test_thread_counts(limited, tmp_path, value, code, words):
    (tmp_path / "m.onnx").write_bytes(model(("Neg", "x", "y")).SerializeToString())
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    assert_error(limited("run", "m.onnx", "--input", "x=x.npy", "--threads", value), code, *words)


def test_results_that_no_memory_holds_are_refused_before_they_are_prepared(pelton, tmp_path):
    graph = helper.make_graph([helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], name="grow", mode="linear")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.array([2, 3, 2**40], np.int64), "sizes")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "grow.onnx")
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 4), np.float32))
    assert_error(pelton("run", "grow.onnx", "--input", "x=x.npy"), 1, "[2,3,1099511627776]", "takes 26388279066624 bytes", "grow")


def test_pads_that_name_an_axis_twice(pelton, tmp_path):
    graph = helper.make_graph([helper.make_node("Pad", ["x", "pads", "", "axes"], ["y"])], "g", [info("x", [2, 3, 4])], [info("y", None)],
                              [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("pads", [1, 1, 1, 1]), ("axes", [1, -2]))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "pad.onnx")
    assert_error(pelton("compile", "pad.onnx"), 1, "names axis 1 twice")
