#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws random one-op models and their results by onnx.reference, as backend-test folders.

usage: random_models.py OUTPUT_DIR --seed N [--count 50] [--op NAME ...]
Shapes hold 0 and 1, attributes and operator sets vary. `pelton conform OUTPUT_DIR` compares. A model that the
reference itself refuses is drawn again.

Left out because the reference departs from the specification: BatchNormalization of operator set 9 to 13, which
it normalises by the statistics of the batch although only given ones belong to inference.
"""
import argparse
import pathlib
import warnings
import zlib

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OPSETS = (13, 15, 17, 18, 19, 20, 21, 22)
F, I, B = np.float32, np.int64, np.bool_


class Draw:
    """Random choices for one model."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def pick(self, *items):
        return items[self.rng.integers(len(items))]

    def flag(self):
        return int(self.rng.integers(2))

    def size(self, low=0, high=5):
        return int(self.rng.integers(low, high + 1))

    def shape(self, low=0, high=4, least=0):
        return tuple(self.size(least) if self.rng.random() < 0.2 else self.size(1) for _ in range(self.size(low, high)))

    def real(self, shape, low=-3.0, high=3.0, dtype=F):
        return self.rng.uniform(low, high, shape).astype(dtype)

    def whole(self, shape, low=-5, high=5, dtype=I):
        return self.rng.integers(low, high + 1, shape).astype(dtype)

    def broadcast(self, shape):
        """A shape that broadcasts to `shape`."""
        kept = shape[self.size(0, len(shape)):] if shape else ()
        return tuple(1 if self.rng.random() < 0.3 else d for d in kept)

    def axis(self, rank):
        return int(self.rng.integers(-rank, rank))


def unary(low=-3.0, high=3.0):
    return lambda d: ([d.real(d.shape(), low, high)], {})


def binary(integers=True, low=-3.0, high=3.0):
    def make(d):
        shape = d.shape()
        draw = (lambda s: d.whole(s, 1, 9)) if integers and d.flag() else (lambda s: d.real(s, low, high))
        pair = [draw(shape), draw(d.broadcast(shape))]
        return (pair if d.flag() else pair[::-1]), {}
    return make


def logic(d):
    shape = d.shape()
    return [d.whole(shape, 0, 1).astype(B), d.whole(d.broadcast(shape), 0, 1).astype(B)], {}


def bits(d):
    shape = d.shape()
    return [d.whole(shape, 0, 200, np.uint8), d.whole(d.broadcast(shape), 0, 200, np.uint8)], {"opset": 18}


def reduction(as_input_since=18, low=0.1):
    def make(d):
        x = d.real(d.shape(1, 4, 1), low, 3)
        axes = sorted({a % x.ndim for a in [d.axis(x.ndim) for _ in range(d.size(1, x.ndim))]})
        opset, attrs = d.pick(*OPSETS), {"keepdims": d.flag()}
        inputs = [x]
        if d.flag():
            if opset >= as_input_since:
                inputs.append(np.array(axes, I))
            else:
                attrs["axes"] = axes
        return inputs, {"opset": opset, **attrs}
    return make


def along(**fixed):
    def make(d):
        x = d.real(d.shape(1, 4, 1))
        return [x], {"axis": d.axis(x.ndim), **fixed}
    return make


def arg(d):
    x = d.whole(d.shape(1, 4, 1)).astype(F)
    return [x], {"axis": d.axis(x.ndim), "keepdims": d.flag(), "select_last_index": d.flag()}


def cumsum(d):
    x = d.real(d.shape(1, 4, 1))
    return [x, np.array(d.axis(x.ndim), I)], {"exclusive": d.flag(), "reverse": d.flag()}


def transpose(d):
    x = d.real(d.shape(1, 4))
    return [x], {"perm": [int(p) for p in d.rng.permutation(x.ndim)]}


def reshape(d):
    x = d.real(d.shape(1, 4, 1))
    target = list(d.rng.permutation(x.shape))
    if d.flag():
        target[d.size(0, len(target) - 1)] = -1
    return [x, np.array(target, I)], {}


def concat(d):
    base = d.shape(1, 4)
    axis = d.axis(len(base))
    parts = []
    for _ in range(d.size(1, 3)):
        shape = list(base)
        shape[axis] = d.size()
        parts.append(d.real(shape))
    return parts, {"axis": axis}


def slice_op(d):
    x = d.real(d.shape(1, 4))
    axes = d.rng.permutation(x.ndim)[: d.size(1, x.ndim)]
    n = len(axes)
    steps = np.array([d.pick(1, 1, 2, -1, -2) for _ in axes], I)
    return [x, d.whole(n, -6, 6), d.whole(n, -7, 7), axes.astype(I), steps], {}


def pad(d):
    x = d.real(d.shape(1, 3, 1))
    mode = d.pick("constant", "edge", "reflect", "wrap")
    limit = min(x.shape) - 1 if mode == "reflect" else 2
    pads = d.whole(2 * x.ndim, 0, max(0, min(limit, 2)))
    return [x, pads] + ([np.array(1.5, F)] if mode == "constant" and d.flag() else []), {"mode": mode, "opset": 19}


def gather(d):
    x = d.real(d.shape(1, 3, 1))
    axis = d.axis(x.ndim)
    n = x.shape[axis]
    return [x, d.whole(d.shape(0, 2), -n, n - 1)], {"axis": axis}


def gather_elements(d):
    x = d.real(d.shape(1, 3, 1))
    axis = d.axis(x.ndim)
    shape = tuple(d.size(1, s) if i != axis % x.ndim else d.size(1) for i, s in enumerate(x.shape))
    return [x, d.whole(shape, -x.shape[axis], x.shape[axis] - 1)], {"axis": axis}


def scatter_elements(d):
    (x, i), attrs = gather_elements(d)
    i = np.take(i, range(min(i.shape[attrs["axis"]], x.shape[attrs["axis"]])), axis=attrs["axis"])
    i = np.broadcast_to(np.arange(i.shape[attrs["axis"]]).reshape([-1 if k == attrs["axis"] % x.ndim else 1 for k in range(x.ndim)]), i.shape)
    return [x, i.astype(I), d.real(i.shape)], attrs


def matmul(d):
    m, k, n = d.size(1), d.size(1), d.size(1)
    batch = d.shape(0, 2)
    return [d.real(batch + (m, k)), d.real(d.broadcast(batch) + (k, n))], {}


def gemm(d):
    m, k, n = d.size(1), d.size(1), d.size(1)
    ta, tb = d.flag(), d.flag()
    inputs = [d.real((k, m) if ta else (m, k)), d.real((n, k) if tb else (k, n))]
    if d.flag():
        inputs.append(d.real(d.pick((n,), (1, n), (m, n), ())))
    return inputs, {"transA": ta, "transB": tb, "alpha": d.pick(1.0, 0.5), "beta": d.pick(1.0, 2.0)}


def conv(d):
    groups, spatial = d.pick(1, 1, 2), d.size(1, 2)
    c, o = groups * d.size(1, 2), groups * d.size(1, 2)
    kernel = [d.size(1, 3) for _ in range(spatial)]
    x, w = d.real((d.size(1, 2), c, *[d.size(4, 7) for _ in kernel])), d.real((o, c // groups, *kernel))
    attrs = {"group": groups, "strides": [d.size(1, 2) for _ in kernel], "dilations": [1] * spatial}
    if d.flag():
        attrs["pads"] = [d.size(0, 1) for _ in range(2 * spatial)]
    return [x, w] + ([d.real((o,))] if d.flag() else []), attrs


def pool(maximum):
    def make(d):
        spatial = d.size(1, 2)
        kernel = [d.size(1, 3) for _ in range(spatial)]
        attrs = {"kernel_shape": kernel, "strides": [d.size(1, 2) for _ in kernel], "opset": d.pick(13, 19, 22)}
        if not maximum:
            attrs["count_include_pad"] = d.flag()
        if d.flag():
            attrs["pads"] = [0] * spatial + [0] * spatial if maximum else [d.size(0, k - 1) for k in kernel] * 2
        return [d.real((d.size(1, 2), d.size(1, 3), *[d.size(4, 7) for _ in kernel]))], attrs
    return make


def norm(d):
    x = d.real((d.size(1, 3), d.size(1, 4), d.size(1, 4)))
    axis = d.pick(1, 2, -1)
    return [x, d.real(x.shape[axis:]), d.real(x.shape[axis:])], {"axis": axis, "opset": 17}


def batch_norm(d):
    c = d.size(1, 4)
    return [d.real((d.size(1, 3), c, d.size(1, 3))), d.real((c,)), d.real((c,)), d.real((c,)), d.real((c,), 0.1, 2)], {"opset": d.pick(14, 15, 22)}


def topk(d):
    x = d.real(d.shape(1, 3, 1))
    axis = d.axis(x.ndim)
    return [x, np.array([d.size(1, x.shape[axis])], I)], {"axis": axis, "largest": d.flag(), "outputs": 2}


def where(d):
    shape = d.shape()
    return [d.whole(shape, 0, 1).astype(B), d.real(d.broadcast(shape)), d.real(shape)], {}


def clip(d):
    return [d.real(d.shape()), np.array(-1, F), np.array(1.5, F)], {}


def one_hot(d):
    return [d.whole(d.shape(1, 2), -4, 3), np.array(4, I), d.real((2,))], {"axis": d.pick(-1, 0)}


def unsqueeze(d):
    x = d.real(d.shape(0, 3))
    return [x, np.array([d.size(0, x.ndim)], I)], {}


def expand(d):
    shape = d.shape()
    return [d.real(d.broadcast(shape)), np.array(shape, I)], {}


def tile(d):
    x = d.real(d.shape(1, 3))
    return [x, d.whole(x.ndim, 0, 3)], {}


def quantize(d):
    return [d.real(d.shape(), -9, 9), np.array(0.07, F), np.array(d.pick(0, 3), d.pick(np.uint8, np.int8))], {}


def dequantize(d):
    t = d.pick(np.uint8, np.int8)
    return [d.whole(d.shape(), 0, 100, t), np.array(0.07, F), np.array(3, t)], {}


OPS = {
    **{op: unary() for op in ("Abs", "Neg", "Exp", "Sigmoid", "Tanh", "Erf", "Relu", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos",
                              "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Softplus", "Softsign", "Elu", "Selu", "LeakyRelu",
                              "HardSigmoid", "HardSwish", "ThresholdedRelu", "Celu", "Identity", "IsNaN", "IsInf", "Shape", "Size")},
    **{op: unary(0.1, 3) for op in ("Log", "Sqrt", "Reciprocal")},
    **{op: unary(-0.99, 0.99) for op in ("Asin", "Acos", "Atanh")},
    "Acosh": unary(1.1, 4),
    **{op: binary() for op in ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Sum", "Mean")},
    "Div": binary(False, 0.5, 3), "Pow": binary(False, 0.5, 2), "Mean": binary(False),
    **{op: logic for op in ("And", "Or", "Xor")}, **{op: bits for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{op: reduction() for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                                  "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")},
    "ReduceSum": reduction(13), "Softmax": along(), "LogSoftmax": along(), "Hardmax": along(), "ArgMax": arg, "ArgMin": arg,
    "CumSum": cumsum, "Transpose": transpose, "Reshape": reshape, "Concat": concat, "Slice": slice_op, "Pad": pad, "Gather": gather,
    "GatherElements": gather_elements, "ScatterElements": scatter_elements, "MatMul": matmul, "Gemm": gemm, "Conv": conv,
    "MaxPool": pool(True), "AveragePool": pool(False), "LayerNormalization": norm, "BatchNormalization": batch_norm, "TopK": topk,
    "Where": where, "Clip": clip, "OneHot": one_hot, "Unsqueeze": unsqueeze, "Expand": expand, "Tile": tile,
    "QuantizeLinear": quantize, "DequantizeLinear": dequantize,
}


def build(op, draw):
    inputs, attrs = OPS[op](draw)
    attrs = dict(attrs)
    opset, outputs = attrs.pop("opset", draw.pick(*OPSETS)), attrs.pop("outputs", 1)
    names = [f"i{k}" for k in range(len(inputs))]
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, **attrs)
    # Small integer operands (axes, shapes) are initializers, as exporters write them.
    stored = [k > 0 and x.dtype == np.int64 and x.ndim <= 1 and op not in ("Gather", "Add", "Sub", "Mul") for k, x in enumerate(inputs)]
    info = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x, s in zip(names, inputs, stored) if not s]
    init = [numpy_helper.from_array(x, n) for n, x, s in zip(names, inputs, stored) if s]
    graph = helper.make_graph([node], op, info, [onnx.ValueInfoProto(name=r) for r in results], init)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    feeds = {n: x for n, x, s in zip(names, inputs, stored) if not s}
    values = ReferenceEvaluator(model).run(None, feeds)
    for slot, value in zip(model.graph.output, values):
        value = np.asarray(value)
        slot.CopyFrom(helper.make_tensor_value_info(slot.name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    onnx.checker.check_model(model)
    return model, list(feeds.values()), [np.asarray(v) for v in values]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--op", nargs="*")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    np.seterr(all="ignore")
    refused = 0
    for op in args.op or sorted(OPS):
        made = tries = 0
        while made < args.count and tries < 20 * args.count:
            tries += 1
            try:
                model, inputs, outputs = build(op, Draw([args.seed, zlib.crc32(op.encode()), tries]))
            except Exception:  # noqa: BLE001 - whatever the reference or the checker does not accept is drawn again
                refused += 1
                continue
            folder = args.output / f"{op}_{made:02}" / "test_data_set_0"
            folder.mkdir(parents=True, exist_ok=True)
            (folder.parent / "model.onnx").write_bytes(model.SerializeToString())
            (folder.parent / "data.json").write_text('{"rtol": 0.001, "atol": 1e-05}')
            for what, values in (("input", inputs), ("output", outputs)):
                for k, value in enumerate(values):
                    (folder / f"{what}_{k}.pb").write_bytes(numpy_helper.from_array(value).SerializeToString())
            made += 1
        if made < args.count:
            print(f"{op}: only {made} models drawn")
    print(f"{len(args.op or OPS)} ops, {refused} draws refused by the reference")


if __name__ == "__main__":
    main()
