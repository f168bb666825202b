# SPDX-License-Identifier: Apache-2.0
"""Draws of ops that move, count, cast and index."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .draw import B, F, I

NUMBERS = {TensorProto.FLOAT: F, TensorProto.DOUBLE: np.float64, TensorProto.INT32: np.int32, TensorProto.INT64: I,
           TensorProto.UINT8: np.uint8, TensorProto.INT8: np.int8, TensorProto.BOOL: B}


def number(d, shape, dtype):
    """Values that every type of NUMBERS holds but for fractions and signs."""
    x = d.real(shape, 0 if dtype in (np.uint8, B) else -5, 5)
    return (np.trunc(x) if np.dtype(dtype).kind in "iub" else x).astype(dtype)


def source(d, to):
    """Something to cast; the specification leaves real numbers open that the type does not hold."""
    dtype = d.pick(F, np.float64, np.int32, I, B)
    x = number(d, d.shape(), dtype)
    return np.abs(x) if np.dtype(to).kind == "u" and x.dtype.kind == "f" else x


def cast(d):
    to = d.pick(*NUMBERS)
    return [source(d, NUMBERS[to])], {"to": to, "opset": d.opset(9)}


def cast_like(d):
    like = number(d, d.shape(), d.pick(*NUMBERS.values()))
    return [source(d, like.dtype), like], {"opset": d.opset(15)}


def bit_cast(d):
    pairs = [(F, TensorProto.INT32), (np.int32, TensorProto.FLOAT), (np.float64, TensorProto.INT64), (np.uint8, TensorProto.INT8)]
    source, to = d.pick(*pairs)
    return [number(d, d.shape(), source)], {"to": to, "opset": 26}


def center_crop_pad(d):
    x = d.real(d.shape(1, 4, 1))
    axes = [int(a) for a in d.rng.permutation(x.ndim)[: d.size(1, x.ndim)]]
    attrs = {"axes": [a - x.ndim if d.flag() else a for a in axes]}
    if len(axes) == x.ndim and d.flag():
        attrs = {}
    return [x, d.whole(len(axes), 1, 7)], {**attrs, "opset": d.opset(18)}


def col2im(d):
    rank = d.size(1, 2)
    block, stride, dilation = ([d.size(1, 2) for _ in range(rank)] for _ in range(3))
    image, pads = [d.size(4, 6) for _ in range(rank)], [d.size(0, 1) for _ in range(2 * rank)]
    places = [(image[i] + pads[i] + pads[rank + i] - dilation[i] * (block[i] - 1) - 1) // stride[i] + 1 for i in range(rank)]
    x = d.real((d.size(1, 2), d.size(1, 2) * int(np.prod(block)), int(np.prod(places))))
    return [x, np.array(image, I), np.array(block, I)], {"strides": stride, "dilations": dilation, "pads": pads, "opset": d.opset(18)}


def compress(d):
    x = d.real(d.shape(1, 3))
    if d.flag():
        return [x, d.truth(d.size(0, x.size))], {"opset": d.opset(11)}
    axis = d.axis(x.ndim)
    return [x, d.truth(d.size(0, x.shape[axis]))], {"axis": axis, "opset": d.opset(11)}


def constant(d):
    kind = d.pick("value", "value_float", "value_floats", "value_int", "value_ints")
    value = {"value": numpy_helper.from_array(number(d, d.shape(), d.pick(*NUMBERS.values()))), "value_float": 1.5,
             "value_floats": [0.5] * d.size(1), "value_int": 7, "value_ints": [3] * d.size(1)}[kind]
    return [], {kind: value, "opset": d.opset(12)}


def constant_of_shape(d):
    attrs = {"value": numpy_helper.from_array(number(d, (1,), d.pick(*NUMBERS.values())))} if d.flag() else {}
    return [np.array(d.shape(), I)], {**attrs, "opset": d.opset(9)}


def depth_to_space(d):
    b = d.size(1, 3)
    x = d.real((d.size(0, 2), b * b * d.size(1, 2), d.size(0, 3), d.size(1, 3)))
    return [x], {"blocksize": b, "mode": d.pick("DCR", "CRD"), "opset": d.opset(11)}


def space_to_depth(d):
    b = d.size(1, 3)
    return [d.real((d.size(0, 2), d.size(1, 3), b * d.size(1, 3), b * d.size(1, 3)))], {"blocksize": b}


def eye_like(d):
    attrs = {"dtype": d.pick(*NUMBERS)} if d.flag() else {}
    return [d.real((d.size(), d.size()))], {"k": d.size(-3, 3), **attrs, "opset": d.opset(9)}


def flatten(d):
    x = d.real(d.shape(1, 4))
    return [x], {"axis": d.size(-x.ndim, x.ndim), "opset": d.opset(11)}


def gather_nd(d):
    x = d.real(d.shape(1, 4, 1))
    batch = d.size(0, x.ndim - 1)
    depth = d.size(1, x.ndim - batch)
    rows = x.shape[:batch] + d.shape(0, 2)
    indices = np.stack([d.whole(rows, -s, s - 1) for s in x.shape[batch:batch + depth]], -1)
    return [x, indices], {"batch_dims": batch, "opset": d.opset(12), "stored": ()}


def scatter_nd(d):
    x = d.real(d.shape(1, 4, 1))
    depth = d.size(1, x.ndim)
    places = int(np.prod(x.shape[:depth]))
    flat = d.rng.permutation(places)[: d.size(1, places)]
    indices = np.stack(np.unravel_index(flat, x.shape[:depth]), -1).astype(I)
    if d.flag():
        indices -= np.array(x.shape[:depth], I)
    reduction = d.pick("none", "add", "mul", "max", "min")
    return [x, indices, d.real((len(flat), *x.shape[depth:]))], {"reduction": reduction, "opset": d.opset(18), "stored": ()}


def non_zero(d):
    return [d.whole(d.shape(1, 3), 0, 2).astype(d.pick(F, I, B))], {"opset": d.opset(9)}


def range_op(d):
    t = d.pick(F, I, np.int32)
    return [np.array(d.size(-3, 3), t), np.array(d.size(-4, 9), t), np.array(d.pick(1, 2, -1, 3), t)], {"opset": d.opset(11), "stored": ()}


def reverse_sequence(d):
    x = d.real((d.size(1), d.size(1)) + d.shape(0, 2))
    time = d.flag()
    return [x, d.whole(x.shape[1 - time], 1, x.shape[time])], {"time_axis": time, "batch_axis": 1 - time, "stored": (1,)}


def split(d):
    x = d.real(d.shape(1, 3, 1))
    axis = d.axis(x.ndim)
    parts = d.size(1, 3)
    cuts = np.sort(d.whole(parts - 1, 0, x.shape[axis]))
    sizes = np.diff(np.concatenate([[0], cuts, [x.shape[axis]]])).astype(I)
    if d.flag() and x.shape[axis] >= parts:
        chunk = -(-x.shape[axis] // parts)
        if chunk * (parts - 1) < x.shape[axis]:
            return [x], {"axis": axis, "num_outputs": parts, "outputs": parts, "opset": d.opset(18)}
    return [x, sizes], {"axis": axis, "outputs": parts, "opset": d.opset(13)}


def squeeze(d):
    shape = list(d.shape(0, 3))
    places = sorted({d.size(0, len(shape)) for _ in range(d.size(1, 2))})
    for at in places:
        shape.insert(at, 1)
    axes = [i - len(shape) if d.flag() else i for i in places]
    return [d.real(shape), np.array(axes, I)] if d.flag() else [d.real([1] * d.size(0, 3) + [4])], {"opset": d.opset(13)}


def trilu(d):
    x = d.real(d.shape(0, 2) + (d.size(), d.size()))
    return [x] + ([np.array(d.size(-4, 4), I)] if d.flag() else []), {"upper": d.flag(), "opset": d.opset(14)}


def unique(d):
    x = d.whole(d.shape(1, 2, 1), 0, 3).astype(d.pick(F, I))
    axis = d.axis(x.ndim) if d.flag() else None
    # Unsorted, the reference takes its rows from the first axis whichever is named, and sorts them where they are all it yields.
    outputs = d.size(1, 4)
    ordered = 1 if outputs == 1 or axis not in (None, 0, -x.ndim) or (axis is None and x.ndim > 1) else d.flag()
    return [x], {**({} if axis is None else {"axis": axis}), "sorted": ordered, "outputs": outputs, "opset": d.opset(11)}


def tensor_scatter(d):
    b, h, length, width = d.size(1, 2), d.size(1, 2), d.size(2, 5), d.size(1, 3)
    new, mode = d.size(1, length), d.pick("linear", "circular")
    cache, update = d.real((b, h, length, width)), d.real((b, h, new, width))
    start = [] if d.flag() else [d.whole(b, 0, length - new if mode == "linear" else length - 1)]
    return [cache, update, *start], {"mode": mode, "opset": d.opset(24)}


def upsample(d):
    x = d.real((1, d.size(1, 2), d.size(1, 3), d.size(1, 3)))
    scales = [1.0, 1.0, float(d.size(1, 3)), float(d.size(1, 3))]
    if d.flag():
        return [x], {"scales": scales, "mode": "nearest", "opset": d.pick(7, 8)}
    return [x, np.array(scales, F)], {"mode": "nearest", "opset": 9, "stored": (1,)}


def resize(d):
    spatial = d.size(1, 2)
    x = d.real((1, d.size(1, 2), *[d.size(1, 5) for _ in range(spatial)]))
    mode = d.pick("nearest", "linear", "cubic")
    attrs = {"mode": mode, "coordinate_transformation_mode": d.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")}
    if mode == "nearest":
        attrs["nearest_mode"] = d.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    elif mode == "cubic":
        attrs.update(cubic_coeff_a=d.pick(-0.75, -0.5), exclude_outside=d.flag())
    if d.flag() and mode != "nearest":
        attrs["antialias"] = 1
    attrs["opset"] = d.opset(18)
    scales = [d.pick(0.5, 0.75, 1.0, 1.5, 2.0, 3.0) for _ in range(spatial)]
    sizes = [d.size(1, 7) for _ in range(spatial)]
    by_size = d.flag()
    if 1 in (sizes if by_size else [int(s * n) for s, n in zip(scales, x.shape[2:])]) and mode != "nearest":
        attrs["coordinate_transformation_mode"] = "half_pixel"  # the reference takes -0.5 for pytorch_half_pixel's 0 there
    if by_size:
        return [x, None, None, np.array([*x.shape[:2], *sizes], I)], attrs
    return [x, None, np.array([1, 1, *scales], F)], {**attrs, "stored": (2,)}


OPS = {
    "Cast": cast, "CastLike": cast_like, "BitCast": bit_cast, "CenterCropPad": center_crop_pad, "Col2Im": col2im, "Compress": compress,
    "Constant": constant, "ConstantOfShape": constant_of_shape, "DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth,
    "EyeLike": eye_like, "Flatten": flatten, "GatherND": gather_nd, "ScatterND": scatter_nd, "NonZero": non_zero, "Range": range_op,
    "ReverseSequence": reverse_sequence, "Split": split, "Squeeze": squeeze, "Trilu": trilu, "Unique": unique,
    "TensorScatter": tensor_scatter, "Upsample": upsample, "Resize": resize,
}
