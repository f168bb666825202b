# SPDX-License-Identifier: Apache-2.0
"""Pointwise ops and casts against NumPy in f64 (integers in 64 bits, wrapped)."""
import math

import numpy as np
from opcases import FLOATS, INTS, NUMBERS, Cases, DType, array, rounded, wide

c = Cases("pointwise")
SPECIAL = array([0.0, -0.0, 1, -1, 2.5, -2.5, 0.5, np.inf, -np.inf, np.nan])
erf = np.vectorize(math.erf, otypes=[np.float64])
UNARY = {
    "exp": np.exp, "log": np.log, "log1p": np.log1p, "expm1": np.expm1, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x), "reciprocal": lambda x: 1 / x,
}
NUMERIC = {"neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square, "relu": lambda x: np.maximum(x, x.dtype.type(0)),
           "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc}
TESTS = {"is_nan": np.isnan, "is_inf_pos": np.isposinf, "is_inf_neg": np.isneginf}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "mod": np.mod, "rem": np.fmod}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}

with np.errstate(all="ignore"):
    for op, f in {**UNARY, **{k: v for k, v in NUMERIC.items()}}.items():
        for kind in FLOATS:
            x = c.random((2, 3), kind)
            if op in ("log", "sqrt", "rsqrt", "log1p", "acosh"):
                x = np.abs(x) + array(1, kind)
            if op in ("asin", "acos", "atanh"):
                x = array(np.tanh(wide(x)), kind)
            c.case(kind, op, [x], rounded(f(wide(x)), kind))
        c.case("special", op, [SPECIAL], rounded(f(wide(SPECIAL)), "f32"))
        c.case("scalar", op, [array(0.25)], np.asarray(rounded(f(np.float64(0.25)), "f32")))
        c.case("empty", op, [array(np.zeros((0, 2)))], array(np.zeros((0, 2))))
        c.refused("C1", "bad_type", ["bool"], op, ["bool[2]"])
    for op, f in NUMERIC.items():
        for kind in INTS:
            x = c.random((5,), kind)
            c.case(kind, op, [x], x if op in ("floor", "ceil", "round", "trunc") else f(x).astype(x.dtype))
    for op, f in TESTS.items():
        for kind in FLOATS:
            c.case(kind, op, [array(SPECIAL, kind)], f(wide(array(SPECIAL, kind))))
        c.refused("C1", "bad_type", ["i32"], op, ["i32[2]"], ["bool[2]"])
    for op, f in BINARY.items():
        for kind in NUMBERS:
            for da, db in [((2, 3), (2, 3)), ((2, 1), (3,)), ((), (4,))]:
                x, y = c.random(da, kind), c.random(db, kind)
                if op in ("mod", "rem"):
                    y = np.where(y == 0, array(3, kind), y).astype(y.dtype)
                c.case(f"{kind} {da} {db}", op, [x, y], np.asarray(rounded(f(wide(x), wide(y)), kind)))
        c.case("special", op, [SPECIAL[:, None], SPECIAL[None]], rounded(f(wide(SPECIAL)[:, None], wide(SPECIAL)[None]), "f32"))
    for kind in FLOATS:
        x, y = c.random((2, 3), kind), c.random((3,), kind)
        c.case(kind, "div", [x, y], rounded(wide(x) / wide(y), kind))
        c.case(kind, "atan2", [x, y], rounded(np.arctan2(wide(x), wide(y)), kind))
        c.case(kind, "pow", [np.abs(x), y], rounded(np.abs(wide(x)) ** wide(y), kind))
    for kind in INTS:
        x, y = c.random((4, 1), kind), array([1, 2, 3], kind)
        q = np.trunc(wide(x).astype(np.float64) / wide(y).astype(np.float64)).astype(x.dtype)
        c.case(kind, "div", [x, y], q)
        c.case(f"{kind} by zero", "div", [x, array([0], kind)], np.zeros_like(x))
        c.case(f"{kind} by zero", "mod", [x, array([0], kind)], np.zeros_like(x))
        c.case(kind, "pow", [x, array([0, 1, 2], "i64")], (x.astype(np.int64) ** np.array([0, 1, 2])).astype(x.dtype))
    c.case("different types", "pow", [array([2, 3], "i32"), array([2.0, 0.5])], array([4, 1], "i32"))
    c.case("no wrap", "div", [array([-2**31], "i32"), array([-1], "i32")], array([-2**31], "i32"))
    for op, f in COMPARE.items():
        for kind in NUMBERS:
            x, y = c.random((2, 3), kind), c.random((3,), kind)
            c.case(kind, op, [x, y], f(x, y))
        c.case("special", op, [SPECIAL[:, None], SPECIAL[None]], f(SPECIAL[:, None], SPECIAL[None]))
        c.case("u64", op, [np.array([2**63], np.uint64), np.array([1], np.uint64)], f(np.array([2**63], np.uint64), np.array([1], np.uint64)))
    for op in ("eq", "ne"):
        x, y = array([1, 0, 1], "bool"), array([1, 1, 0], "bool")
        c.case("bool", op, [x, y], COMPARE[op](x, y))
        c.case("string", op, [np.array(["a", "b"]), np.array(["a", "c"])], np.array([op == "eq", op == "ne"]))
    for op, f in LOGIC.items():
        for kind in INTS + ["bool"]:
            x, y = c.random((2, 3), kind), c.random((3,), kind)
            c.case(kind, op, [x, y], f(x, y))
    for kind in INTS + ["bool"]:
        x = c.random((4,), kind)
        c.case(kind, "not", [x], np.invert(x))
    for kind in INTS:
        x, y = c.random((3, 1), kind), array([0, 1, 7], kind)
        c.case(kind, "shift_left", [x, y], np.left_shift(x, y))
        c.case(kind, "shift_right", [x, y], np.right_shift(x, y))
        bits = x.dtype.itemsize * 8
        over = array([bits], kind)
        c.case(f"{kind} over", "shift_left", [x, over], np.zeros_like(x))
        c.case(f"{kind} over", "shift_right", [x, over], np.where(x < 0, -1, 0).astype(x.dtype))
    for kind in NUMBERS + ["bool"]:
        k, x, y = c.random((2, 1), "bool"), c.random((3,), kind), c.random((2, 3), kind)
        c.case(kind, "select", [k, x, y], np.where(k, x, y))
    c.case("string", "select", [array([1, 0], "bool"), np.array(["a"]), np.array(["b"])], np.array(["a", "b"]))
    c.case("special bits", "select", [array([1, 0], "bool"), array([-0.0, 1]), array([2, np.nan])], array([-0.0, np.nan]))

for op in [*BINARY, "div", "atan2", *COMPARE, *LOGIC, "shift_left", "shift_right"]:
    out = ["bool[2]"] if op in COMPARE else ["f32[2]"]
    kind = "i32" if op in LOGIC or op.startswith("shift") else "f32"
    bad = "string" if op in BINARY or op in COMPARE else "f32" if kind == "i32" else "bool"
    if op in ("eq", "ne"):
        bad = "f8e5m2"
    c.refused("C1", "bad_type", ["does not take"], op, [f"{bad}[2]", f"{bad}[2]"], out)
    c.refused("C2", "bad_type", ["one type"], op, [f"{kind}[2]", "i64[2]"], out)
    c.refused("C3", "bad_shape", ["[2] with [3]"], op, [f"{kind}[2]", f"{kind}[3]"], out)
c.refused("C1", "bad_type", ["bool"], "pow", ["f32[2]", "bool[2]"])
c.refused("C3", "bad_shape", ["[2] with [3]"], "pow", ["f32[2]", "f32[3]"])
c.refused("C1", "bad_type", ["bool condition"], "select", ["i32[2]", "f32[2]", "f32[2]"])
c.refused("C2", "bad_type", ["one type"], "select", ["bool[2]", "f32[2]", "f64[2]"])
c.refused("C3", "bad_shape", ["[2] with [3]"], "select", ["bool[2]", "f32[3]", "f32[3]"])
c.refused("C1", "bad_type", ["f32"], "not", ["f32[2]"])

with np.errstate(all="ignore"):
    for kind in NUMBERS + ["bool"]:
        for to in NUMBERS + ["bool"]:
            x = c.random((5,), kind)
            if to[0] == "u" and kind in FLOATS:
                x = np.abs(x)
            y = (x != 0) if to == "bool" else rounded(np.trunc(wide(x)) if to in INTS and kind in FLOATS else wide(x), to)
            c.case(f"{kind} to {to}", "cast", [x], y, to=DType(to))
    big = array([3e9, -3e9, np.nan, np.inf, -1.9])
    c.case("saturates", "cast", [big], array([2**31 - 1, -2**31, 0, 2**31 - 1, -1], "i32"), to=DType("i32"))
    c.case("saturates unsigned", "cast", [array([-5, 300, np.nan])], array([0, 255, 0], "u8"), to=DType("u8"))
    c.case("wraps", "cast", [array([300, -1], "i32")], array([44, 255], "u8"), to=DType("u8"))
    c.case("to infinity", "cast", [array([1e6])], array([np.inf], "f16"), to=DType("f16"))
    c.case("ties to even", "cast", [array([1 + 2**-11, 1 + 3 * 2**-11])], array([1, 1 + 2**-9], "f16"), to=DType("f16"))
    c.case("f8", "cast", [array([1.0625, 500, -0.3])], array([1, 448, -0.3], "f8e4m3fn"), to=DType("f8e4m3fn"))
    c.case("i4", "cast", [array([-8, 7], "i4")], array([-8, 7]), to=DType("f32"))
c.case("bits", "bitcast", [array([1.0, -2.0])], np.array([1.0, -2.0], np.float32).view(np.int32), to=DType("i32"))
c.refused("C1", "usage", ["cannot round 'half'"], "cast", ["f32[2]"], to=DType("f8e8m0"), round="half")
c.refused("C1", "bad_type", ["bitcast"], "bitcast", ["f32[2]"], to=DType("i64"))
c.write()
