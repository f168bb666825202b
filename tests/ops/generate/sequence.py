# SPDX-License-Identifier: Apache-2.0
import numpy as np
from casegen import Cases

c = Cases("sequence")
f32, i64 = np.float32, np.int64
a, b, d = c.normal(2, 3), c.normal(1, 3), c.normal(2, 3)


def constant(label, value):
    return f"  %{label} = constant() {{value = tensor<i64[]>{{{value}}}}} : i64[]\n"


MAKE = "  %s = seq_make(%0, %1, %2) : seq<f32[u0,3]; f32[2,3], f32[1,3], f32[2,3]>\n"
HEAD = "  symbol u0 in [1, 2]\n" + MAKE
c.graph("at_constant", HEAD + constant("i", -2) + "  %r = seq_at(%s, %i) : f32[1,3]\n  return %r", [a, b, d], [b])
c.graph("at_run_time", HEAD + "  symbol u1 in [1, 2]\n  %r = seq_at(%s, %3) : f32[u1,3]\n  return %r",
        [a, b, d, i64(2)], [d])
c.graph("length", HEAD + "  %r = seq_length(%s) : i64[]\n  return %r", [a, b, d], [i64(3)])
c.graph("concat", HEAD + "  %r = seq_concat(%s) {axis = 0} : f32[5,3]\n  return %r", [a, b, d],
        [np.concatenate([a, b, d])])
c.graph("concat_new_axis", "  %s = seq_make(%0, %1) : seq<f32[2,3]; f32[2,3], f32[2,3]>\n"
        "  %r = seq_concat(%s) {axis = -1, new_axis = true} : f32[2,3,2]\n  return %r", [a, d], [np.stack([a, d], -1)])
c.graph("insert", HEAD + constant("i", 1) +
        "  %t = seq_insert(%s, %2, %i) : seq<f32[u0,3]; f32[2,3], f32[2,3], f32[1,3], f32[2,3]>\n"
        "  %r = seq_concat(%t) : f32[7,3]\n  return %r", [a, b, d], [np.concatenate([a, d, b, d])])
c.graph("insert_run_time", HEAD + "  symbol u1 in [1, 2]\n  symbol u2 in [0, 100]\n"
        "  %t = seq_insert(%s, %2, %3) : seq<f32[u1,3]>\n  %r = seq_concat(%t) : f32[u2,3]\n  return %r",
        [a, b, d, i64(-3)], [np.concatenate([d, a, b, d])])
c.graph("insert_end", "  %e = seq_empty() : seq<f32[?];>\n  %t = seq_insert(%e, %0) : seq<f32[2,3]; f32[2,3]>\n"
        "  %r = seq_concat(%t) : f32[2,3]\n  return %r", [a], [a])
c.graph("erase", HEAD + constant("i", 0) + "  %t = seq_erase(%s, %i) : seq<f32[u0,3]; f32[1,3], f32[2,3]>\n"
        "  %r = seq_concat(%t) : f32[3,3]\n  return %r", [a, b, d], [np.concatenate([b, d])])
c.graph("erase_last", HEAD + "  %t = seq_erase(%s) : seq<f32[u0,3]; f32[2,3], f32[1,3]>\n"
        "  %r = seq_concat(%t) : f32[3,3]\n  return %r", [a, b, d], [np.concatenate([a, b])])
x = c.normal(5, 2)
c.graph("split_ones", "  %s = seq_split(%0) {axis = 1, keep_dims = false} : seq<f32[5]; f32[5], f32[5]>\n"
        + constant("i", 1) + "  %r = seq_at(%s, %i) : f32[5]\n  return %r", [x], [x[:, 1].copy()])
c.graph("split_run", constant("n", 2) + "  %s = seq_split(%0, %n) : seq<f32[u0,2]; f32[2,2], f32[2,2], f32[1,2]>\n"
        .replace("  %s", "  symbol u0 in [0, 5]\n  %s") + constant("i", 2)
        + "  %r = seq_at(%s, %i) : f32[1,2]\n  return %r", [x], [x[4:]])
c.graph("split_sizes", "  symbol u0 in [0, 5]\n  symbol u1 in [0, 5]\n  %s = seq_split(%0, %1) : seq<f32[u0,2]>\n"
        + constant("i", 1) + "  %r = seq_at(%s, %i) : f32[u1,2]\n  %n = seq_length(%s) : i64[]\n  return %r, %n",
        [x, np.array([1, 3, 1], i64)], [x[1:4], i64(3)])
c.graph("loop_collects", """  symbol u0 in [0, 100]
  %e = seq_empty() : seq<f32[?];>
  %s = loop(%0, _, %e, %1) {body = graph "body"(%i: i64[], %c: bool[], %q: seq<f32[3]>, %x: f32[3]) {
    %t = seq_insert(%q, %x) : seq<f32[3]>
    return %c, %t
  }, carried = 1} : seq<f32[3]>
  %r = seq_concat(%s) {axis = 0, new_axis = true} : f32[u0,3]
  return %r""", [i64(3), b[0]], [np.repeat(b, 3, 0)])
c.graph("optional", "  %o = opt_make(%0) : optional<f32[2,3]>\n  %h = opt_has(%o) : bool[]\n"
        "  %r = opt_get(%o) : f32[2,3]\n  return %h, %r", [a], [np.bool_(True), a])
c.graph("optional_empty", '  %o = opt_make() {like = "seq<f32[2]>"} : optional<seq<f32[2]>>\n'
        "  %h = opt_has(%o) : bool[]\n  return %h", [], [np.bool_(False)])
t3 = ["f32[2,3]"] * 3
c.refuse("at_outside", "bad_shape", ["seq_at", "C3", "index 3 in a sequence of 3"],
         HEAD + constant("i", 3) + "  %r = seq_at(%s, %i) : f32[2,3]\n  return %r", t3)
c.refuse("at_outside_run", "bad_shape", ["seq_at", "index -4 in a sequence of 3"],
         HEAD + "  symbol u1 in [1, 2]\n  %r = seq_at(%s, %3) : f32[u1,3]\n  return %r", [*t3[:1], "f32[1,3]", t3[0], "i64[]"],
         [a, b, d, i64(-4)])
c.refuse("at_tensor", "bad_type", ["seq_at", "C1", "f32[2,3]"], "  %r = seq_at(%0, %1) : f32[3]\n  return %r",
         ["f32[2,3]", "i64[]"])
c.refuse("make_mixed", "bad_type", ["seq_make", "C2", "f32[2]", "i32[2]"],
         "  %s = seq_make(%0, %1) : seq<f32[2]>\n  return %0", ["f32[2]", "i32[2]"])
c.refuse("insert_mixed", "bad_type", ["seq_insert", "C2", "i32[2]"],
         "  %s = seq_make(%0) : seq<f32[2]; f32[2]>\n  %t = seq_insert(%s, %1) : seq<f32[2]>\n  return %0",
         ["f32[2]", "i32[2]"])
c.refuse("concat_shapes", "bad_shape", ["seq_concat", "C4"],
         HEAD.replace("f32[u0,3]", "f32[?]") + "  %r = seq_concat(%s) {axis = 1} : f32[2,9]\n  return %r",
         [t3[0], "f32[1,3]", t3[0]])
c.refuse("split_sum", "bad_shape", ["seq_split", "into [1,3]"],
         "  symbol u0 in [0, 5]\n  %s = seq_split(%0, %1) : seq<f32[u0,2]>\n  %n = seq_length(%s) : i64[]\n  return %n",
         ["f32[5,2]", "i64[2]"], [x, np.array([1, 3], i64)])
c.refuse("optional_nothing", "usage", ["opt_make", "C1"], "  %o = opt_make() : optional<f32[2]>\n  return %0", ["f32[2]"])
c.refuse("optional_get_empty", "usage", ["opt_get", "has none"],
         '  %o = opt_make() {like = "f32[2]"} : optional<f32[2]>\n  %r = opt_get(%o) : f32[2]\n  return %r', [])
c.refuse("optional_get_tensor", "bad_type", ["opt_get", "C1"], "  %r = opt_get(%0) : f32[2]\n  return %r", ["f32[2]"])
for op in ["seq_erase", "seq_length", "seq_concat", "opt_has"]:
    c.refuse(f"{op}_tensor", "bad_type", [op, "C1", "f32[2,3]"], f"  %r = {op}(%0) : f32[3]\n  return %r", ["f32[2,3]"])
c.refuse("insert_tensor", "bad_type", ["seq_insert", "C1", "f32[2,3]"],
         "  %r = seq_insert(%0, %0) : f32[3]\n  return %r", ["f32[2,3]"])
c.refuse("insert_outside", "bad_shape", ["seq_insert", "C3", "index 4 in a sequence of 3"],
         HEAD + constant("i", 4) + "  %r = seq_insert(%s, %0, %i) : seq<f32[2,3]>\n  return %0", t3)
c.refuse("erase_outside", "bad_shape", ["seq_erase", "C3", "index 3 in a sequence of 3"],
         HEAD + constant("i", 3) + "  %r = seq_erase(%s, %i) : seq<f32[2,3]>\n  return %0", t3)
c.refuse("split_runs", "bad_shape", ["seq_split", "C3", "runs of 0"],
         constant("n", 0) + "  %s = seq_split(%0, %n) : seq<f32[2]>\n  return %0", ["f32[5]"])
c.refuse("split_sizes_sum", "bad_shape", ["seq_split", "C4", "4 is not 5"],
         "  %n = constant() {value = tensor<i64[2]>{1, 3}} : i64[2]\n  %s = seq_split(%0, %n) : seq<f32[2]>\n  return %0",
         ["f32[5]"])
c.write()
