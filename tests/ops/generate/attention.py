# SPDX-License-Identifier: Apache-2.0
import numpy as np
from casegen import Cases

c = Cases("attention")
f32 = np.float32
BOUNDS = {"rtol": 2e-6, "atol": 2e-7, "decomposed": 1e-5}


def attention(q, k, v, mask=None, scale=0, causal=False, softcap=0):
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    repeat = q.shape[1] // max(k.shape[1], 1)
    k, v = np.repeat(k, repeat, 1), np.repeat(v, repeat, 1)
    s = np.einsum("nhld,nhmd->nhlm", q, k) * (scale or 1 / np.sqrt(q.shape[3]))
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    L, M = s.shape[2:]
    if causal:
        s = np.where(np.arange(M) <= np.arange(L)[:, None] + M - L, s, -np.inf)
    top = s.max(-1, keepdims=True, initial=-np.inf)
    none = top == -np.inf
    e = np.where(none, 0, np.exp(s - np.where(none, 0, top)))
    total = e.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(none, -np.inf, np.where(none, 0, top) + np.log(np.where(none, 1, total)))
    p = e / np.where(total == 0, 1, total)
    return [np.einsum("nhlm,nhmd->nhld", p, v).astype(f32), lse[..., 0].astype(f32)]


def operands(N, H, G, L, M, D, E):
    return c.normal(N, H, L, D), c.normal(N, G, M, D), c.normal(N, G, M, E)


for name, dims in {"plain": (2, 2, 2, 3, 4, 4, 4), "one": (1, 1, 1, 1, 1, 1, 1), "wide_value": (1, 2, 2, 3, 3, 4, 6),
                   "grouped": (2, 4, 2, 2, 3, 4, 4), "one_key_head": (1, 3, 1, 2, 5, 2, 2), "no_keys": (1, 2, 2, 2, 0, 4, 3),
                   "no_queries": (1, 2, 2, 0, 3, 4, 4), "no_batch": (0, 2, 2, 2, 3, 4, 4)}.items():
    o = operands(*dims)
    c.one(name, "attention", o, attention(*o), **BOUNDS)
o = operands(2, 2, 2, 3, 4, 4, 4)
c.one("one_result", "attention", o, attention(*o)[:1], **BOUNDS)
c.one("scale", "attention", o, attention(*o, scale=0.3), "scale = 0.3", **BOUNDS)
c.one("softcap", "attention", o, attention(*o, softcap=1.5), "softcap = 1.5", **BOUNDS)
c.one("causal", "attention", o, attention(*o, causal=True), "causal = true", **BOUNDS)
few = operands(1, 2, 2, 4, 2, 4, 4)
c.one("causal_few_keys", "attention", few, attention(*few, causal=True), "causal = true", **BOUNDS)
for name, shape in {"full": (2, 2, 3, 4), "rows": (3, 4), "batch": (2, 1, 1, 4), "keys": (4,)}.items():
    m = c.normal(*shape)
    c.one(f"mask_added_{name}", "attention", [*o, m], attention(*o, m), **BOUNDS)
    m = c.rng.random(shape) < 0.6
    c.one(f"mask_bool_{name}", "attention", [*o, m], attention(*o, m), **BOUNDS)
m = np.ones((3, 4), bool)
m[1] = False
c.one("mask_row_of_nothing", "attention", [*o, m], attention(*o, m), **BOUNDS)
m = np.zeros((3, 4), f32)
m[2] = -np.inf
c.one("mask_row_of_minus_infinity", "attention", [*o, m], attention(*o, m), **BOUNDS)
g = operands(1, 4, 2, 3, 3, 2, 2)
m = c.rng.random((1, 4, 3, 3)) < 0.7
c.one("grouped_masked_causal_capped", "attention", [*g, m], attention(*g, m, causal=True, softcap=2),
      "causal = true, softcap = 2.0", **BOUNDS)
h = [a.astype(np.float16) for a in o]
c.one("f16", "attention", h, [attention(*h)[0].astype(np.float16)], rtol=2e-3, atol=1e-4, decomposed=8e-3)
body = "  %r = attention(%0, %1, %2{}) : f32[1,1,1,1]\n  return %r"
t = ["f32[1,2,3,4]", "f32[1,2,5,4]", "f32[1,2,5,6]"]
c.refuse("rank", "bad_shape", ["attention", "C2", "rank 4"], body.format(""), ["f32[2,3,4]", *t[1:]])
c.refuse("types", "bad_type", ["attention", "C1", "f32 and f16"], body.format(""), [t[0], "f16[1,2,5,4]", t[2]])
c.refuse("depth", "bad_shape", ["attention", "C2", "4 is not 3"], body.format(""), [t[0], "f32[1,2,5,3]", t[2]])
c.refuse("heads", "bad_shape", ["attention", "C3", "3 query heads for 2"], body.format(""), ["f32[1,3,3,4]", *t[1:]])
c.refuse("mask_shape", "bad_shape", ["attention", "C4", "[3,4]"], body.format(", %3"), [*t, "bool[3,4]"])
c.refuse("mask_type", "bad_type", ["attention", "C4", "i32"], body.format(", %3"), [*t, "i32[3,5]"])


def rotary(x, cos, sin, positions=None, interleaved=False, heads=0, dims=0):
    y = x.astype(np.float64)
    flat = x.ndim == 3
    if flat:
        y = y.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    d = dims or y.shape[-1]
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = cos[:, None].astype(np.float64), sin[:, None].astype(np.float64)
    out = y.copy()
    a, b = (slice(0, d, 2), slice(1, d, 2)) if interleaved else (slice(0, d // 2), slice(d // 2, d))
    out[..., a] = y[..., a] * cos - y[..., b] * sin
    out[..., b] = y[..., a] * sin + y[..., b] * cos
    return (out.transpose(0, 2, 1, 3).reshape(x.shape) if flat else out).astype(x.dtype)


for interleaved in [False, True]:
    tag, extra = ("pairs", "interleaved = true") if interleaved else ("halves", "interleaved = false")
    x, cos, sin = c.normal(2, 3, 4, 6), c.normal(2, 4, 3), c.normal(2, 4, 3)
    c.one(f"rotary_{tag}", "rotary", [x, cos, sin], [rotary(x, cos, sin, interleaved=interleaved)], extra, atol=1e-6)
    x, cos, sin, at = c.normal(2, 3, 4, 6), c.normal(9, 2), c.normal(9, 2), c.ints(0, 9, 2, 4)
    c.one(f"rotary_{tag}_positions_part", "rotary", [x, cos, sin, at],
          [rotary(x, cos, sin, at, interleaved, dims=4)], extra + ", dims = 4", atol=1e-6)
    x = c.normal(2, 4, 12)
    c.one(f"rotary_{tag}_flat", "rotary", [x, cos, sin, at],
          [rotary(x, cos, sin, at, interleaved, heads=3)], extra + ", heads = 3", atol=1e-6)
x, cos, sin = c.normal(2, 1, 3, 2), c.normal(1, 3, 1), c.normal(1, 3, 1)
c.one("rotary_shared_table", "rotary", [x, cos, sin], [rotary(x, cos, sin)], atol=1e-6)
body = "  %r = rotary(%0, %1, %1{}) {{{}}} : f32[1,1,3,4]\n  return %r"
c.refuse("rotary_odd", "bad_shape", ["rotary", "C3", "5 dims"], body.format("", ""), ["f32[1,1,3,5]", "f32[1,3,2]"])
c.refuse("rotary_many", "bad_shape", ["rotary", "C3", "8 of 4"], body.format("", "dims = 8"),
         ["f32[1,1,3,4]", "f32[1,3,4]"])
c.refuse("rotary_rank", "bad_shape", ["rotary", "C2"], body.format("", ""), ["f32[1,3,4]", "f32[1,3,2]"])
c.refuse("rotary_table", "bad_shape", ["rotary", "C4", "2 is not 3"], body.format("", ""), ["f32[1,1,3,4]", "f32[1,2,2]"])
c.refuse("rotary_type", "bad_type", ["rotary", "C1", "f64"], body.format("", ""), ["f32[1,1,3,4]", "f64[1,3,2]"])
c.refuse("rotary_position", "bad_shape", ["rotary", "position 9 in tables of 9"], body.format(", %2", ""),
         ["f32[1,1,3,4]", "f32[9,2]", "i64[1,3]"],
         [np.zeros((1, 1, 3, 4), f32), np.zeros((9, 2), f32), np.array([[0, 1, 9]])])
c.write()
