# SPDX-License-Identifier: Apache-2.0
"""What runs is what `inspect --support` says, and its answers are right: small models of every kind the CPU back end
takes differently, against onnx.reference, and the real models where they are. tools/check_without.sh runs this file
on builds that lack a library."""
import json
from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from conftest import ROOT

RNG = np.random.default_rng(3)
FLOAT, INT64, UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def model(nodes, inputs, outputs, constants):
    infos = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    results = [helper.make_tensor_value_info(n, t, None) for n, t in outputs]
    graph = helper.make_graph(nodes, "g", infos, results, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), name=outputs.split()[0], **attrs)


def squeeze_excite():
    c = {"w0": f32(32, 3, 3, 3), "b0": f32(32), "wd": f32(32, 1, 3, 3), "w1": f32(8, 32, 1, 1), "b1": f32(8),
         "w2": f32(32, 8, 1, 1), "b2": f32(32), "w3": f32(16, 32, 1, 1)}
    nodes = [node("Conv", "x w0 b0", "a", pads=[1] * 4, strides=[2, 2]), node("Sigmoid", "a", "as"), node("Mul", "a as", "a1"),
             node("Conv", "a1 wd", "d", pads=[1] * 4, group=32), node("Sigmoid", "d", "ds"), node("Mul", "d ds", "d1"),
             node("GlobalAveragePool", "d1", "p"), node("Conv", "p w1 b1", "f"), node("Relu", "f", "f1"),
             node("Conv", "f1 w2 b2", "g"), node("Sigmoid", "g", "g1"), node("Mul", "d1 g1", "s"), node("Conv", "s w3", "y")]
    return model(nodes, [("x", FLOAT, ["N", 3, 30, 26])], [("y", FLOAT)], c), {"x": f32(2, 3, 30, 26)}


def residual():
    c = {"w0": f32(16, 16, 1, 1), "w1": f32(16, 16, 3, 3), "w2": f32(16, 16, 3, 3), "b": f32(16)}
    nodes = [node("Conv", "x w0", "a"), node("Relu", "a", "a1"), node("Conv", "a1 w1 b", "c", pads=[1] * 4),
             node("Add", "c a1", "r"), node("Relu", "r", "r1"), node("MaxPool", "r1", "m", kernel_shape=[3, 3], strides=[2, 2]),
             node("ConvTranspose", "m w2", "y", strides=[2, 2])]
    return model(nodes, [("x", FLOAT, [1, 16, 11, 9])], [("y", FLOAT)], c), {"x": f32(1, 16, 11, 9)}


def attention():
    c = {"wq": f32(16, 16), "wk": f32(16, 16), "wv": f32(16, 16), "bq": f32(16), "shape": np.array([2, 5, 2, 8]),
         "scale": np.float32(8 ** -0.5), "gamma": f32(16), "beta": f32(16), "w1": f32(16, 24)}
    nodes = [node("MatMul", "x wq", "q0"), node("Add", "q0 bq", "q1"), node("MatMul", "x wk", "k1"), node("MatMul", "x wv", "v1")]
    nodes += [node("Reshape", f"{a}1 shape", f"{a}2") for a in "qkv"]
    nodes += [node("Transpose", "q2", "q", perm=[0, 2, 1, 3]), node("Transpose", "k2", "k", perm=[0, 2, 3, 1]),
              node("Transpose", "v2", "v", perm=[0, 2, 1, 3]), node("MatMul", "q k", "l0"), node("Mul", "l0 scale", "l"),
              node("Softmax", "l", "p", axis=-1), node("MatMul", "p v", "o0"), node("Transpose", "o0", "o1", perm=[0, 2, 1, 3]),
              node("Reshape", "o1 flat", "o"), node("Add", "o x", "r"), node("LayerNormalization", "r gamma beta", "n", axis=-1),
              node("MatMul", "n w1", "m"), node("Gelu", "m", "y", approximate="none")]
    c["flat"] = np.array([2, 5, 16])
    nodes[-1:] = [node("Tanh", "m", "y")]
    return model(nodes, [("x", FLOAT, [2, 5, 16])], [("y", FLOAT)], c), {"x": f32(2, 5, 16)}


def quantised():
    c = {"s": np.float32(0.05), "z": np.uint8(120), "w": RNG.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8),
         "ws": np.abs(f32(8)) / 100 + np.float32(0.01), "wz": np.zeros(8, np.int8), "b": f32(8), "t": np.float32(0.2),
         "u": np.uint8(100), "w2": RNG.integers(-127, 128, (8, 5)).astype(np.int8), "w2s": np.float32(0.02), "w2z": np.int8(0)}
    nodes = [node("QuantizeLinear", "x s z", "xq"), node("DequantizeLinear", "xq s z", "xf"),
             node("DequantizeLinear", "w ws wz", "wf", axis=0), node("Conv", "xf wf b", "c", pads=[1] * 4), node("Relu", "c", "r"),
             node("QuantizeLinear", "r t u", "rq"), node("DequantizeLinear", "rq t u", "rf"),
             node("MaxPool", "rf", "m", kernel_shape=[2, 2], strides=[2, 2]), node("QuantizeLinear", "m t u", "mq"),
             node("DequantizeLinear", "mq t u", "mf"), node("ReduceMean", "mf axes", "g", keepdims=0),
             node("QuantizeLinear", "g t u", "gq"), node("DequantizeLinear", "gq t u", "gf"),
             node("DequantizeLinear", "w2 w2s w2z", "w2f"), node("MatMul", "gf w2f", "y")]
    c["axes"] = np.array([2, 3])
    return model(nodes, [("x", FLOAT, [2, 4, 9, 7])], [("y", FLOAT)], c), {"x": f32(2, 4, 9, 7)}


def indexing():
    c = {"table": f32(11, 6), "updates": f32(2, 6), "places": np.array([[0], [2]]), "pads": np.array([0, 2, 0, 3]),
         "depth": np.array(7), "values": np.array([0, 1], np.float32), "one": np.array(1)}
    nodes = [node("Gather", "table i", "e", axis=0), node("ScatterND", "e places updates", "s"),
             node("Pad", "s pads", "p", mode="reflect"), node("Trilu", "p one", "t", upper=1),
             node("OneHot", "i depth values", "h", axis=-1), node("MatMul", "h h2", "hm"), node("Concat", "t hm", "y", axis=1)]
    c["h2"] = f32(7, 3)
    return model(nodes, [("i", INT64, [4])], [("y", FLOAT)], c), {"i": np.array([1, 5, 6, 3])}


def pooled_indices():
    nodes = [node("MaxPool", "x", "m i", kernel_shape=[2, 3], strides=[2, 1], pads=[0, 1, 1, 1]), node("Neg", "m", "y")]
    return model(nodes, [("x", FLOAT, [1, 2, 5, 6])], [("y", FLOAT), ("i", INT64)], {}), {"x": f32(1, 2, 5, 6)}


def sizes_of_one():
    c = {"w": f32(3, 1, 1, 1), "m": f32(1, 1)}
    nodes = [node("Conv", "x w", "a"), node("Sigmoid", "a", "s"), node("Mul", "a s", "b"), node("ReduceSum", "b axes", "r", keepdims=0),
             node("MatMul", "r m", "y")]
    c["axes"] = np.array([1, 2])
    return model(nodes, [("x", FLOAT, [1, 1, 1, 1])], [("y", FLOAT)], c), {"x": f32(1, 1, 1, 1)}


MODELS = [squeeze_excite, residual, attention, quantised, indexing, pooled_indices, sizes_of_one]


def executed_as_printed(pelton, tmp_path, file, inputs):
    arguments = []
    for name, value in inputs.items():
        np.save(tmp_path / f"{name.replace('/', '_')}.npy", value)
        arguments += ["--input", f"{name}={name.replace('/', '_')}.npy"]
    shapes = [x for name, value in inputs.items()
              for x in ("--shape", f"{name}={'x'.join(map(str, value.shape)) or 'scalar'}")]
    compiled = pelton("compile", file, "-o", "m.pelton", *shapes, "--json")
    assert compiled.code == 0, compiled.err
    report = compiled.json()
    support = [s for s in pelton("inspect", "m.pelton", "--support", "--json").json()["support"] if s["implementation"] != "none"]
    # What the compiler counted, copies and nodes on the reference path among it, is what is listed.
    counts = Counter(s["implementation"] for s in support)
    assert report["implementations"] == counts
    assert report["reference_nodes"] == counts["reference"]
    printed = [(s["node"], s["implementation"]) for s in support if s["depth"] == 0]
    inner = {(s["node"], s["implementation"]) for s in support if s["depth"] > 0}
    result = pelton("run", "m.pelton", *arguments, "--trace", "trace.json", "--output-dir", "out", "--json")
    assert result.code == 0, result.err
    steps = result.json()["ran"]
    ran = [(r["node"], r["implementation"]) for r in steps if r["depth"] == 0]
    assert ran == printed
    assert {(r["node"], r["implementation"]) for r in steps if r["depth"] > 0} <= inner
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [(e["name"], e["args"]["implementation"]) for e in events if e["ph"] == "X"]
    assert Counter(spans) == Counter((r["node"], r["implementation"]) for r in steps)
    return ran


@pytest.mark.parametrize("make", MODELS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("isa", ["", "avx2", "scalar"])
def test_answers_and_implementations(pelton, tmp_path, make, isa, monkeypatch):
    if isa:
        monkeypatch.setenv("PELTON_CPU_ISA", isa)
    proto, inputs = make()
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    expected = ReferenceEvaluator(proto).run(None, inputs)
    ran = executed_as_printed(pelton, tmp_path, "m.onnx", inputs)
    assert ran
    for output, want in zip(proto.graph.output, expected):
        got = np.load(tmp_path / "out" / f"{output.name}.npy")
        # The reference sums in f32 in another order; a quantised value may fall to either side of a border.
        scale = np.abs(want).max() if want.size else 1
        tolerance = 0.02 if make is quantised else 2e-5
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def test_quantised_models_compute_in_integers(pelton, tmp_path):
    proto, _ = quantised()
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    graph = pelton("inspect", "m.onnx", "--support", "--graph", "--json").json()["graph"]
    assert "i32[2,8,9,7]" in graph, graph  # the sums of the convolution
    assert graph.count("conv(") == 1 and "u8[2,8,4,3]" in graph, graph  # the pool works on bytes


REAL = ROOT.parent / "shared/real/models"


def real_models():
    """Each model under ../shared/real with inputs of its first golden run."""
    models = [p for p in sorted(REAL.rglob("*.onnx")) if p.parent.name != "negative"]
    assert len(models) >= 20
    for path in models:
        golden = json.loads((path.parent / f"{path.stem}.golden.json").read_text())
        yield path, {i["name"]: np.full(i["shape"], i.get("gen", {}).get("const", 1), i["dtype"]) for i in golden["runs"][0]["inputs"]}


@pytest.mark.skipif(not REAL.is_dir(), reason="../shared/real is absent")
def test_real_models_run_as_printed(pelton, tmp_path):
    for path, inputs in real_models():
        executed_as_printed(pelton, tmp_path, path, inputs)


@pytest.mark.parametrize("dims", [((1, 256), (256, 128)), ((1, 300), (300, 700)), ((700, 300), (300, 1)), ((200, 1000), (1000, 200)),
                                  ((3, 50, 64), (3, 64, 50)), ((5, 7, 400), (400, 90))], ids=str)
def test_products_have_the_same_bits_at_any_thread_count(pelton, tmp_path, dims):
    a, b = dims
    proto = model([node("MatMul", "x w", "m"), node("Tanh", "m", "t"), node("MatMul", "x v", "y")],
                  [("x", FLOAT, a), ("v", FLOAT, b)], [("t", FLOAT), ("y", FLOAT)], {"w": f32(*b)})
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    np.save(tmp_path / "x.npy", f32(*a))
    np.save(tmp_path / "v.npy", f32(*b))
    results = []
    for threads in ("1", "2", "3"):
        ran = pelton("run", "m.onnx", "--input", "x=x.npy", "--input", "v=v.npy", "--threads", threads, "--output-dir", threads)
        assert ran.code == 0, ran.err
        results.append([(tmp_path / threads / f"{name}.npy").read_bytes() for name in "ty"])
    assert results[0] == results[1] == results[2]


@pytest.mark.skipif(not REAL.is_dir(), reason="../shared/real is absent")
def test_real_models_have_the_same_bits_at_one_and_two_threads(pelton, tmp_path):
    rng = np.random.default_rng(3)
    for path, inputs in real_models():
        arguments = []
        for name, value in inputs.items():
            # Values that differ, so that sums in another order would; integers are counts and indices.
            if value.dtype.kind == "f":
                value = rng.standard_normal(value.shape).astype(value.dtype)
            np.save(tmp_path / f"{name.replace('/', '_')}.npy", value)
            arguments += ["--input", f"{name}={name.replace('/', '_')}.npy"]
        results = []
        for threads in ("1", "2"):
            ran = pelton("run", path, *arguments, "--output-dir", threads, "--threads", threads, "--json")
            assert ran.code == 0, (path, ran.err)
            results.append({o["name"]: (tmp_path / o["file"]).read_bytes() for o in ran.json()["outputs"]})
        assert results[0] == results[1], path
