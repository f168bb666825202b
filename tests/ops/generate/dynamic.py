# SPDX-License-Identifier: Apache-2.0
"""Movement ops whose sizes are operands, against NumPy."""
import numpy as np
from opcases import NUMBERS, Cases, array, rounded

c = Cases("dynamic")


def ints(*values):
    return np.array(values, np.int64)


for dims, to in [((2, 6), (3, 4)), ((2, 6), (-1, 3)), ((2, 3, 4), (0, -1)), ((2, 3, 4), (0, 0, 4)), ((5,), (-1,)), ((1,), ()),
                 ((0, 3), (0, 6)), ((2, 0), (-1, 2))]:
    x = c.random(dims)
    real = [dims[i] if v == 0 else v for i, v in enumerate(to)]
    y = x.reshape(0, 2) if (dims, to) == ((2, 0), (-1, 2)) else x.reshape(real)
    c.case(f"{dims} to {to}", "dynamic_reshape", [x, ints(*to)], y)
c.case("zero is zero", "dynamic_reshape", [array(np.zeros((0, 3))), ints(2, 0)], array(np.zeros((2, 0))), allow_zero=True)
c.case("string", "dynamic_reshape", [np.array([["a"], ["b"]]), ints(2)], np.array(["a", "b"]))
c.refused("C1", "bad_shape", ["fixed length"], "dynamic_reshape", ["f32[4]", "i64[N]"])
c.refused("C1", "bad_type", ["rank 1"], "dynamic_reshape", ["f32[4]", "f32[2]"])
two = "  %k = constant() {value = tensor<i64[2]>{VALUES}} : i64[2]\n  %r = OP(%0, %k) : f32[1,1]\n  return %r"
c.refuse("dynamic_reshape_C2", "usage", ["dynamic_reshape", "C2", "more than one"],
         two.replace("VALUES", "-1, -1").replace("OP", "dynamic_reshape"), ["f32[4]"])
c.refuse("dynamic_reshape_C3", "bad_shape", ["dynamic_reshape", "C3"],
         two.replace("VALUES", "3, 3").replace("OP", "dynamic_reshape"), ["f32[4]"])
c.fails("bad_shape", ["cannot view", "[3,3]"], "dynamic_reshape", [c.random((4,)), ints(3, 3)], "f32[3,3]")

for dims, to in [((3, 1), (2, 1, 4)), ((2, 3), (3,)), ((), (2, 2)), ((1,), (0,)), ((4, 1), (1, 1))]:
    x = c.random(dims)
    c.case(f"{dims} to {to}", "dynamic_broadcast", [x, ints(*to)], x * np.ones(to, np.float32))
c.refused("C1", "bad_shape", ["fixed length"], "dynamic_broadcast", ["f32[4]", "i64[N]"])
c.refuse("dynamic_broadcast_C2", "bad_shape", ["dynamic_broadcast", "C2"],
         two.replace("VALUES", "3, 3").replace("OP", "dynamic_broadcast"), ["f32[4]"])
c.fails("bad_shape", ["broadcast"], "dynamic_broadcast", [c.random((4,)), ints(3)], "f32[4]")

MAX, MIN = 2**63 - 1, -2**63
for dims, starts, ends, axes, steps in [
        ((5,), [1], [3], None, None), ((5,), [-3], [MAX], None, None), ((5,), [4], [0], None, [-2]), ((5,), [-1], [MIN], [0], [-1]),
        ((4, 6), [1, 0], [100, -1], [1, 0], [2, 1]), ((3, 4), [2], [1], [1], None), ((3, 4), [7], [9], [0], None),
        ((4, 6), [-100, 5], [2, -100], None, [1, -3]), ((2, 3), [], [], [], None), ((0, 3), [0], [5], [0], None), ((5,), [0], [5], None, [MAX])]:
    x = c.random(dims)
    at = [slice(None)] * len(dims)
    for k, (s, e) in enumerate(zip(starts, ends)):
        step = steps[k] if steps else 1
        at[axes[k] if axes is not None else k] = slice(s, None if step < 0 and e == MIN else e, step)
    y = x[tuple(at)]
    for kind in (np.int64, np.int32):
        if kind == np.int32 and any(abs(v) > 2**31 - 1 for v in starts + ends + (steps or [])):
            continue
        o = [None if v is None else np.array(v, kind) for v in (starts, ends, axes, steps)]
        c.case(f"{starts} {ends} {axes} {steps}", "dynamic_slice", [x, *o], y)
t = ["f32[4]", "i64[1]", "i64[1]"]
c.refused("C1", "bad_type", ["rank 1"], "dynamic_slice", ["f32[4]", "i64[]", "i64[]"])
c.refused("C2", "bad_shape", ["2 is not 1"], "dynamic_slice", [t[0], t[1], "i64[2]"])
c.refuse("dynamic_slice_C3", "usage", ["dynamic_slice", "C3", "step 0"],
         "  %s = constant() {value = tensor<i64[1]>{0}} : i64[1]\n  %r = dynamic_slice(%0, %1, %1, _, %s) : f32[1]\n  return %r", t[:2])
c.fails("usage", ["step 0"], "dynamic_slice", [c.random((4,)), ints(0), ints(1), None, ints(0)], "f32[1]")
c.fails("bad_shape", ["axis 3"], "dynamic_slice", [c.random((4,)), ints(0), ints(1), ints(3)], "f32[1]")

for mode in ["constant", "reflect", "edge", "wrap"]:
    x = c.random((3, 4))
    c.case(mode, "dynamic_pad", [x, ints(1, 2, 0, 1)], np.pad(x, [(1, 0), (2, 1)], mode), mode=mode)
x = c.random((3, 4))
c.case("value and axes", "dynamic_pad", [x, ints(2, 1), array(7), ints(-1)], np.pad(x, [(0, 0), (2, 1)], constant_values=7))
c.case("crop", "dynamic_pad", [x, ints(-1, 0, 0, -2)], x[1:, :-2])
c.case("integer", "dynamic_pad", [array([1, 2], "i8"), ints(1, 1), array(-3, "i8")], array([-3, 1, 2, -3], "i8"))
c.refused("C1", "bad_type", ["rank 1"], "dynamic_pad", ["f32[4]", "f32[2]"])
c.refused("C2", "bad_shape", ["needs 2 pads"], "dynamic_pad", ["f32[4]", "i64[4]"])
c.refused("C3", "usage", ["no mode"], "dynamic_pad", ["f32[4]", "i64[2]"], mode="mirror")
c.refused("C4", "bad_type", ["f16"], "dynamic_pad", ["f32[4]", "i64[2]", "f16[]"])
c.refuse("dynamic_pad_C5", "bad_shape", ["dynamic_pad", "C5", "size -1"],
         "  %k = constant() {value = tensor<i64[2]>{-3, -2}} : i64[2]\n  %r = dynamic_pad(%0, %k) : f32[1]\n  return %r", ["f32[4]"])

for repeats in [(2, 1), (1, 3), (0, 2), (1, 1)]:
    c.case(f"{repeats}", "dynamic_tile", [x, ints(*repeats)], np.tile(x, repeats))
c.refused("C1", "bad_type", ["rank 1"], "dynamic_tile", ["f32[4]", "f32[1]"])
c.refused("C2", "bad_shape", ["1 repeats"], "dynamic_tile", ["f32[4]", "i64[2]"])
c.fails("bad_shape", ["negative size"], "dynamic_tile", [x, ints(1, -1)], "f32[3,4]")

for kind in NUMBERS + ["bool"]:
    c.case(kind, "dynamic_fill", [array([1], kind), ints(2, 3)], np.full((2, 3), 1).astype(array(0, kind).dtype))
c.case("scalar", "dynamic_fill", [array(2.5), ints()], array(2.5))
c.case("empty", "dynamic_fill", [array(2.5), ints(0, 3)], array(np.zeros((0, 3))))
c.refused("C1", "bad_shape", ["fixed length"], "dynamic_fill", ["f32[]", "i64[N]"])
c.refused("C2", "bad_shape", ["one value"], "dynamic_fill", ["f32[2]", "i64[1]"])
c.refuse("dynamic_fill_C3", "bad_shape", ["dynamic_fill", "C3"],
         "  %k = constant() {value = tensor<i64[1]>{-3}} : i64[1]\n  %r = dynamic_fill(%0, %k) : f32[1]\n  return %r", ["f32[]"])

for kind in NUMBERS:
    c.case(kind, "range", [array(1, kind), array(10, kind), array(3, kind)], array([1, 4, 7], kind))
for kind in ["i64", "i32", "i16", "f32", "f64"]:
    c.case(f"{kind} down", "range", [array(5, kind), array(-2, kind), array(-2, kind)], array([5, 3, 1, -1], kind))
    c.case(f"{kind} none", "range", [array(5, kind), array(5, kind), array(1, kind)], array([], kind))
c.case("fractions", "range", [array(0.0), array(1.0), array(0.1)], rounded(np.arange(10) * np.float64(np.float32(0.1)), "f32"))
c.case("u64", "range", [np.array(2**63, np.uint64), np.array(2**63 + 3, np.uint64), np.array(2, np.uint64)],
       np.array([2**63, 2**63 + 2], np.uint64))
c.refused("C1", "bad_type", ["one number type"], "range", ["f32[]", "i64[]", "f32[]"])
c.refused("C2", "bad_shape", ["single values"], "range", ["i64[2]", "i64[]", "i64[]"])
c.refuse("range_C3", "usage", ["range", "C3", "delta 0"],
         "  %k = constant() {value = tensor<i64[]>{0}} : i64[]\n  %r = range(%0, %0, %k) : i64[1]\n  return %r", ["i64[]"])
c.fails("usage", ["delta 0"], "range", [array(1, "i64"), array(3, "i64"), array(0, "i64")], "i64[1]")
c.write()
