# SPDX-License-Identifier: Apache-2.0
import ml_dtypes
import numpy as np
from casegen import Cases

c = Cases("norm")
SOFT = {"rtol": 1e-6, "atol": 1e-7}


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis, keepdims=True)


def log_softmax(x, axis):
    s = x - x.max(axis, keepdims=True, initial=-np.inf)
    return s - np.log(np.exp(s).sum(axis, keepdims=True))


for name, f in {"softmax": softmax, "log_softmax": log_softmax}.items():
    for shape, axis in [((2, 5), -1), ((3, 4, 2), 1), ((4,), 0), ((0, 3), 1), ((2, 1), 1), ((2, 0), 1)]:
        x = c.normal(*shape, scale=3)
        y = f(x.astype(np.float64), axis).astype(np.float32)
        c.one(f"{name}_{'x'.join(map(str, shape))}_axis{axis}", name, [x], [y], f"axis = {axis}", **SOFT)
    x = np.array([[1000, 1001, -np.inf]], np.float32)
    c.one(f"{name}_large", name, [x], [f(x.astype(np.float64), -1).astype(np.float32)], **SOFT)
    x = c.normal(2, 6).astype(np.float16)
    c.one(f"{name}_f16", name, [x], [f(x.astype(np.float64), -1).astype(np.float16)])
    c.refuse(f"{name}_axis", "bad_shape", [name, "axis 2", "[-2, 1]"],
             f"  %r = {name}(%0) {{axis = 2}} : f32[2,3]\n  return %r", ["f32[2,3]"])
    c.refuse(f"{name}_type", "bad_type", [name, "C1", "i64"], f"  %r = {name}(%0) : i64[2]\n  return %r", ["i64[2]"])


def layer_norm(x, axis, eps, scale=None, bias=None):
    x64 = x.astype(np.float64)
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = x64.mean(axes, keepdims=True)
    rstd = 1 / np.sqrt(x64.var(axes, keepdims=True) + eps)
    y = (x64 - mean) * rstd
    y = y if scale is None else y * scale.astype(np.float64)
    y = y if bias is None else y + bias.astype(np.float64)
    wide = np.float64 if x.dtype == np.float64 else np.float32
    return y.astype(x.dtype), mean.astype(wide), rstd.astype(wide)


def rms_norm(x, axis, eps, scale=None):
    x64 = x.astype(np.float64)
    axes = tuple(range(axis % x.ndim, x.ndim))
    rstd = 1 / np.sqrt((x64**2).mean(axes, keepdims=True) + eps)
    y = x64 * rstd * (1 if scale is None else scale.astype(np.float64))
    return y.astype(x.dtype), rstd.astype(np.float32)


for shape, axis in [((2, 3, 4), -1), ((2, 3, 4), 1), ((5,), 0), ((0, 4), -1), ((3, 1), -1), ((2, 3, 4), 0)]:
    for with_scale in [0, 1, 2]:
        x = c.normal(*shape, scale=2)
        tail = shape[axis % len(shape):]
        scale, bias = c.normal(*tail), c.normal(*tail)
        operands = [[x], [x, scale], [x, scale, bias]][with_scale]
        name = f"{'x'.join(map(str, shape))}_axis{axis}_{with_scale}"
        attrs = f"axis = {axis}, eps = 0.01"
        c.one(f"layer_norm_{name}", "layer_norm", operands, layer_norm(x, axis, 0.01, *operands[1:]), attrs, **SOFT)
        if with_scale < 2:
            c.one(f"rms_norm_{name}", "rms_norm", operands, rms_norm(x, axis, 0.01, *operands[1:]), attrs, **SOFT)
x, scale, bias = c.normal(3, 8), c.normal(8), c.normal(8)
c.one("layer_norm_one_result", "layer_norm", [x, None, bias], layer_norm(x, -1, 1e-5, None, bias)[:1], **SOFT)
h = [v.astype(np.float16) for v in (x, scale, bias)]
c.one("layer_norm_f16", "layer_norm", h, layer_norm(h[0], -1, 1e-5, *h[1:]), rtol=2e-3, atol=1e-4)
h = x.astype(ml_dtypes.bfloat16)
c.one("rms_norm_bf16", "rms_norm", [h, scale], rms_norm(h, -1, 1e-5, scale), rtol=8e-3, atol=1e-4)
c.refuse("layer_norm_scale", "bad_shape", ["layer_norm", "C2", "[3]"],
         "  %r = layer_norm(%0, %1) : f32[2,4]\n  return %r", ["f32[2,4]", "f32[3]"])
c.refuse("layer_norm_axis", "bad_shape", ["layer_norm", "axis 5"],
         "  %r = layer_norm(%0) {axis = 5} : f32[2,4]\n  return %r", ["f32[2,4]"])
c.refuse("layer_norm_type", "bad_type", ["layer_norm", "C1", "i8"],
         "  %r = layer_norm(%0) : i8[2,4]\n  return %r", ["i8[2,4]"])
c.refuse("rms_norm_scale", "bad_shape", ["rms_norm", "C2"],
         "  %r = rms_norm(%0, %1) : f32[2,4]\n  return %r", ["f32[2,4]", "f32[4,1,1]"])


def channels(v, x):
    return v.astype(np.float64).reshape((-1,) + (1,) * (x.ndim - 2)) if x.ndim >= 2 else v.astype(np.float64)


def batch_norm(x, scale, bias, mean, var, eps):
    s, b, m, v = (channels(p, x) for p in (scale, bias, mean, var))
    return ((x.astype(np.float64) - m) / np.sqrt(v + eps) * s + b).astype(x.dtype)


for shape in [(2, 3, 4, 5), (2, 3), (2, 3, 2), (4,), (0, 3, 2), (1, 1, 1, 1)]:
    C = shape[1] if len(shape) > 1 else 1
    x, scale, bias, mean, var = c.normal(*shape), c.normal(C), c.normal(C), c.normal(C), c.uniform(0.1, 2, C)
    name = "x".join(map(str, shape))
    c.one(f"batch_norm_{name}", "batch_norm", [x, scale, bias, mean, var],
          [batch_norm(x, scale, bias, mean, var, 1e-3)], "eps = 0.001", **SOFT)
    if x.size:
        axes = (0,) + tuple(range(2, x.ndim))
        m, v = x.astype(np.float64).mean(axes).reshape(C), x.astype(np.float64).var(axes).reshape(C)
        outs = [batch_norm(x, scale, bias, m, v, 1e-3), mean * 0.8 + m * 0.2, var * 0.8 + v * 0.2, m,
                1 / np.sqrt(v + 1e-3)]
        c.one(f"batch_norm_train_{name}", "batch_norm_train", [x, scale, bias, mean, var],
              [o.astype(np.float32) for o in outs], "eps = 0.001, momentum = 0.8", **SOFT)
parameters = ["f32[3]"] * 4
c.refuse("batch_norm_channels", "bad_shape", ["batch_norm", "C2", "3 is not 4"],
         "  %r = batch_norm(%0, %1, %2, %3, %4) : f32[2,4,5]\n  return %r", ["f32[2,4,5]", *parameters])
c.refuse("batch_norm_rank", "bad_shape", ["batch_norm", "C2", "[3,1]"],
         "  %r = batch_norm(%0, %1, %2, %3, %4) : f32[2,3,5]\n  return %r", ["f32[2,3,5]", "f32[3,1]", *parameters[1:]])
c.refuse("batch_norm_type", "bad_type", ["batch_norm", "C1", "input 2"],
         "  %r = batch_norm(%0, %1, %2, %3, %4) : f32[2,3]\n  return %r",
         ["f32[2,3]", "f32[3]", "i32[3]", "f32[3]", "f32[3]"])

for shape, groups in [((2, 6, 3), 3), ((2, 4, 2, 2), 4), ((1, 4), 1), ((0, 4, 3), 2), ((3, 2, 1), 1)]:
    x, scale, bias = c.normal(*shape), c.normal(shape[1]), c.normal(shape[1])
    g = x.astype(np.float64).reshape(shape[0], groups, shape[1] // groups * int(np.prod(shape[2:], dtype=int)))
    mean, rstd = g.mean(2), 1 / np.sqrt(g.var(2) + 1e-5)
    y = ((g - mean[..., None]) * rstd[..., None]).reshape(shape) * channels(scale, x) + channels(bias, x)
    c.one(f"group_norm_{'x'.join(map(str, shape))}_{groups}", "group_norm", [x, scale, bias],
          [y.astype(np.float32), mean.astype(np.float32), rstd.astype(np.float32)], f"groups = {groups}", **SOFT)
c.refuse("group_norm_groups", "bad_shape", ["group_norm", "C3", "4 channels into 3"],
         "  %r = group_norm(%0, %1, %1) {groups = 3} : f32[2,4]\n  return %r", ["f32[2,4]", "f32[4]"])
c.refuse("group_norm_none", "usage", ["group_norm", "C3", "0 groups"],
         "  %r = group_norm(%0, %1, %1) {groups = 0} : f32[2,4]\n  return %r", ["f32[2,4]", "f32[4]"])
c.refuse("group_norm_rank", "bad_shape", ["group_norm", "C2", "[4]"],
         "  %r = group_norm(%0, %0, %0) {groups = 1} : f32[4]\n  return %r", ["f32[4]"])

for shape, size in [((2, 5, 3), 3), ((1, 4, 2, 2), 4), ((2, 3), 1), ((1, 2, 2), 7), ((0, 3, 2), 3)]:
    x = c.normal(*shape, scale=3)
    square = np.zeros(shape)
    for k in range(shape[1]):
        lo, hi = max(0, k - (size - 1) // 2), min(shape[1], k + size // 2 + 1)
        square[:, k] = (x[:, lo:hi].astype(np.float64) ** 2).sum(1)
    y = x / (2 + 0.5 / size * square) ** 0.75
    c.one(f"lrn_{'x'.join(map(str, shape))}_{size}", "lrn", [x], [y.astype(np.float32)],
          f"size = {size}, alpha = 0.5, bias = 2.0", **SOFT)
c.refuse("lrn_size", "usage", ["lrn", "C3", "size 0"], "  %r = lrn(%0) {size = 0} : f32[2,4]\n  return %r", ["f32[2,4]"])
c.refuse("lrn_rank", "bad_shape", ["lrn", "C2"], "  %r = lrn(%0) {size = 3} : f32[4]\n  return %r", ["f32[4]"])

for p in [1, 2]:
    for shape, axis in [((3, 4), -1), ((2, 3, 2), 1), ((0, 2), 1), ((2, 0), 1)]:
        x = c.normal(*shape)
        if x.size:
            x[0] = 0
        n = np.linalg.norm(x.astype(np.float64), p, axis, keepdims=True) if x.size else np.ones(shape)
        y = np.divide(x, n, out=np.zeros(shape), where=n != 0)
        c.one(f"lp_norm_{'x'.join(map(str, shape))}_p{p}", "lp_norm", [x], [y.astype(np.float32)],
              f"axis = {axis}, p = {p}", **SOFT)
c.refuse("lp_norm_p", "usage", ["lp_norm", "C2", "p 3"], "  %r = lp_norm(%0) {p = 3} : f32[2,4]\n  return %r",
         ["f32[2,4]"])
c.refuse("batch_norm_train_type", "bad_type", ["batch_norm_train", "C1", "i32"],
         "  %r, %m, %v = batch_norm_train(%0, %1, %1, %1, %1) : f32[2,3], f32[3], f32[3]\n  return %r",
         ["f32[2,3]", "i32[3]"])
c.refuse("batch_norm_train_channels", "bad_shape", ["batch_norm_train", "C2", "4 is not 3"],
         "  %r, %m, %v = batch_norm_train(%0, %1, %1, %1, %1) : f32[2,3], f32[3], f32[3]\n  return %r",
         ["f32[2,3]", "f32[4]"])
c.refuse("group_norm_type", "bad_type", ["group_norm", "C1", "i32"],
         "  %r = group_norm(%0, %1, %1) {groups = 2} : f32[2,4]\n  return %r", ["f32[2,4]", "i32[4]"])
c.refuse("lrn_type", "bad_type", ["lrn", "C1", "i32"], "  %r = lrn(%0) {size = 3} : i32[2,4]\n  return %r", ["i32[2,4]"])
c.refuse("lp_norm_type", "bad_type", ["lp_norm", "C1", "i32"], "  %r = lp_norm(%0) : i32[2,4]\n  return %r", ["i32[2,4]"])
c.refuse("rms_norm_type", "bad_type", ["rms_norm", "C1", "bool"], "  %r = rms_norm(%0) : bool[4]\n  return %r", ["bool[4]"])
c.write()
