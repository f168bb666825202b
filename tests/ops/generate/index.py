# SPDX-License-Identifier: Apache-2.0
"""Indexing and sorting against NumPy and onnx.reference."""
import numpy as np
import peers
from opcases import FLOATS, NUMBERS, Cases, array, rounded, wide

ALL = NUMBERS + ["bool", "f8e4m3fn", "i4", "u4"]
REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def gathers(c):
    for kind in ALL:
        x = array([[0, 1, 2], [3, 4, 5]], kind)
        c.case(kind, "gather", [x, array([[2, 0], [-1, 1]], "i64")], x[:, [[2, 0], [-1, 1]]], axis=1)
    words = np.array(["a", "bc", "", "d\"e"])
    c.case("string", "gather", [words, array([3, 0], "i32")], words[[3, 0]], axis=0)
    for dims, i, axis in [((3, 4, 2), [0], 0), ((3, 4, 2), 1, -1), ((5,), [[1], [-5]], 0), ((2, 3), np.zeros((0, 2)), 1),
                          ((0, 3), np.zeros((0,)), 0), ((1, 1), [0, 0, -1], 1)]:
        for index in ("i64", "i32"):
            x, at = c.random(dims), array(i, index)
            c.case(f"{dims} axis {axis} {index}", "gather", [x, at], np.take(x, at.astype(np.int64), axis), axis=axis)
    c.refused("C1", "bad_type", ["f32"], "gather", ["f32[3]", "f32[2]"], axis=0)
    c.fails("bad_shape", ["index 3", "size 3"], "gather", [array([1, 2, 3]), array([3], "i64")], "f32[1]", axis=0)

    for kind in ALL:
        x, at = array([[0, 1, 2], [3, 4, 5]], kind), array([[1, 0, -1]], "i64")
        c.case(kind, "gather_elements", [x, at], np.take_along_axis(x, at, 0), axis=0)
    x, at = c.random((3, 4, 2)), c.ints(-4, 4, 3, 2, 2)
    c.case("axis 1", "gather_elements", [x, at], np.take_along_axis(x, at, 1), axis=-2)
    c.case("empty", "gather_elements", [x, at[:0]], np.zeros((0, 2, 2), np.float32), axis=1)
    c.refused("C1", "bad_type", ["bool"], "gather_elements", ["f32[3]", "bool[2]"], axis=0)
    c.refused("C2", "bad_shape", ["beyond"], "gather_elements", ["f32[3,2]", "i64[1,3]"], axis=0)
    c.refused("C2", "bad_shape", ["one rank"], "gather_elements", ["f32[3,2]", "i64[3]"], axis=0)
    c.fails("bad_shape", ["index -4"], "gather_elements", [array([1, 2, 3]), array([-4], "i64")], "f32[1]", axis=0)

    for dims, i, batch in [((2, 3), [[0, 1], [1, -1]], 0), ((2, 3, 2), [[1], [0]], 0), ((2, 3, 2), [[[1], [0]], [[2], [0]]], 1),
                           ((2, 3), np.zeros((4, 0)), 0), ((2, 2, 3), [[[2], [1]], [[0], [-3]]], 2)]:
        x, at = c.random(dims), array(i, "i64")
        y = peers.reference("GatherND", [x, np.where(at < 0, at + 3, at)], dict(batch_dims=batch))[0] if at.size else np.stack([x] * 4)
        c.case(f"{dims} batch {batch}", "gather_nd", [x, at], y, batch_dims=batch)
    x, at = array([[1, 2], [3, 4]], "bf16"), array([[1, 1]], "i32")
    c.case("bf16", "gather_nd", [x, at], x[1, 1].reshape(1))
    c.refused("C1", "bad_type", ["f32"], "gather_nd", ["f32[3]", "f32[2,1]"])
    c.refused("C2", "bad_shape", ["tuples of 2"], "gather_nd", ["f32[3]", "i64[2,2]"])
    c.refused("C2", "bad_shape", ["fixed last size"], "gather_nd", ["f32[3]", "i64[2,N]"])
    c.refused("C3", "usage", ["batch_dims 2"], "gather_nd", ["f32[3]", "i64[2,1]"], batch_dims=2)
    c.fails("bad_shape", ["index 5"], "gather_nd", [array([1, 2, 3]), array([[5]], "i64")], "f32[1]")


def scatters(c):
    for kind in ALL:
        x, at = c.random((3, 3), kind if kind in NUMBERS else "u8").clip(0, 7).astype(array(0, kind).dtype), array([[1, 0, 2]], "i64")
        u = array([[1, 0, 1]], kind)
        y = x.copy()
        np.put_along_axis(y, at, u, 0)
        c.case(kind, "scatter_elements", [x, at, u], y, axis=0)
    for reduction, f in REDUCTIONS.items():
        for kind in NUMBERS:
            x, at, u = c.random((2, 4), kind), array([[0, 3, 0], [-1, 1, -1]], "i64"), c.random((2, 3), kind)
            y, w = wide(x).copy(), wide(u)
            for r in range(2):
                for k in range(3):
                    y[r, at[r, k]] = f(y[r, at[r, k]], w[r, k])
            c.case(f"{reduction} {kind}", "scatter_elements", [x, at, u], rounded(y, kind), axis=1, reduction=reduction)
    x = c.random((2, 3))
    c.case("nothing", "scatter_elements", [x, np.zeros((0, 3), np.int64), np.zeros((0, 3), np.float32)], x, axis=0)
    c.case("last wins", "scatter_elements", [array([1, 2]), array([0, 0], "i32"), array([5, 6])], array([6, 2]), axis=-1)
    c.case("NaN wins", "scatter_elements", [array([1, np.nan]), array([0, 1], "i32"), array([np.nan, 6])], array([np.nan, np.nan]),
           axis=0, reduction="max")
    t = ["f32[3,2]", "i64[1,2]", "f32[1,2]"]
    c.refused("C1", "bad_type", ["f16"], "scatter_elements", [t[0], "f16[1,2]", t[2]], axis=0)
    c.refused("C2", "bad_shape", ["one rank"], "scatter_elements", [t[0], "i64[2]", "f32[2]"], axis=0)
    c.refused("C3", "bad_type", ["f64"], "scatter_elements", [t[0], t[1], "f64[1,2]"], axis=0)
    c.refused("C4", "usage", ["no reduction 'sum'"], "scatter_elements", t, axis=0, reduction="sum")
    c.refused("C4", "bad_type", ["add bool"], "scatter_elements", ["bool[3,2]", t[1], "bool[1,2]"], axis=0, reduction="add")
    c.fails("bad_shape", ["index 2"], "scatter_elements", [array([1, 2]), array([2], "i64"), array([0])], "f32[2]", axis=0)

    for reduction in ["none", *REDUCTIONS]:
        for kind in FLOATS[1:] + ["i64", "u8"]:
            x, at, u = c.random((3, 2, 2), kind), array([[0], [2], [0]] if reduction != "none" else [[0], [2]], "i64"), None
            u = c.random((len(at), 2, 2), kind)
            y = wide(x).copy()
            for k, (i,) in enumerate(at):
                y[i] = wide(u)[k] if reduction == "none" else REDUCTIONS[reduction](y[i], wide(u)[k])
            c.case(f"{reduction} {kind}", "scatter_nd", [x, at, u], rounded(y, kind), reduction=reduction)
    x, at, u = c.random((2, 3)), array([[1, -1], [0, 0]], "i32"), array([9, 8])
    y = x.copy()
    y[1, -1], y[0, 0] = 9, 8
    c.case("whole tuples", "scatter_nd", [x, at, u], y)
    c.refused("C1", "bad_type", ["f16"], "scatter_nd", ["f32[3]", "f16[1,1]", "f32[1]"])
    c.refused("C2", "bad_shape", ["updates of shape [2]"], "scatter_nd", ["f32[3]", "i64[2,1]", "f32[2,1]"])
    c.refused("C3", "bad_type", ["f64"], "scatter_nd", ["f32[3]", "i64[1,1]", "f64[1]"])
    c.refused("C4", "usage", ["no reduction"], "scatter_nd", ["f32[3]", "i64[1,1]", "f32[1]"], reduction="avg")
    c.fails("bad_shape", ["index 7"], "scatter_nd", [array([1]), array([[7]], "i64"), array([0])], "f32[1]")


def selects(c):
    for kind in ["i64", "i32", "u8", "f32"]:
        for axis in (-1, 0, 1):
            i = array([[0, 2], [1, 3]], kind)
            y = np.moveaxis(np.where(i[..., None].astype(int) == np.arange(3), 5, -1).astype(np.float32), -1, axis)
            c.case(f"{kind} axis {axis}", "one_hot", [i, array(3, "i64"), array([-1, 5])], y, axis=axis)
    c.case("negative and fractions", "one_hot", [array([-1, -4, 0.5, 1]), array([3.0]), array([0, 1], "i8")],
           array([[0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]], "i8"))
    c.case("bool", "one_hot", [array(1, "i64"), array(2, "i32"), array([0, 1], "bool")], array([0, 1], "bool"))
    c.refused("C1", "bad_type", ["bool"], "one_hot", ["bool[3]", "i64[]", "f32[2]"])
    c.refused("C2", "bad_shape", ["one depth"], "one_hot", ["i64[3]", "i64[2]", "f32[2]"])
    c.refused("C3", "bad_shape", ["[2]"], "one_hot", ["i64[3]", "i64[]", "f32[]"])
    c.fails("bad_shape", ["negative depth"], "one_hot", [array([1], "i64"), array(-1, "i64"), array([0, 1])], "f32[1,1]")

    for kind in NUMBERS + ["bool"]:
        x = array([[0, 1, 0], [2, 0, 3]], kind)
        c.case(kind, "non_zero", [x], np.array(np.nonzero(x)).astype(np.int64))
    c.case("scalar", "non_zero", [array(5)], np.zeros((0, 1), np.int64))
    c.case("none", "non_zero", [array([0, -0.0])], np.zeros((1, 0), np.int64))
    c.case("NaN", "non_zero", [array([np.nan, 0])], array([[0]], "i64"))
    c.refused("C1", "bad_type", ["string"], "non_zero", ["string[3]"], ["i64[1,1]"])

    for dims, condition, axis in [((3, 2), [1, 0, 1], 0), ((3, 2), [0, 1], -1), ((4,), [0, 0], 0), ((2, 3), [1], 1)]:
        x, k = c.random(dims), array(condition, "bool")
        c.case(f"{dims} axis {axis}", "compress", [x, k], np.compress(k, x, axis), axis=axis)
    c.refused("C1", "bad_type", ["bool and rank 1"], "compress", ["f32[3]", "i64[3]"], axis=0)
    c.refused("C2", "bad_shape", ["4 conditions"], "compress", ["f32[3]", "bool[4]"], axis=0)

    for kind in NUMBERS:
        x = array([3, 1, 3, 2, 1, 5], kind)
        y, first, inverse, counts = np.unique(x, True, True, True)
        c.case(kind, "unique", [x], [y, first, inverse.reshape(-1), counts])
    x = array([[3, 1], [2, 2], [3, 1], [0, 9]])
    for axis in (None, 0, 1):
        y, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
        c.case(f"axis {axis}", "unique", [x], [y, first, inverse.reshape(-1), counts], **({} if axis is None else {"axis": axis}))
    c.case("in order of appearance", "unique", [array([3, 1, 3, 2])],
           [array([3, 1, 2]), array([0, 1, 3], "i64"), array([0, 1, 0, 2], "i64"), array([2, 1, 1], "i64")], sorted=False)
    words = np.array(["b", "a", "b"])
    c.case("string", "unique", [words], [np.array(["a", "b"]), *[array(v, "i64") for v in ([1, 0], [1, 0, 1], [1, 2])]])
    c.case("empty", "unique", [array(np.zeros(0))], [array(np.zeros(0)), *[array([], "i64")] * 3])

    x = c.random((3, 4, 2))
    for b, t in [(0, 1), (2, 1), (1, 0)]:
        lengths = array([1, 3, 0, 2][:x.shape[b]], "i64").clip(0, x.shape[t])
        y = x.copy()
        for k, n in enumerate(lengths):
            line = [slice(None)] * 3
            line[b], line[t] = k, slice(0, n)
            y[tuple(line)] = np.flip(x[tuple(line)], t - (b < t))
        c.case(f"batch {b} time {t}", "reverse_sequence", [x, lengths], y, batch_axis=b, time_axis=t)
    c.refused("C1", "bad_type", ["rank 1"], "reverse_sequence", ["f32[3,2]", "f32[3]"], batch_axis=0, time_axis=1)
    c.refused("C2", "usage", ["different"], "reverse_sequence", ["f32[3,2]", "i64[3]"], batch_axis=0, time_axis=0)
    c.refused("C3", "bad_shape", ["2 is not 3"], "reverse_sequence", ["f32[3,2]", "i64[2]"], batch_axis=0, time_axis=1)
    c.fails("bad_shape", ["length 3"], "reverse_sequence", [c.random((1, 2)), array([3], "i64")], "f32[1,2]", batch_axis=0, time_axis=1)


def bags(c):
    table, indices, offsets = c.random((5, 3)), array([1, 4, 0, -1, 2], "i64"), array([0, 2, 2], "i64")
    for mode, f in [("sum", np.sum), ("mean", np.mean), ("max", np.max)]:
        rows = wide(table)[indices]
        y = np.stack([f(rows[a:b], 0) if b > a else np.zeros(3) for a, b in [(0, 2), (2, 2), (2, 5)]])
        c.case(mode, "embedding_bag", [table, indices, offsets], rounded(y, "f32"), mode=mode)
    weights = c.random((5,))
    y = np.stack([(rows * wide(weights)[:, None])[a:b].sum(0) for a, b in [(0, 2), (2, 2), (2, 5)]])
    c.case("weighted", "embedding_bag", [table, indices, offsets, weights], rounded(y, "f32"))
    t = ["f32[5,3]", "i64[4]", "i64[2]"]
    c.refused("C1", "bad_type", ["rank 2"], "embedding_bag", ["f32[5]", *t[1:]])
    c.refused("C2", "bad_type", ["integer indices"], "embedding_bag", [t[0], "f32[4]", t[2]])
    c.refused("C3", "usage", ["no mode"], "embedding_bag", t, mode="min")
    c.refused("C4", "bad_type", ["mode max"], "embedding_bag", [*t, "f32[4]"], mode="max")
    c.fails("bad_shape", ["offsets that rise"], "embedding_bag", [table, indices, array([0, 3, 1], "i64")], "f32[3,3]")

    past, update = c.random((2, 1, 4, 3)), c.random((2, 1, 2, 3))
    for circular, at in [(False, [0, 2]), (True, [3, 1]), (False, None)]:
        y = past.copy()
        for b in range(2):
            for k in range(2):
                y[b, :, ((at[b] if at else 0) + k) % 4] = update[b, :, k]
        c.case(f"circular {circular} {at}", "tensor_scatter", [past, update, array(at, "i64") if at else None], y, circular=circular)
    t = ["f32[2,4,3]", "f32[2,1,3]"]
    c.refused("C1", "bad_type", ["f16"], "tensor_scatter", [t[0], "f16[2,1,3]"])
    c.refused("C2", "bad_shape", ["5 entries into 4"], "tensor_scatter", [t[0], "f32[2,5,3]"])
    c.refused("C3", "usage", ["axis 0"], "tensor_scatter", t, axis=0)
    c.refused("C4", "bad_shape", ["3 is not 2"], "tensor_scatter", [*t, "i64[3]"])
    c.fails("bad_shape", ["at 3"], "tensor_scatter", [past, update, array([3, 0], "i64")], "f32[2,1,4,3]")


def sorts(c):
    def topk(x, k, axis, largest):
        order = np.argsort(-wide(x).astype(np.float64) if largest else wide(x), axis=axis, kind="stable")
        at = np.take(order, range(k), axis)
        return [np.take_along_axis(x, at, axis), at.astype(np.int64)]

    for kind in NUMBERS:
        x = c.random((2, 6), kind)
        c.case(kind, "topk", [x, array(3, "i64")], topk(x, 3, 1, True))
        c.case(f"{kind} smallest", "topk", [x, array([2], "i64")], topk(x, 2, 1, False), largest=False)
    for dims, k, axis in [((3, 4, 2), 2, 1), ((5,), 5, 0), ((2, 3), 0, -1), ((0, 3), 2, 1), ((4, 1), 1, -1)]:
        x = c.random(dims)
        c.case(f"{dims} {k} axis {axis}", "topk", [x, array(k, "i64")], topk(x, k, axis, True), axis=axis)
    special = array([1, np.nan, np.inf, -np.inf, np.nan, 0, -0.0])
    c.case("NaN is largest", "topk", [special, array(4, "i64")], [array([np.nan, np.nan, np.inf, 1]), array([1, 4, 2, 0], "i64")])
    c.case("equal by index", "topk", [array([0.0, -0.0, 0.0]), array(2, "i64")], [array([0.0, -0.0]), array([0, 1], "i64")])
    c.refused("C1", "bad_type", ["bool"], "topk", ["bool[3]", "i64[]"])
    c.refused("C2", "bad_type", ["one integer"], "topk", ["f32[3]", "f32[]"])
    body = "  %k = constant() {value = tensor<i64[]>{5}} : i64[]\n  %v, %i = topk(%0, %k) : f32[5], i64[5]\n  return %v, %i"
    c.refuse("topk_C3", "bad_shape", ["topk", "C3", "5 of 3"], body, ["f32[3]"])
    c.fails("bad_shape", ["5 of 3"], "topk", [array([1, 2, 3]), array(5, "i64")], "f32[3]")
    for kind in NUMBERS:
        x = c.random((2, 5), kind)
        at = np.argsort(wide(x), axis=1, kind="stable")
        c.case(kind, "sort", [x], [np.take_along_axis(x, at, 1), at])
    at = np.argsort(-wide(x := c.random((4, 3))), axis=0, kind="stable")
    c.case("descending", "sort", [x], [np.take_along_axis(x, at, 0), at], axis=0, descending=True)
    c.case("special", "sort", [special], [array([-np.inf, 0, -0.0, 1, np.inf, np.nan, np.nan]), array([3, 5, 6, 0, 2, 1, 4], "i64")])
    c.refused("C1", "bad_type", ["bool"], "sort", ["bool[3]"])


def make():
    c = Cases("index")
    for part in (gathers, scatters, selects, bags, sorts):
        part(c)
    c.write()


make()
