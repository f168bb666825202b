# SPDX-License-Identifier: Apache-2.0
"""matmul against NumPy in f64."""
import numpy as np

from opcases import FLOATS, Cases, array, name_of, rounded, wide

SHAPES = [((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 1, 2, 3), (5, 3, 2)),
          ((4, 2, 3), (3, 1)), ((1, 1), (1, 1)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((3,), (2, 3, 4)),
          ((2, 2, 3), (3,))]


def product(a, b):
    return np.asarray(rounded(np.matmul(wide(a), wide(b)), name_of(a)))


def zero_axis(z, rows):
    return z if z.ndim != 1 or z.size == 1 else z[:, None] if rows else z


def make():
    c = Cases("contract")
    for kind in FLOATS:
        a, b = c.random((3, 5), kind), c.random((5, 2), kind)
        c.case(kind, "matmul", [a, b], product(a, b))
    for kind in ["i64", "i32", "i16", "u64", "u32", "u16"]:
        a, b = c.random((3, 5), kind), c.random((5, 2), kind)
        c.case(kind, "matmul", [a, b], np.matmul(a, b))
    for da, db in SHAPES:
        a, b = c.random(da), c.random(db)
        c.case(f"{da} by {db}", "matmul", [a, b], product(a, b))
    for ta in (False, True):
        for tb in (False, True):
            a, b = c.random((2, 3, 4)), c.random((4, 5))
            c.case(f"transposed {ta} {tb}", "matmul",
                   [np.swapaxes(a, -1, -2).copy() if ta else a, b.T.copy() if tb else b], product(a, b),
                   transpose_a=ta, transpose_b=tb)
    c.case("i32 wraps", "matmul", [array([[2**30, 3]], "i32"), array([[4], [5]], "i32")], array([[15]], "i32"))
    c.case("infinity times zero", "matmul", [array([[np.inf, 1]]), array([[0.0], [2]])], array([[np.nan]]))
    for ka in ("i8", "u8"):
        for kb in ("i8", "u8"):
            a, b = c.random((2, 3, 4), ka, -128, 128), c.random((4, 5), kb, -128, 128)
            for za, zb in [(None, None), (array(3, ka), array([-2 % 100], kb)),
                           (array([1, 2, 3], ka), array([1, 2, 3, 4, 5], kb)),
                           (c.random((2, 3, 1), ka), c.random((1, 5), kb))]:
                p = a.astype(np.int64) - (zero_axis(za.astype(np.int64), True) if za is not None else 0)
                q = b.astype(np.int64) - (zero_axis(zb.astype(np.int64), False) if zb is not None else 0)
                c.case(f"{ka} {kb} zero points {None if za is None else za.shape}", "matmul", [a, b, za, zb],
                       np.matmul(p, q).astype(np.int32))
    c.refused("C1", "bad_type", ["f32", "f16"], "matmul", ["f32[2,3]", "f16[3,2]"], ["f32[2,2]"])
    c.refused("C1", "bad_type", ["bool"], "matmul", ["bool[2,3]", "bool[3,2]"], ["bool[2,2]"])
    c.refused("C2", "bad_shape", ["scalar"], "matmul", ["f32[]", "f32[3,2]"])
    c.refused("C2", "usage", ["transpose operand 0"], "matmul", ["f32[3]", "f32[3,2]"], transpose_a=True)
    c.refused("C3", "bad_shape", ["3 on the left", "4 on the right", "[2,3]"], "matmul", ["f32[2,3]", "f32[4,5]"])
    c.refused("C4", "bad_type", ["zero point"], "matmul", ["f32[2,3]", "f32[3,5]", "f32[]"])
    c.refused("C4", "bad_shape", ["one a column"], "matmul", ["u8[2,3]", "u8[3,5]", None, "u8[3,5]"])
    c.refused("C5", "bad_shape", ["cannot broadcast"], "matmul", ["f32[2,2,3]", "f32[4,3,5]"])
    c.write()


make()
