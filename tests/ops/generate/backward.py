# SPDX-License-Identifier: Apache-2.0
"""Backward forms of norms, losses, attention, convolution and pooling, from their formulas in f64; and `after`."""

import itertools

import numpy as np
from casegen import Cases

c = Cases("backward")
B = {"rtol": 2e-6, "atol": 2e-6}


def f(a):
    return np.asarray(a, np.float32)


def wide(*arrays):
    return [None if a is None else a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]


# --- norms ---------------------------------------------------------------------------------------------------------
def input_gradient(s, h, rstd, axes, centred):
    rest = h * (s * h).mean(axes, keepdims=True)
    if centred:
        rest = rest + s.mean(axes, keepdims=True)
    return rstd * (s - rest)


for shape, axis in [((2, 3, 4), -1), ((2, 3, 4), 1), ((5, 1), 1)]:
    first = axis % len(shape)
    axes, outer, tail = tuple(range(first, len(shape))), tuple(range(first)), shape[first:]
    stats = shape[:first] + (1,) * len(tail)
    for scaled in [False, True]:
        g, x, mean, rstd = c.normal(*shape), c.normal(*shape), c.normal(*stats), c.uniform(0.5, 2, *stats)
        scale = c.normal(*tail) if scaled else None
        g64, x64, m64, r64, s64 = wide(g, x, mean, rstd, scale)
        s = g64 * s64 if scaled else g64
        name = f"{'x'.join(map(str, shape))}_{axis}_{int(scaled)}"
        for op, h, ins in [("layer_norm_backward", (x64 - m64) * r64, [g, x, mean, rstd, scale]),
                           ("rms_norm_backward", x64 * r64, [g, x, rstd, scale])]:
            outs = [f(input_gradient(s, h, r64, axes, op[0] == "l")), f((g64 * h).sum(outer)), f(g64.sum(outer))]
            c.one(f"{op}_{name}", op, ins if scaled else ins[:-1], outs if op[0] == "l" else outs[:2],
                  f"axis = {axis}", **B)

for shape in [(4, 3), (2, 3, 4), (2, 4, 2, 3)]:
    n = shape[1]
    g, x, scale, mean, rstd = c.normal(*shape), c.normal(*shape), c.normal(n), c.normal(n), c.uniform(0.5, 2, n)
    g64, x64, s64, m64, r64 = wide(g, x, scale, mean, rstd)
    axes, per = (0,) + tuple(range(2, len(shape))), (1, n) + (1,) * (len(shape) - 2)
    h = (x64 - m64.reshape(per)) * r64.reshape(per)
    dx = input_gradient(g64 * s64.reshape(per), h, r64.reshape(per), axes, True)
    c.one(f"batch_norm_backward_{len(shape)}", "batch_norm_backward", [g, x, scale, mean, rstd],
          [f(dx), f((g64 * h).sum(axes)), f(g64.sum(axes))], **B)

for groups in [1, 2, 4]:
    shape = (2, 4, 3)
    g, x, scale = c.normal(*shape), c.normal(*shape), c.normal(4)
    mean, rstd = c.normal(2, groups), c.uniform(0.5, 2, 2, groups)
    g64, x64, s64, m64, r64 = wide(g, x, scale, mean, rstd)
    apart = (2, groups, 12 // groups)
    r, m = r64[:, :, None], m64[:, :, None]
    h = (x64.reshape(apart) - m) * r
    dx = input_gradient((g64 * s64[None, :, None]).reshape(apart), h, r, (2,), True).reshape(shape)
    h = h.reshape(shape)
    c.one(f"group_norm_backward_{groups}", "group_norm_backward", [g, x, scale, mean, rstd],
          [f(dx), f((g64 * h).sum((0, 2))), f(g64.sum((0, 2)))], f"groups = {groups}", **B)

# --- cross entropy -------------------------------------------------------------------------------------------------
for shape in [(4, 5), (2, 3, 4)]:
    for reduction in ["none", "sum", "mean"]:
        for weighted, ignore in [(False, None), (True, 1)]:
            x, labels = c.normal(*shape, scale=2), c.ints(0, shape[1], shape[0], *shape[2:])
            weights = c.uniform(0.2, 2, shape[1]) if weighted else None
            x64, w64 = wide(x, weights)
            lse = np.log(np.exp(x64).sum(1))
            g = c.normal(*labels.shape) if reduction == "none" else c.normal()
            kept = labels != ignore if ignore is not None else np.ones(labels.shape, bool)
            w = np.where(kept, w64[labels] if weighted else 1.0, 0.0)
            factor = g.astype(np.float64) * w / (w.sum() if reduction == "mean" else 1)
            hit = np.moveaxis(np.eye(shape[1])[labels], -1, 1)
            lse32 = f(lse)
            dx = (np.exp(x64 - lse32.astype(np.float64)[:, None]) - hit) * factor[:, None]
            attrs = f'reduction = "{reduction}"' + ("" if ignore is None else f", ignore = {ignore}")
            c.one(f"cross_entropy_backward_{len(shape)}_{reduction}_{int(weighted)}", "cross_entropy_backward",
                  [g, x, labels, lse32] + ([weights] if weighted else []), [f(dx)], attrs, **B)

# --- attention -----------------------------------------------------------------------------------------------------
for causal, masked, heads in [(False, False, 2), (True, False, 2), (False, True, 4)]:
    n, groups, queries, keys, depth, width = 1, 2, 3, 3, 2, 4
    def small(*shape):
        return c.normal(*shape, scale=0.5)

    g, y = small(n, heads, queries, width), small(n, heads, queries, width)
    q, k, v = small(n, heads, queries, depth), small(n, groups, keys, depth), small(n, groups, keys, width)
    lse, mask = c.uniform(1, 3, n, heads, queries), c.normal(queries, keys) if masked else None
    g64, y64, q64, k64, v64, l64, m64 = wide(g, y, q, k, v, lse, mask)
    each = heads // groups
    kk, vv = k64.repeat(each, 1), v64.repeat(each, 1)
    s = q64 @ kk.swapaxes(2, 3) / np.sqrt(depth)
    if masked:
        s = s + m64
    if causal:
        s = np.where(np.tril(np.ones((queries, keys), bool)), s, -np.inf)
    p = np.exp(s - l64[..., None])
    ds = p * (g64 @ vv.swapaxes(2, 3) - (g64 * y64).sum(-1, keepdims=True)) / np.sqrt(depth)

    def summed(a):
        return a.reshape(n, groups, each, *a.shape[2:]).sum(2)

    c.one(f"attention_backward_{int(causal)}_{int(masked)}", "attention_backward",
          [g, q, k, v, y, lse] + ([mask] if masked else []),
          [f(ds @ kk), f(summed(ds.swapaxes(2, 3) @ q64)), f(summed(p.swapaxes(2, 3) @ g64))],
          "causal = true" if causal else "", **B)


# --- convolution and pooling ---------------------------------------------------------------------------------------
def windows(spatial, out, kernel, strides, low, dilations):
    """(position, tap, place in the image) of every tap inside it."""
    for o in itertools.product(*map(range, out)):
        for k in itertools.product(*map(range, kernel)):
            at = tuple(o[d] * strides[d] - low[d] + k[d] * dilations[d] for d in range(len(out)))
            if all(0 <= at[d] < spatial[d] for d in range(len(out))):
                yield o, k, at


for name, x_shape, w_shape, strides, low, dilations, groups in [
    ("1d", (2, 2, 5), (3, 2, 3), (1,), (1,), (1,), 1),
    ("2d", (1, 4, 5, 4), (4, 2, 2, 2), (2, 1), (0, 1), (1, 2), 2),
    ("3d", (1, 1, 3, 3, 2), (2, 1, 2, 2, 2), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1),
]:
    spatial, kernel = x_shape[2:], w_shape[2:]
    out = tuple((spatial[d] + low[d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in range(len(spatial)))
    g, x, w = c.normal(x_shape[0], w_shape[0], *out), c.normal(*x_shape), c.normal(*w_shape)
    g64, x64, w64 = wide(g, x, w)
    dx, dw = np.zeros(x_shape), np.zeros(w_shape)
    inputs, outputs = x_shape[1] // groups, w_shape[0] // groups
    for o, k, at in windows(spatial, out, kernel, strides, low, dilations):
        for q in range(groups):
            i, j = slice(q * inputs, (q + 1) * inputs), slice(q * outputs, (q + 1) * outputs)
            dx[(slice(None), i) + at] += g64[(slice(None), j) + o] @ w64[(j, slice(None)) + k]
            dw[(j, slice(None)) + k] += g64[(slice(None), j) + o].T @ x64[(slice(None), i) + at]
    attrs = f"strides = {list(strides)}, low = dims{list(low)}, dilations = {list(dilations)}, groups = {groups}"
    c.one(f"conv_backward_data_{name}", "conv_backward_data", [g, w], [f(dx)], f"dims = dims{list(x_shape)}, {attrs}", **B)
    c.one(f"conv_backward_weights_{name}", "conv_backward_weights", [g, x], [f(dw)], f"kernel = {list(kernel)}, {attrs}", **B)

x_shape, kernel, strides, low = (1, 2, 5, 4), (3, 2), (2, 1), (1, 0)
out = (2, 3)
g, x = c.normal(1, 2, *out), c.normal(*x_shape)
g64, x64 = wide(g, x)
best, averaged = np.zeros(x_shape), np.zeros(x_shape)
taps = {}
for o, k, at in windows(x_shape[2:], out, kernel, strides, low, (1, 1)):
    taps.setdefault(o, []).append(at)
for o, places in taps.items():
    for ch in range(2):
        top = max(places, key=lambda p: x64[(0, ch) + p])
        best[(0, ch) + top] += g64[(0, ch) + o]
        for p in places:
            averaged[(0, ch) + p] += g64[(0, ch) + o] / len(places)
pool = "kernel = [3, 2], strides = [2, 1], low = dims[1, 0]"
c.one("max_pool_backward", "max_pool_backward", [g, x], [f(best)], pool, **B)
c.one("avg_pool_backward", "avg_pool_backward", [g], [f(averaged)], f"dims = dims{list(x_shape)}, {pool}", **B)
c.one("after", "after", [x, g], [x])

# --- refusals ------------------------------------------------------------------------------------------------------
line = "  %r{} = {}({}) {{{}}} : {}\n  return %r"


def refuse(name, code, words, op, types, attrs, result="f32[]", more=""):
    attrs = attrs.rstrip(", ")
    c.refuse(name, code, words, line.format(more, op, ", ".join(f"%{i}" for i in range(len(types))), attrs, result), types)


refuse("layer_norm_backward_type", "bad_type", ["layer_norm_backward", "C1", "i32"], "layer_norm_backward",
       ["i32[2,3]", "f32[2,3]", "f32[2,1]", "f32[2,1]"], "")
refuse("layer_norm_backward_shape", "bad_shape", ["layer_norm_backward", "C2"], "layer_norm_backward",
       ["f32[2,4]", "f32[2,3]", "f32[2,1]", "f32[2,1]"], "")
refuse("rms_norm_backward_statistic", "bad_shape", ["rms_norm_backward", "C3"], "rms_norm_backward",
       ["f32[2,3]", "f32[2,3]", "f32[2]"], "")
refuse("rms_norm_backward_scale", "bad_shape", ["rms_norm_backward", "C4"], "rms_norm_backward",
       ["f32[2,3]", "f32[2,3]", "f32[2,1]", "f32[4]"], "")
refuse("batch_norm_backward_scale", "bad_shape", ["batch_norm_backward", "C4"], "batch_norm_backward",
       ["f32[2,3]", "f32[2,3]", "f32[4]", "f32[3]", "f32[3]"], "")
refuse("group_norm_backward_groups", "bad_shape", ["group_norm_backward", "C5", "3"], "group_norm_backward",
       ["f32[2,4,1]", "f32[2,4,1]", "f32[4]", "f32[2,3]", "f32[2,3]"], "groups = 3")
ce = ["f32[]", "f32[4,3]", "i64[4]", "f32[4]"]
refuse("cross_entropy_backward_labels", "bad_type", ["cross_entropy_backward", "C1", "f32"], "cross_entropy_backward",
       ["f32[]", "f32[4,3]", "f32[4]", "f32[4]"], "")
refuse("cross_entropy_backward_shape", "bad_shape", ["cross_entropy_backward", "C2"], "cross_entropy_backward",
       ["f32[4]", "f32[4,3]", "i64[4]", "f32[4]"], "")
refuse("cross_entropy_backward_reduction", "usage", ["cross_entropy_backward", "C3", "'max'"], "cross_entropy_backward",
       ce, 'reduction = "max"')
qkv = ["f32[1,2,3,4]", "f32[1,2,3,2]", "f32[1,2,5,2]", "f32[1,2,5,4]", "f32[1,2,3,4]"]
refuse("attention_backward_lse", "bad_shape", ["attention_backward", "C3"], "attention_backward", qkv + ["f32[1,2]"], "",
       more=", %s, %t", result="f32[], f32[], f32[]")
refuse("attention_backward_keys", "bad_shape", ["attention_backward", "C2"], "attention_backward",
       qkv[:2] + ["f32[1,2,4,2]"] + qkv[3:] + ["f32[1,2,3]"], "", more=", %s, %t", result="f32[], f32[], f32[]")
refuse("attention_backward_type", "bad_type", ["attention_backward", "C1"], "attention_backward",
       qkv + ["f64[1,2,3]"], "", more=", %s, %t", result="f32[], f32[], f32[]")
refuse("attention_backward_mask", "bad_type", ["attention_backward", "C4", "i64"], "attention_backward",
       qkv + ["f32[1,2,3]", "i64[3,5]"], "", more=", %s, %t", result="f32[], f32[], f32[]")
for op, attrs, types in [("conv_backward_data", "dims = dims[1, 2, 5], ", ["f32[1,3,4]", "f32[3,2,2]"]),
                         ("conv_backward_weights", "kernel = [2], ", ["f32[1,3,4]", "f32[1,2,5]"])]:
    refuse(f"{op}_type", "bad_type", [op, "C1"], op, ["f32[1,3,4]", types[1].replace("f32", "f64")], attrs)
    refuse(f"{op}_groups", "bad_shape", [op, "C3"], op, types, attrs + "groups = 3")
    refuse(f"{op}_size", "bad_shape", [op, "C5"], op, ["f32[1,3,3]", types[1]], attrs)
    refuse(f"{op}_batch", "bad_shape", [op, "C4"], op, ["f32[2,3,4]", types[1]], attrs)
refuse("conv_backward_data_rank", "bad_shape", ["conv_backward_data", "C2"], "conv_backward_data",
       ["f32[1,3]", "f32[3,2,2]"], "dims = dims[1, 2, 5]")
refuse("max_pool_backward_size", "bad_shape", ["max_pool_backward", "C3"], "max_pool_backward",
       ["f32[1,1,3]", "f32[1,1,5]"], "kernel = [2]")
refuse("avg_pool_backward_rank", "bad_shape", ["avg_pool_backward", "C2"], "avg_pool_backward", ["f32[1,1]"],
       "kernel = [2], dims = dims[1, 1]")
refuse("max_pool_backward_type", "bad_type", ["max_pool_backward", "C1"], "max_pool_backward",
       ["i32[1,1,4]", "i32[1,1,5]"], "kernel = [2]")
c.write()
