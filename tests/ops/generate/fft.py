# SPDX-License-Identifier: Apache-2.0
import numpy as np
from casegen import Cases

c = Cases("fft")
B = {"rtol": 2e-6, "atol": 2e-6}


def parts(z):
    return np.stack([z.real, z.imag], -1).astype(np.float32)


for shape, axis in [((2, 8), 1), ((6, 3), 0), ((2, 5, 3), 1), ((1, 1), 1), ((3, 7), -1), ((0, 4), 1)]:
    real, imag = c.normal(*shape), c.normal(*shape)
    z, x = real + 1j * imag.astype(np.float64), np.stack([real, imag], -1)
    a = axis % len(shape)
    tag = f"{'x'.join(map(str, shape))}_axis{a}"
    at = f"axis = {a}"
    c.one(f"real_{tag}", "fft", [real[..., None]], [parts(np.fft.fft(real, axis=a))], at, **B)
    c.one(f"complex_{tag}", "fft", [x], [parts(np.fft.fft(z, axis=a))], at, **B)
    c.one(f"inverse_{tag}", "fft", [x], [parts(np.fft.ifft(z, axis=a))], at + ", inverse = true", **B)
    c.one(f"onesided_{tag}", "fft", [real[..., None]], [parts(np.fft.rfft(real, axis=a))], at + ", onesided = true", **B)
    if shape[a] > 1:
        y = np.fft.irfft(z, axis=a)[..., None].astype(np.float32)
        c.one(f"inverse_onesided_{tag}", "fft", [x], [y], at + ", inverse = true, onesided = true", **B)
real = c.normal(2, 6)
for n in [4, 9]:
    k = f"  %n = constant() {{value = tensor<i64[]>{{{n}}}}} : i64[]\n"
    c.graph(f"length_{n}", k + f"  %r = fft(%0, %n) {{axis = 1}} : f32[2,{n},2]\n  return %r", [real[..., None]],
            [parts(np.fft.fft(real, n, 1))], **B)
    z = np.stack([real, -real], -1)
    c.graph(f"inverse_onesided_length_{n}", k + "  %r = fft(%0, %n) {axis = 1, inverse = true, onesided = true} : "
            f"f32[2,{n},1]\n  return %r", [z],
            [np.fft.irfft(real - 1j * real, n, 1)[..., None].astype(np.float32)], **B)
c.graph("length_run_time", "  symbol u0 in [1, 100]\n  %r = fft(%0, %1) {axis = 1, onesided = true} : "
        "f32[2,floordiv(u0, 2) + 1,2]\n  return %r", [real[..., None], np.int64(8)], [parts(np.fft.rfft(real, 8, 1))], **B)
d = c.normal(1, 300).astype(np.float64)
c.one("f64", "fft", [d[..., None]], [np.stack([np.fft.rfft(d).real, np.fft.rfft(d).imag], -1)],
      "axis = 1, onesided = true", rtol=1e-10, atol=1e-10)
c.refuse("last_dim", "bad_shape", ["fft", "C2", "[2,3]"], "  %r = fft(%0) {axis = 0} : f32[2,3]\n  return %r", ["f32[2,3]"])
c.refuse("last_axis", "bad_shape", ["fft", "C2", "last axis"], "  %r = fft(%0) {axis = 1} : f32[2,2]\n  return %r",
         ["f32[2,2]"])
c.refuse("onesided_complex", "bad_shape", ["fft", "C3", "real"],
         "  %r = fft(%0) {axis = 0, onesided = true} : f32[2,2]\n  return %r", ["f32[2,2]"])
c.refuse("inverse_real", "bad_shape", ["fft", "C3", "complex"],
         "  %r = fft(%0) {axis = 0, onesided = true, inverse = true} : f32[2,1]\n  return %r", ["f32[2,1]"])
c.refuse("type", "bad_type", ["fft", "C1", "i32"], "  %r = fft(%0) {axis = 0} : i32[2,2]\n  return %r", ["i32[2,2]"])
c.refuse("length_zero", "bad_shape", ["fft", "C4", "length 0"],
         "  %n = constant() {value = tensor<i64[]>{0}} : i64[]\n  %r = fft(%0, %n) {axis = 0} : f32[0,2]\n  return %r",
         ["f32[2,2]"])
c.write()
