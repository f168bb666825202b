# SPDX-License-Identifier: Apache-2.0
"""einsum and det against NumPy in f64."""
import numpy as np
from opcases import FLOATS, INTS, Cases, array, rounded, wide

c = Cases("einsum")
for equation, *shapes in [
        ("ij,jk->ik", (2, 3), (3, 4)), ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("ii->i", (3, 3)), ("ii", (3, 3)), ("iji->j", (2, 3, 2)),
        ("i,j->ij", (2,), (3,)), ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)), ("bhid,bhjd->bhij", (1, 2, 3, 4), (1, 2, 2, 4)),
        ("...ij,...jk->...ik", (2, 1, 2, 3), (4, 3, 2)), ("...i,...i", (2, 3), (3,)), ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
        ("ab,ab->ab", (2, 3), (2, 3)), ("ab,b->a", (2, 3), (3,)), ("abc,cd->abd", (2, 2, 3), (3, 1)), (" i j , j ", (2, 3), (3,)),
        ("ij,kl->", (2, 2), (2, 3)), ("->", ()), (",i->i", (), (3,)), ("ij,jk", (0, 3), (3, 2)), ("ij,jk", (2, 0), (0, 2)),
        ("Ab,bA->A", (2, 3), (3, 2)), ("...ij->...ji", (2, 3, 4)), ("...,...->...", (3, 1), (1, 4)), ("aij,jk,aik->ai", (2, 2, 3), (3, 2), (2, 2, 2))]:
    x = [c.random(s) for s in shapes]
    y = rounded(np.einsum(equation, *map(wide, x)), "f32")
    c.case(equation.replace("->", "_to_"), "einsum", x, np.asarray(y), equation=equation)
for kind in FLOATS + INTS:
    a, b = c.random((2, 3), kind), c.random((3, 2), kind)
    y = np.einsum("ij,jk->ki", wide(a), wide(b))
    c.case(kind, "einsum", [a, b], rounded(y, kind), equation="ij,jk->ki")
two = ["f32[2,3]", "f32[3,2]"]
c.refused("C1", "bad_type", ["f32 and f64"], "einsum", [two[0], "f64[3,2]"], equation="ij,jk")
c.refused("C1", "bad_type", ["bool"], "einsum", ["bool[2]"], equation="i")
for equation, word in [("ij", "1 terms for 2"), ("ijk,jk", "names 3 axes"), ("ij,j1", "character '1'"), ("ij,jk->il", "no operand has"),
                       ("ij,jk->ii", "twice"), ("i..j,jk", "dots"), ("...ij,jk->ik", "drops")]:
    c.refused("C2", "usage", [word], "einsum", [two[0] if word != "drops" else "f32[2,2,3]", two[1]], equation=equation)
c.refused("C3", "bad_shape", ["3 is not 2"], "einsum", [two[0], "f32[2,3]"], equation="ij,jk")

for dims in [(3, 3), (2, 2, 2), (1, 1), (0, 2, 2), (5, 5)]:
    for kind in FLOATS:
        x = c.random(dims, kind)
        c.case(f"{dims} {kind}", "det", [x], np.asarray(rounded(np.linalg.det(wide(x)), kind)))
c.case("singular", "det", [array([[1, 2], [2, 4]])], array(0))
c.case("exchange", "det", [array([[0, 1], [1, 0]])], array(-1))
c.case("no rows", "det", [array(np.zeros((0, 0)))], array(1))
c.refused("C1", "bad_type", ["i32"], "det", ["i32[2,2]"])
c.refused("C2", "bad_shape", ["3 is not 2"], "det", ["f32[2,3]"])
c.write()
