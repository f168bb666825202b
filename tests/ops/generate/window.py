# SPDX-License-Identifier: Apache-2.0
"""Convolution and pooling by their definitions in f64, compared with ONNX Runtime."""
import itertools

import numpy as np

import peers
from opcases import FLOATS, NUMBERS, Cases, Dims, array, rounded, wide


def geometry(spatial, kernel, strides, dilations, low, high, ceil=False):
    out = []
    for s, k, t, d, lo, hi in zip(spatial, kernel, strides, dilations, low, high):
        free = s + lo + hi - ((k - 1) * d + 1)
        o = (-(-free // t) if ceil else free // t) + 1
        out.append(o - 1 if ceil and (o - 1) * t >= s + lo else o)
    return out


def taps(o, kernel, strides, dilations, low):
    """(tap, position) of window o."""
    for k in itertools.product(*map(range, kernel)):
        yield k, tuple(p * t - lo + q * d for p, t, lo, q, d in zip(o, strides, low, k, dilations))


def inside(position, spatial):
    return all(0 <= p < s for p, s in zip(position, spatial))


def conv(x, w, bias, strides, dilations, low, high, groups):
    kernel, spatial = w.shape[2:], x.shape[2:]
    out = geometry(spatial, kernel, strides, dilations, low, high)
    y = np.zeros((x.shape[0], w.shape[0], *out), x.dtype)
    ci, co = w.shape[1], w.shape[0] // groups
    for o in itertools.product(*map(range, out)):
        for k, p in taps(o, kernel, strides, dilations, low):
            if inside(p, spatial):
                for g in range(groups):
                    y[(slice(None), slice(g * co, (g + 1) * co), *o)] += (
                        x[(slice(None), slice(g * ci, (g + 1) * ci), *p)] @ w[(slice(g * co, (g + 1) * co), slice(None), *k)].T)
    return y if bias is None else y + bias.reshape(1, -1, *[1] * len(kernel))


def conv_transpose(x, w, bias, strides, dilations, low, high, extra, groups):
    kernel, spatial = w.shape[2:], x.shape[2:]
    out = [(s - 1) * t + (k - 1) * d + 1 + e - lo - hi
           for s, t, k, d, e, lo, hi in zip(spatial, strides, kernel, dilations, extra, low, high)]
    ci, co = x.shape[1] // groups, w.shape[1]
    y = np.zeros((x.shape[0], co * groups, *out), x.dtype)
    for o in itertools.product(*map(range, spatial)):
        for k, p in taps(o, kernel, strides, dilations, low):
            if inside(p, out):
                for g in range(groups):
                    y[(slice(None), slice(g * co, (g + 1) * co), *p)] += (
                        x[(slice(None), slice(g * ci, (g + 1) * ci), *o)] @ w[(slice(g * ci, (g + 1) * ci), slice(None), *k)])
    return y if bias is None else y + bias.reshape(1, -1, *[1] * len(kernel))


def pool(kind, x, kernel, strides, dilations, low, high, ceil=False, count=False, p=2):
    spatial = x.shape[2:]
    out = geometry(spatial, kernel, strides, dilations, low, high, ceil)
    y, index = np.zeros((*x.shape[:2], *out), np.float64), np.zeros((*x.shape[:2], *out), np.int64)
    for n, c in np.ndindex(*x.shape[:2]):
        for o in itertools.product(*map(range, out)):
            at = [q for _, q in taps(o, kernel, strides, dilations, low)]
            padded = sum(all(a < s + hi for a, s, hi in zip(q, spatial, high)) for q in at)
            at = [q for q in at if inside(q, spatial)]
            v = np.array([x[(n, c, *q)] for q in at])
            if kind == "max":
                best = int(np.argmax(v))
                y[(n, c, *o)] = v[best]
                index[(n, c, *o)] = np.ravel_multi_index((n, c, *at[best]), x.shape)
            elif kind == "avg":
                y[(n, c, *o)] = v.sum() / (padded if count else len(v))
            else:
                y[(n, c, *o)] = (np.abs(v) ** p).sum() ** (1 / p)
    return y, index


def onnx_attrs(strides, dilations, low, high, **more):
    return dict(strides=strides, dilations=dilations, pads=low + high, **more)


CONVS = [  # x, w, strides, dilations, low, high, groups
    ((1, 1, 5), (1, 1, 3), [1], [1], [0], [0], 1),
    ((2, 3, 7), (4, 3, 2), [2], [2], [1], [2], 1),
    ((1, 3, 5, 4), (2, 3, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1], 1),
    ((2, 4, 6, 5), (6, 2, 3, 2), [2, 1], [1, 2], [1, 0], [0, 1], 2),
    ((1, 4, 5, 5), (4, 1, 3, 3), [1, 2], [1, 1], [1, 1], [1, 1], 4),
    ((1, 2, 3, 4, 3), (3, 2, 2, 2, 2), [1, 2, 1], [1, 1, 2], [0, 1, 0], [1, 0, 0], 1),
    ((1, 1, 1, 1), (1, 1, 1, 1), [1, 1], [1, 1], [0, 0], [0, 0], 1),
    ((1, 1, 23, 23), (1, 1, 1, 1), [1, 1], [1, 1], [0, 0], [0, 0], 1),
    ((0, 2, 4), (3, 2, 2), [1], [1], [0], [0], 1),
]
POOLS = [  # x, kernel, strides, dilations, low, high
    ((1, 2, 6), [2], [2], [1], [0], [0]),
    ((2, 1, 5, 6), [3, 2], [2, 2], [1, 1], [1, 0], [1, 1]),
    ((1, 2, 7, 7), [2, 3], [3, 2], [2, 1], [0, 1], [1, 1]),
    ((1, 1, 4, 3, 4), [2, 2, 2], [2, 1, 2], [1, 1, 1], [0, 1, 0], [1, 0, 0]),
    ((1, 1, 1, 1), [1, 1], [1, 1], [1, 1], [0, 0], [0, 0]),
]


def window(strides, dilations, low, high):
    return dict(strides=strides, dilations=dilations, low=Dims(low), high=Dims(high))


def refuse_windows(c, op, inputs, skip=(), **attrs):
    c.refused("W1", "usage", ["spatial axes"], op, inputs, strides=[1], **attrs)
    if "W2" not in skip:
        c.refused("W2", "usage", ["positive strides"], op, inputs, strides=[1, 0], **attrs)
    if "W3" not in skip:
        c.refused("W3", "bad_shape", ["spatial axis 0"], op, inputs, low=Dims([-4, 0]), **attrs)


def make():
    c = Cases("window")
    for dx, dw, *geo, groups in CONVS:
        for with_bias in (False, True):
            x, w = c.random(dx), c.random(dw)
            bias = c.random((dw[0],)) if with_bias else None
            y = rounded(conv(wide(x), wide(w), None if bias is None else wide(bias), *geo, groups), "f32")
            if x.size:
                peers.agree(y, peers.runtime("Conv", [x, w, bias], onnx_attrs(*geo, group=groups)), f"conv {dx} {dw}")
            c.case(f"{dx} {dw} groups {groups} bias {with_bias}", "conv", [x, w, bias], y, groups=groups, **window(*geo))
    for kind in FLOATS:
        x, w = c.random((1, 2, 4, 4), kind), c.random((2, 2, 3, 3), kind)
        c.case(kind, "conv", [x, w], rounded(conv(wide(x), wide(w), None, [1, 1], [1, 1], [0, 0], [0, 0], 1), kind))
    for kx, kw in itertools.product(("u8", "i8"), repeat=2):
        x, w = c.random((1, 2, 4, 5), kx, -128, 128), c.random((3, 2, 2, 2), kw, -128, 128)
        geo = ([1, 2], [1, 1], [1, 0], [0, 1])
        for zx, zw in [(None, None), (array(5, kx), array([1, 2, 3], kw)), (array([5], kx), array(7, kw))]:
            p = x.astype(np.int64) - (0 if zx is None else int(zx.reshape(-1)[0]))
            q = w.astype(np.int64) - (0 if zw is None else zw.astype(np.int64).reshape(-1, 1, 1, 1))
            y = conv(p, q, None, *geo, 1).astype(np.int32)
            c.case(f"{kx} {kw} zero points {None if zw is None else zw.shape}", "conv", [x, w, None, zx, zw], y, **window(*geo))
    x = ["f32[1,2,3,3]", "f32[4,2,2,2]"]
    c.refused("C1", "bad_type", ["i32"], "conv", ["i32[1,2,3]", "i32[4,2,2]"])
    c.refused("C2", "bad_shape", ["one rank"], "conv", ["f32[1,2,3]", "f32[4,2,2,2]"])
    c.refused("C3", "bad_shape", ["4 output channels into 3"], "conv", ["f32[1,6,3,3]", x[1]], groups=3)
    c.refused("C3", "usage", ["1 group or more"], "conv", x, groups=0)
    c.refused("C4", "bad_shape", ["3 channels", "need 2"], "conv", ["f32[1,3,3,3]", x[1]])
    c.refused("C5", "bad_type", ["bias"], "conv", x + ["f16[4]"])
    c.refused("C5", "bad_shape", ["5 is not 4"], "conv", x + ["f32[5]"])
    c.refused("C6", "bad_type", ["zero point"], "conv", x + [None, "f32[]"])
    refuse_windows(c, "conv", x)

    for dx, dw, *geo, groups in CONVS:
        if groups not in (1, 2) or 0 in dx:
            continue
        for extra in (0, 1):
            if extra >= max(geo[0]):
                continue
            x, w, extras = c.random(dx), c.random((dx[1], dw[0] // groups, *dw[2:])), [extra] * len(geo[0])
            extras = [min(e, s - 1) for e, s in zip(extras, geo[0])]
            bias = c.random((dw[0],)) if extra else None
            y = rounded(conv_transpose(wide(x), wide(w), None if bias is None else wide(bias), *geo, extras, groups), "f32")
            peers.agree(y, peers.reference("ConvTranspose", [x, w, bias], onnx_attrs(*geo, group=groups, output_padding=extras))
                        if len(geo[0]) == 2 and groups == 1
                        else peers.runtime("ConvTranspose", [x, w, bias], onnx_attrs(*geo, group=groups, output_padding=extras)),
                        f"conv_transpose {dx} {dw}")
            c.case(f"{dx} {dw} groups {groups} extra {extra}", "conv_transpose", [x, w, bias], y, groups=groups,
                   output_padding=extras, **window(*geo))
    x = ["f32[1,2,3,3]", "f32[2,2,2,2]"]
    c.refused("C1", "bad_type", ["u8"], "conv_transpose", ["u8[1,2,3,3]", "u8[2,2,2,2]"])
    c.refused("C2", "bad_shape", ["one rank"], "conv_transpose", ["f32[1,2]", "f32[2,2]"])
    c.refused("C3", "bad_shape", ["2 channels into 3"], "conv_transpose", x, groups=3)
    c.refused("C4", "bad_shape", ["2 is not 3"], "conv_transpose", ["f32[1,2,3,3]", "f32[3,2,2,2]"])
    c.refused("C5", "bad_shape", ["5 is not 2"], "conv_transpose", x + ["f32[5]"])
    refuse_windows(c, "conv_transpose", x, skip=["W3"])
    c.refused("W3", "bad_shape", ["size -2"], "conv_transpose", x, low=Dims([3, 0]), high=Dims([3, 0]))

    for dx, *geo in POOLS:
        for ceil in (False, True):
            x = c.random(dx)
            attrs = dict(kernel=geo[0], ceil=ceil, **window(*geo[1:]))
            peer = dict(kernel_shape=geo[0], ceil_mode=int(ceil), **onnx_attrs(*geo[1:]))
            y, index = pool("max", wide(x), *geo, ceil)
            peers.agree([y, index], peers.runtime("MaxPool", [x], peer, 2), f"max_pool {dx}")
            c.case(f"{dx} ceil {ceil}", "max_pool", [x], [rounded(y, "f32"), index], **attrs)
            for count in (False, True):
                y, _ = pool("avg", wide(x), *geo, ceil, count)
                c.case(f"{dx} ceil {ceil} count {count}", "avg_pool", [x], rounded(y, "f32"), count_padding=count, **attrs)
            y, _ = pool("lp", wide(x), *geo, ceil, p=3)
            c.case(f"{dx} ceil {ceil}", "lp_pool", [x], rounded(y, "f32"), p=3, **attrs)
    for kind in NUMBERS:
        x = c.random((1, 2, 4), kind)
        y, _ = pool("max", wide(x), [2], [1], [1], [0], [0])
        c.case(kind, "max_pool", [x], y.astype(x.dtype), kernel=[2])
    for kind in FLOATS:
        x = c.random((1, 2, 4), kind)
        c.case(kind, "avg_pool", [x], rounded(pool("avg", wide(x), [2], [1], [1], [0], [0])[0], kind), kernel=[2])
        c.case(kind, "lp_pool", [x], rounded(pool("lp", wide(x), [2], [1], [1], [0], [0])[0], kind), kernel=[2])
    x = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)
    y, index = peers.runtime("MaxPool", [x], dict(kernel_shape=[2, 3], strides=[2, 3], storage_order=1), 2)
    c.case("column-major index", "max_pool", [x], [y, index], kernel=[2, 3], strides=[2, 3], row_major=False)
    c.case("NaN wins", "max_pool", [array([[[1, np.nan, 2, 0]]])], array([[[np.nan, 2]]]), kernel=[2], strides=[2])
    x = array([[[1, 4, 2.5]]])
    for op, y in (("max_pool", 4), ("avg_pool", 2.5), ("lp_pool", rounded(np.sqrt(np.float64(23.25)), "f32"))):
        c.case("window far larger than the data", op, [x], np.full((1, 1, 4), y, np.float32), kernel=[2**61],
               low=Dims([2**60]), high=Dims([2**60]))
    for op in ("max_pool", "avg_pool", "lp_pool"):
        c.refused("C1", "bad_type", ["bool"], op, ["bool[1,2,3]"], kernel=[2])
        c.refused("C2", "bad_shape", ["rank 3"], op, ["f32[2,3]"], kernel=[2])
        refuse_windows(c, op, ["f32[1,2,3,3]"], kernel=[2, 2])
    c.refused("C3", "usage", ["1 or more"], "lp_pool", ["f32[1,2,3]"], kernel=[2], p=0)

    x, index = array([[[[5, 7], [13, 15]]]]), array([[[[5, 7], [13, 15]]]], "i64")
    y = np.zeros((1, 1, 4, 4), np.float32)
    y[0, 0, [1, 1, 3, 3], [1, 3, 1, 3]] = [5, 7, 13, 15]
    c.case("natural shape", "max_unpool", [x, index], y, kernel=[2, 2], strides=[2, 2])
    c.case("larger shape", "max_unpool", [x, index, array([1, 1, 5, 5], "i64")], np.pad(y, [(0, 0), (0, 0), (0, 1), (0, 1)]),
           kernel=[2, 2], strides=[2, 2])
    c.refused("C1", "bad_type", ["i32"], "max_unpool", ["f32[1,1,2]", "i32[1,1,2]"], kernel=[2])
    c.refused("C2", "bad_shape", ["rank 3"], "max_unpool", ["f32[1,2]", "i64[1,2]"], kernel=[2])
    c.refused("C3", "bad_type", ["i64[rank]"], "max_unpool", ["f32[1,1,2]", "i64[1,1,2]", "i32[3]"], kernel=[2])
    c.refused("W1", "usage", ["spatial axes"], "max_unpool", ["f32[1,1,2]", "i64[1,1,2]"], kernel=[2, 2])
    c.fails("bad_shape", ["index 9"], "max_unpool", [array([[[1]]]), array([[[9]]], "i64")], "f32[1,1,2]", kernel=[2])
    c.write()


make()
