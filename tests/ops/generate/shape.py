# SPDX-License-Identifier: Apache-2.0
"""Movement ops whose sizes are attributes, against NumPy."""
import numpy as np
from opcases import NUMBERS, Cases, Dims, DType, array

c = Cases("shape")
ALL = NUMBERS + ["bool", "f8e4m3fn", "i4", "u4"]


def small(dims, kind):
    """Values 0 to 7, which every type holds."""
    return c.rng.integers(0, 2 if kind == "bool" else 8, dims).astype(array(0, kind).dtype)


for kind in ALL:
    x = small((2, 3), kind)
    c.case(kind, "reshape", [x], x.reshape(3, 2), dims=Dims([3, 2]))
    c.case(kind, "transpose", [x], x.T, perm=[1, 0])
    c.case(kind, "broadcast_to", [x], np.broadcast_to(x, (2, 2, 3)), dims=Dims([2, 2, 3]))
    c.case(kind, "slice", [x], x[:, ::-2], axes=[1], starts=Dims([2]), sizes=Dims([2]), steps=[-2])
    c.case(kind, "concat", [x, x[:1]], np.concatenate([x, x[:1]]), axis=0)
    c.case(kind, "pad", [x], np.concatenate([np.zeros((2, 1), x.dtype), x], 1), low=Dims([0, 1]), high=Dims([0, 0]))
    c.case(kind, "tile", [x], np.concatenate([x, x]), repeats=Dims([2, 1]))
    c.case(kind, "reverse", [x], x[::-1], axes=[0])
    c.case(kind, "fill", [x[0, :1]], np.broadcast_to(x[0, :1], (2, 2)), dims=Dims([2, 2]))
    c.case(kind, "shape_of", [x], array([2, 3], "i64"))
words = np.array([["a", "b"], ["c", ""]])
c.case("string", "transpose", [words], words.T, perm=[1, 0])
c.case("string", "concat", [words, words], np.concatenate([words, words], 1), axis=-1)
c.case("string", "pad", [words], np.array([["", "a", "b"], ["", "c", ""]]), low=Dims([0, 1]), high=Dims([0, 0]))

for dims, perm in [((2, 3, 4), [2, 0, 1]), ((2, 3, 4), [0, 2, 1]), ((), []), ((0, 3), [1, 0]), ((1, 1, 2, 3), [3, 2, 1, 0])]:
    x = c.random(dims)
    c.case(f"{perm}", "transpose", [x], x.transpose(perm), perm=perm)
for dims, to in [((), [2, 2]), ((1,), [0]), ((3, 1), [2, 3, 4]), ((2, 0), [2, 0])]:
    x = c.random(dims)
    c.case(f"{dims} {to}", "broadcast_to", [x], np.broadcast_to(x, to), dims=Dims(to))
for dims, to in [((6,), []), ((0, 3), [3, 0]), ((1,), []), ((), [1, 1])]:
    x = c.random(dims)
    if int(np.prod(dims)) == int(np.prod(to)):
        c.case(f"{dims} {to}", "reshape", [x], x.reshape(to), dims=Dims(to))
x = c.random((4, 5))
c.case("two axes", "slice", [x], x[1:3, 4::-3], axes=[0, -1], starts=Dims([1, 4]), sizes=Dims([2, 2]), steps=[1, -3])
c.case("nothing", "slice", [x], x[:0], axes=[0], starts=Dims([4]), sizes=Dims([0]), steps=[1])
c.case("one operand", "concat", [x], x, axis=1)
c.case("empty operand", "concat", [x[:0], x, x[2:]], np.concatenate([x, x[2:]]), axis=0)
for mode in ["constant", "reflect", "edge", "wrap"]:
    c.case(mode, "pad", [x], np.pad(x, [(2, 1), (0, 3)], mode), low=Dims([2, 0]), high=Dims([1, 3]), mode=mode)
c.case("value and crop", "pad", [x, array(9)], np.pad(x[1:], [(0, 0), (0, 2)], constant_values=9), low=Dims([-1, 0]), high=Dims([0, 2]))
c.case("nothing", "tile", [x], np.zeros((4, 0), np.float32), repeats=Dims([1, 0]))
c.case("two axes", "reverse", [x], x[::-1, ::-1], axes=[0, -1])
for kind in NUMBERS:
    c.case(kind, "iota", [], np.broadcast_to(np.arange(3).astype(array(0, kind).dtype)[:, None], (3, 2)), dims=Dims([3, 2]), axis=0,
           dtype=DType(kind))
c.case("empty", "iota", [], array(np.zeros((0,)), "i64"), dims=Dims([0]), axis=-1, dtype=DType("i64"))
c.case("sizes", "contents", [], array([3, 0, 5], "i64"), dims=Dims([3, 0, 5]))
c.case("none", "contents", [], array([], "i64"), dims=Dims([]))
for upper in (False, True):
    for k in (None, 0, 1, -1, 5, -5):
        x = c.random((2, 3, 4))
        y = (np.triu if upper else np.tril)(x, k or 0)
        c.case(f"{upper} {k}", "trilu", [x] if k is None else [x, array(k, "i64")], y, upper=upper)
c.case("bool", "trilu", [array([[1, 1], [1, 1]], "bool")], array([[1, 1], [0, 1]], "bool"))
x = array([[1.5, -2], [0, 3]])
c.graph("constant_value", "  %v = constant() {value = tensor<f32[2,2]>{1.5, -2, 0, 3}} : f32[2,2]\n  return %v", [], [x])

t = ["f32[2,3]"]
c.refused("C1", "bad_shape", ["6 is not 4"], "reshape", t, dims=Dims([4]))
c.refused("C1", "bad_shape", ["not a permutation"], "transpose", t, perm=[0, 0])
c.refused("C1", "bad_shape", ["does not fit rank 2"], "transpose", t, perm=[0])
c.refused("C1", "bad_shape", ["3 is not 4"], "broadcast_to", t, dims=Dims([2, 4]))
c.refused("C1", "usage", ["one start"], "slice", t, axes=[0], starts=Dims([0]), sizes=Dims([1, 1]), steps=[1])
c.refused("C2", "usage", ["step 0"], "slice", t, axes=[0], starts=Dims([0]), sizes=Dims([1]), steps=[0])
c.refused("C3", "bad_shape", ["index 2"], "slice", t, axes=[0], starts=Dims([0]), sizes=Dims([3]), steps=[1])
c.refused("C1", "bad_type", ["f32 with f16"], "concat", [*t, "f16[2,3]"], axis=0)
c.refused("C2", "bad_shape", ["3 is not 4"], "concat", [*t, "f32[2,4]"], axis=0)
c.refused("C1", "usage", ["no mode"], "pad", t, low=Dims([0, 0]), high=Dims([0, 0]), mode="mirror")
c.refused("C2", "bad_shape", ["2 low and high"], "pad", t, low=Dims([0]), high=Dims([0]))
c.refused("C2", "bad_shape", ["size -1"], "pad", t, low=Dims([-3, 0]), high=Dims([0, 0]))
c.refused("C3", "bad_type", ["f16"], "pad", [*t, "f16[]"], low=Dims([0, 0]), high=Dims([0, 0]))
c.refused("C1", "bad_shape", ["2 repeats"], "tile", t, repeats=Dims([1]))
c.refused("C1", "bad_type", ["bool"], "iota", [], dims=Dims([2]), axis=0, dtype=DType("bool"))
c.refused("C1", "bad_shape", ["fill"], "fill", t, dims=Dims([2]))
c.refused("C1", "bad_shape", ["rank 2"], "trilu", ["f32[3]"])
c.refused("C2", "bad_type", ["integer diagonal"], "trilu", [*t, "f32[]"])
c.write()
