# SPDX-License-Identifier: Apache-2.0
import ml_dtypes
import numpy as np
from casegen import Cases, dtype_name

c = Cases("quantize")
RANGE = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767), "u16": (0, 65535), "i4": (-8, 7), "u4": (0, 15),
         "i2": (-2, 1), "u2": (0, 3)}
TYPE = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i4": ml_dtypes.int4, "u4": ml_dtypes.uint4,
        "i2": ml_dtypes.int2, "u2": ml_dtypes.uint2}


def spread(v, x, axis, block=0):
    if block:
        return np.repeat(v, block, axis)[tuple(slice(0, n) for n in x.shape)]
    return v if np.size(v) == 1 else np.reshape(v, [-1 if d == axis else 1 for d in range(x.ndim)])


def quantize(x, scale, zero, to, axis=1, block=0):
    s, z = spread(scale, x, axis, block), spread(zero.astype(np.float64), x, axis, block)
    q = np.rint(x.astype(np.float32) / s.astype(np.float32)).astype(np.float64) + z
    return np.clip(q, *RANGE[to]).astype(np.int64).astype(TYPE[to])


for to in RANGE:
    lo, hi = RANGE[to]
    x = c.normal(3, 5, scale=(hi - lo) * 0.03)
    scale, zero = np.float32(0.05), np.array((lo + hi) // 2 + 1).astype(TYPE[to])
    c.one(f"quantize_{to}", "quantize", [x, scale, zero], [quantize(x, scale, zero, to)], f"to = {to}")
    scales, zeros = c.uniform(0.01, 0.2, 5), c.ints(lo, hi + 1, 5).astype(TYPE[to])
    c.one(f"quantize_{to}_axis", "quantize", [x, scales, zeros], [quantize(x, scales, zeros, to)], f"to = {to}")
    scales, zeros = c.uniform(0.01, 0.2, 3, 3), c.ints(lo, hi + 1, 3, 3).astype(TYPE[to])
    c.one(f"quantize_{to}_block", "quantize", [x, scales, zeros], [quantize(x, scales, zeros, to, 1, 2)],
          f"to = {to}, block = 2")
    q = c.ints(lo, hi + 1, 3, 5).astype(TYPE[to])
    wide = q.astype(np.float64) - spread(zeros.astype(np.float64), q, 1, 2)
    c.one(f"dequantize_{to}_block", "dequantize", [q, scales, zeros],
          [(wide * spread(scales.astype(np.float64), q, 1, 2)).astype(np.float32)], "block = 2")
    c.one(f"dequantize_{to}", "dequantize", [q, scale],
          [(q.astype(np.float64) * np.float64(scale)).astype(np.float32)])
ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 1e9, -1e9, np.inf, -np.inf], np.float32)
c.one("quantize_ties", "quantize", [ties, np.float32(1)],
      [np.array([0, 2, 2, 0, -2, 127, 127, -128, 127, -128], np.int8)], "to = i8")
# 3 / 0.3f rounds to 10 in f32 and lies above it in f64; 0.45f / 0.1f is a tie only after rounding to f32.
near = np.array([3, 0.45, 0.25, 0.35], np.float32)
c.one("quantize_near_ties", "quantize", [near, np.float32(0.1)],
      [np.rint(near / np.float32(0.1)).astype(np.int8)], "to = i8")
c.one("quantize_first_axis", "quantize", [c.normal(2, 3) * 0 + 1, np.array([0.5, 0.25], np.float32)],
      [np.array([[2] * 3, [4] * 3], np.uint8)], "axis = 0, to = u8")
c.one("quantize_scalar", "quantize", [np.float32(3), np.float32(2)], [np.array(2, np.int8)], "to = i8")
c.one("quantize_empty", "quantize", [np.zeros((0, 3), np.float32), np.array([1, 2, 3], np.float32)],
      [np.zeros((0, 3), np.int8)], "to = i8")
h = np.array([1, 2.5, -3], np.float16)
c.one("quantize_f16", "quantize", [h, np.float16(0.5)], [np.array([2, 5, -6], np.int8)], "to = i8")
for name, t, top in [("f8e4m3fn", ml_dtypes.float8_e4m3fn, 448), ("f8e5m2", ml_dtypes.float8_e5m2, 57344),
                     ("f8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 240), ("f8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 57344)]:
    v = np.array([0, 1, -2.3, 0.01, 1e5 * 2, -1e6], np.float32)
    q = np.clip(v / np.float32(2), -top, top).astype(t)
    c.one(f"quantize_{name}", "quantize", [v, np.float32(2)], [q], f"to = {name}")
    c.one(f"dequantize_{name}", "dequantize", [q, np.float32(3)], [q.astype(np.float32) * 3])
v = np.array([0, 1, -2.3, 0.4, 100, -7], np.float32)
c.one("quantize_f4e2m1", "quantize", [v, np.float32(2)], [(v / 2).astype(ml_dtypes.float4_e2m1fn)], "to = f4e2m1")
q = c.ints(-2**30, 2**30, 4, dtype=np.int32)
c.one("dequantize_i32", "dequantize", [q, np.float32(0.001)],
      [(q.astype(np.float64) * np.float64(np.float32(0.001))).astype(np.float32)])
q = c.ints(-128, 128, 4, dtype=np.int8)
c.one("dequantize_f16", "dequantize", [q, np.float16(0.01), np.array(3, np.int8)],
      [((q.astype(np.float64) - 3) * np.float64(np.float16(0.01))).astype(np.float16)], "to = f16")


def dynamic(x):
    lo, hi = np.float32(min(0, x.min(initial=0))), np.float32(max(0, x.max(initial=0)))
    scale = np.float32(np.float32(hi - lo) / np.float32(255))
    zero = np.rint(np.clip(-lo / scale, 0, 255)) if scale else 0
    y = np.clip(np.rint(x / scale) + zero, 0, 255) if scale else np.full(x.shape, zero)
    return [y.astype(np.uint8), scale, np.uint8(zero)]


for name, x in {"mixed": c.normal(3, 4), "positive": c.uniform(1, 9, 6), "negative": c.uniform(-9, -1, 6),
                "zeros": np.zeros((2, 2), np.float32), "empty": np.zeros((0,), np.float32)}.items():
    c.one(f"dynamic_quantize_{name}", "dynamic_quantize", [x], dynamic(x))


def requantize(s, scale, zero, to, axis=None):
    k = scale if axis is None else spread(scale, s, axis)
    return np.clip(np.rint(s.astype(np.float32) * k).astype(np.float64) + zero, *RANGE[to]).astype(TYPE[to])


s = c.ints(-100000, 100000, 3, 4, dtype=np.int32)
c.one("requantize_scalar", "requantize", [s, np.float32(0.001), np.uint8(100)],
      [requantize(s, np.float32(0.001), 100, "u8")], "to = u8")
scales = c.uniform(0.0005, 0.002, 4)
c.one("requantize_axis", "requantize", [s, scales, np.int8(-3)], [requantize(s, scales, -3, "i8", 1)], "to = i8")
c.one("requantize_no_zero", "requantize", [s, np.float32(0.002)], [requantize(s, np.float32(0.002), 0, "i8")], "to = i8")
big = np.array([2**31 - 1, -2**31, 16777217], np.int32)
c.one("requantize_large", "requantize", [big, np.float32(1e-7)], [requantize(big, np.float32(1e-7), 0, "i8")], "to = i8")

q = "  %r = quantize({}) {{to = {}{}}} : i8[1]\n  return %r"
c.refuse("quantize_input", "bad_type", ["quantize", "C1", "bool"], q.format("%0, %1", "i8", ""), ["bool[2]", "f32[]"])
c.refuse("quantize_target", "bad_type", ["quantize", "C1", "i64"], q.format("%0, %1", "i64", ""), ["f32[2]", "f32[]"])
c.refuse("quantize_scale", "bad_type", ["quantize", "C2", "i32"], q.format("%0, %1", "i8", ""), ["f32[2]", "i32[]"])
c.refuse("quantize_zero", "bad_type", ["quantize", "C2", "u8 for i8"], q.format("%0, %1, %2", "i8", ""),
         ["f32[2]", "f32[]", "u8[]"])
c.refuse("quantize_count", "bad_shape", ["quantize", "C3", "3 is not 4"], q.format("%0, %1", "i8", ""),
         ["f32[2,4]", "f32[3]"])
c.refuse("quantize_block", "bad_shape", ["quantize", "C3", "3 is not 2"], q.format("%0, %1", "i8", ", block = 2"),
         ["f32[2,4]", "f32[2,3]"])
c.refuse("quantize_block_rank", "bad_shape", ["quantize", "C3", "rank"], q.format("%0, %1", "i8", ", block = 2"),
         ["f32[2,4]", "f32[2]"])
c.refuse("quantize_axis", "bad_shape", ["quantize", "axis 7"], q.format("%0, %1", "i8", ", axis = 7"),
         ["f32[2,4]", "f32[4]"])
c.refuse("dequantize_to", "bad_type", ["dequantize", "C1", "i32"],
         "  %r = dequantize(%0, %1) {to = i32} : i32[2]\n  return %r", ["i8[2]", "f32[]"])
c.refuse("requantize_sum", "bad_type", ["requantize", "C1", "i64"],
         "  %r = requantize(%0, %1) {to = i8} : i8[2]\n  return %r", ["i64[2]", "f32[]"])
c.refuse("dynamic_quantize_type", "bad_type", ["dynamic_quantize", "C1", "f64"],
         "  %r, %s, %z = dynamic_quantize(%0) : u8[2], f32[], u8[]\n  return %r", ["f64[2]"])
assert dtype_name(np.zeros(1, ml_dtypes.int4)) == "i4"
for op, to in [("dequantize", "f32"), ("requantize", "i8")]:
    one = f"  %r = {op}(%0, %1) {{to = {to}}} : {to}[2,4]\n  return %r"
    two = f"  %r = {op}(%0, %1, %2) {{to = {to}}} : {to}[2,4]\n  return %r"
    x = "i8[2,4]" if op == "dequantize" else "i32[2,4]"
    c.refuse(f"{op}_zero", "bad_type", [op, "C2", "u8"], two, [x, "f32[]", "u8[]"])
    c.refuse(f"{op}_count", "bad_shape", [op, "C3", "3 is not 4"], one, [x, "f32[3]"])
c.write()
