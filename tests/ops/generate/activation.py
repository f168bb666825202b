# SPDX-License-Identifier: Apache-2.0
import math

import ml_dtypes
import numpy as np
from casegen import Cases

c = Cases("activation")
erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.logaddexp(0, x)


def selu(x, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return gamma * np.where(x > 0, x, alpha * np.expm1(x))


FUNCTIONS = {
    "gelu": ("gelu", "", lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))),
    "gelu_tanh": ("gelu", "tanh = true",
                  lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "silu": ("silu", "", lambda x: x * sigmoid(x)),
    "hard_sigmoid": ("hard_sigmoid", "", lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "hard_sigmoid_attrs": ("hard_sigmoid", "alpha = 0.5, beta = 0.6", lambda x: np.clip(0.5 * x + 0.6, 0, 1)),
    "hard_swish": ("hard_swish", "", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "leaky_relu": ("leaky_relu", "", lambda x: np.where(x < 0, 0.01 * x, x)),
    "leaky_relu_alpha": ("leaky_relu", "alpha = -1.5", lambda x: np.where(x < 0, -1.5 * x, x)),
    "elu": ("elu", "alpha = 2.0", lambda x: np.where(x < 0, 2 * np.expm1(x), x)),
    "selu": ("selu", "", selu),
    "selu_attrs": ("selu", "alpha = 2.0, gamma = 3.0", lambda x: selu(x, 2, 3)),
    "celu": ("celu", "alpha = 2.0", lambda x: np.maximum(0, x) + np.minimum(0, 2 * np.expm1(x / 2))),
    "mish": ("mish", "", lambda x: x * np.tanh(softplus(x))),
    "softsign": ("softsign", "", lambda x: x / (1 + np.abs(x))),
}
for name, (op, attrs, f) in FUNCTIONS.items():
    for shape in [(3, 4), (), (2, 0)]:
        x = c.normal(*shape, scale=2.5)
        suffix = "x".join(map(str, shape)) or "scalar"
        c.one(f"{name}_{suffix}", op, [x], [f(x.astype(np.float64)).astype(np.float32)], attrs, rtol=1e-6, atol=1e-7)
    for t in [np.float64, np.float16, ml_dtypes.bfloat16]:
        x = c.normal(5, scale=2).astype(t)
        bounds = {"rtol": 1e-9, "atol": 1e-12} if t == np.float64 else {}
        c.one(f"{name}_{np.dtype(t).name}", op, [x], [f(x.astype(np.float64)).astype(t)], attrs, **bounds)
special = np.array([np.nan, np.inf, 0, 90, -90], np.float32)
c.one("leaky_relu_special", "leaky_relu", [special], [np.array([np.nan, np.inf, 0, 90, -0.9], np.float32)])
c.one("hard_swish_special", "hard_swish", [special], [np.array([np.nan, np.inf, 0, 90, 0], np.float32)])
c.one("elu_special", "elu", [special], [np.array([np.nan, np.inf, 0, 90, -1], np.float32)])
for op in sorted({op for op, _, _ in FUNCTIONS.values()}):
    c.refuse(f"{op}_integer", "bad_type", [op, "C1", "not i32"], f"  %r = {op}(%0) : i32[2]\n  return %r", ["i32[2]"])

x, slope = c.normal(2, 3, 4), c.normal(3, 1)
c.one("prelu_channels", "prelu", [x, slope], [np.where(x < 0, x * slope, x)])
c.one("prelu_scalar", "prelu", [x, np.float32(0.25)], [np.where(x < 0, x * np.float32(0.25), x)])
i = c.ints(-9, 9, 6, dtype=np.int32)
c.one("prelu_integer", "prelu", [i, np.array([3], np.int32)], [np.where(i < 0, i * 3, i).astype(np.int32)])
c.refuse("prelu_shape", "bad_shape", ["prelu", "C3", "[4]"], "  %r = prelu(%0, %1) : f32[2,3]\n  return %r",
         ["f32[2,3]", "f32[4]"])
c.refuse("prelu_types", "bad_type", ["prelu", "C2", "f32 and f64"], "  %r = prelu(%0, %1) : f32[2]\n  return %r",
         ["f32[2]", "f64[2]"])
c.refuse("prelu_bool", "bad_type", ["prelu", "C1", "bool"], "  %r = prelu(%0, %1) : bool[2]\n  return %r",
         ["bool[2]", "bool[2]"])

x = np.append(c.normal(2, 4, scale=3).reshape(-1), [np.nan, np.inf]).astype(np.float32)
low, high = np.float32(-1.5), np.float32(2)
c.one("clamp_both", "clamp", [x, low, high], [np.clip(x, low, high)])
c.one("clamp_low", "clamp", [x, low], [np.maximum(x, low)])
c.one("clamp_high", "clamp", [x, None, high], [np.minimum(x, high)])
c.one("clamp_none", "clamp", [x], [x])
c.one("clamp_crossed", "clamp", [x[:9], high, low], [np.where(np.isnan(x[:9]), x[:9], low)])
c.one("clamp_one_element", "clamp", [np.float32(7), np.array([1], np.float32), np.array([3], np.float32)],
      [np.float32(3)])
for t in [np.int8, np.int64, np.uint64, np.uint8, np.float16]:
    v = np.array([0, 1, 5, 100, 127], t)
    c.one(f"clamp_{np.dtype(t).name}", "clamp", [v, t(1), t(100)], [np.clip(v, t(1), t(100))])
big = np.array([0, 2**63, 2**64 - 1], np.uint64)
c.one("clamp_uint64_wide", "clamp", [big, np.uint64(1), np.uint64(2**63 + 5)],
      [np.array([1, 2**63, 2**63 + 5], np.uint64)])
c.refuse("clamp_bound", "bad_shape", ["clamp", "C3", "[2]"], "  %r = clamp(%0, %1) : f32[4]\n  return %r",
         ["f32[4]", "f32[2]"])
c.refuse("clamp_bound_type", "bad_type", ["clamp", "C2", "f32 and i32"], "  %r = clamp(%0, %1) : f32[4]\n  return %r",
         ["f32[4]", "i32[]"])
c.refuse("clamp_bool", "bad_type", ["clamp", "C1", "bool"], "  %r = clamp(%0) : bool[4]\n  return %r", ["bool[4]"])
c.write()
