# SPDX-License-Identifier: Apache-2.0
"""Reductions and scans against NumPy."""
import numpy as np

from opcases import FLOATS, INTS, NUMBERS, Cases, array, name_of, rounded, wide

SHAPES = [((2, 3, 4), [1]), ((2, 3, 4), [-1, 0]), ((3, 1, 5), [0, 1, 2]), ((7,), []), ((), []), ((1, 1), [0])]


def reduced(op, x, axes, keep):
    with np.errstate(all="ignore"):
        f = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}[op]
        kind = name_of(x)
        if op in ("max", "min"):
            return f(x, axis=tuple(axes), keepdims=keep)
        if kind == "bool":
            return np.all(x, axis=tuple(axes), keepdims=keep)
        if op == "mean" and kind in INTS:
            return np.trunc(f(x.astype(np.float64), axis=tuple(axes), keepdims=keep)).astype(x.dtype)
        if kind in INTS:
            return f(x, axis=tuple(axes), keepdims=keep, dtype=x.dtype)
        return rounded(f(wide(x), axis=tuple(axes), keepdims=keep), kind)


def scanned(op, x, axis, exclusive, reverse):
    y = np.flip(x, axis) if reverse else x
    f = np.cumsum if op == "cumsum" else np.cumprod
    out = f(wide(y), axis=axis, dtype=wide(y).dtype)
    if exclusive:
        start = np.full_like(np.take(out, [0], axis), 0 if op == "cumsum" else 1)
        out = np.concatenate([start, np.take(out, range(x.shape[axis] - 1), axis)], axis)
    return rounded(np.flip(out, axis) if reverse else out, name_of(x))


def make():
    c = Cases("reduce")
    for op in ["sum", "mean", "max", "min", "prod"]:
        for kind in NUMBERS + (["bool"] if op in ("max", "min", "prod") else []):
            x = c.random((2, 3), kind)
            c.case(kind, "reduce_" + op, [x], np.asarray(reduced(op, x, [1], False)), axes=[1])
        for dims, axes in SHAPES:
            for keep in (False, True):
                x = c.random(dims)
                c.case(f"{dims} over {axes} keep {keep}", "reduce_" + op, [x],
                       np.asarray(reduced(op, x, axes, keep)), axes=axes, keep_dims=keep)
        x = array([[1, np.nan, 3], [np.inf, -np.inf, 1], [-0.0, 0.0, -0.0], [np.inf, 2, 2]])
        c.case("special values", "reduce_" + op, [x], np.asarray(reduced(op, x, [1], False)), axes=[1])
        empty = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "mean": np.nan}[op]
        c.case("nothing to reduce", "reduce_" + op, [array(np.zeros((2, 0)))], array([empty] * 2), axes=[1])
        c.case("no results", "reduce_" + op, [array(np.zeros((0, 3)))], array(np.zeros(0)), axes=[1])
        c.refused("C1", "bad_type", ["string"], "reduce_" + op, ["string[2]"], axes=[0])
    c.case("i32 wraps", "reduce_sum", [array([2**31 - 1, 1], "i32")], array(-2**31, "i32"), axes=[0])
    c.case("u64 beyond i64", "reduce_max", [np.asarray([1, 2**63 + 5], np.uint64)],
           np.asarray(2**63 + 5, np.uint64), axes=[0])
    c.case("u64 beyond i64", "reduce_mean", [np.asarray([2**63, 2**63 + 4], np.uint64)],
           np.asarray(2**63 + 2, np.uint64), axes=[0])
    c.case("f32 sums in f64", "reduce_sum", [array([2**24, 1, 1, -2**24])], array(2), axes=[0])
    c.case("empty i8", "reduce_max", [array(np.zeros((0,)), "i8")], array(-128, "i8"), axes=[0])
    c.case("empty u16", "reduce_min", [array(np.zeros((0,)), "u16")], array(65535, "u16"), axes=[0])
    c.case("empty bool", "reduce_max", [array(np.zeros((0,)), "bool")], array(False, "bool"), axes=[0])
    c.refused("C1", "bad_type", ["bool"], "reduce_sum", ["bool[2]"], axes=[0])

    for op, f in [("arg_max", np.argmax), ("arg_min", np.argmin)]:
        for kind in NUMBERS:
            x = c.random((3, 5), kind)
            c.case(kind, op, [x], f(wide(x), axis=1).astype(np.int64), axis=1)
        x = array([[3, 1, 3, 1], [2, 2, 2, 2]])
        flipped = 3 - f(x[:, ::-1], axis=1)
        c.case("last of equals", op, [x], flipped.reshape(2, 1), axis=-1, last=True, keep_dims=True)
        c.case("NaN wins", op, [array([1, np.nan, 5, np.nan])], np.asarray(1), axis=0)
        c.case("one", op, [array([[7]])], np.asarray([0]), axis=0)
        c.refused("C1", "bad_type", ["bool"], op, ["bool[2]"], axis=0)
        c.refused("C2", "bad_shape", ["nothing to choose from"], op, ["f32[2,0]"], axis=1)
    for op in ["cumsum", "cumprod"]:
        for kind in FLOATS + INTS:
            x = c.random((4, 3), kind)
            c.case(kind, op, [x], scanned(op, x, 0, False, False), axis=0)
        for exclusive in (False, True):
            for reverse in (False, True):
                x = c.random((2, 5, 2))
                c.case(f"exclusive {exclusive} reverse {reverse}", op, [x],
                       scanned(op, x, 1, exclusive, reverse), axis=-2, exclusive=exclusive, reverse=reverse)
        c.case("empty", op, [array(np.zeros((2, 0)))], array(np.zeros((2, 0))), axis=1)
        c.refused("C1", "bad_type", ["bool"], op, ["bool[2]"], axis=0)
    c.write()


make()
