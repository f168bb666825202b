# SPDX-License-Identifier: Apache-2.0
"""Draws of pointwise ops, reductions, contractions and the plainest of the others.

A draw takes a Draw and returns the inputs (an array, a list of arrays for a sequence, None for one left out) and the attributes;
`opset`, `domain`, `outputs` (their number, 1), `stored` (the inputs that become initializers; without it small integer operands do),
`nodes` (instead of the one node), `wrapped` (the result is in a list of one) and `results` (their type) are not attributes but say how
the model is made and read.
"""
import numpy as np

from .draw import B, F, I, OPSETS


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
