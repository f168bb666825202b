# SPDX-License-Identifier: Apache-2.0
from casegen import Cases

c = Cases("collective")
x = c.normal(4, 2)
for op, attrs in {"all_reduce": 'op = "sum"', "all_gather": "axis = 1", "reduce_scatter": "axis = 0",
                  "broadcast_from": "root = 0"}.items():
    c.graph(op, f"  %t = token() : token\n  %r, %u = {op}(%0, %t) {{{attrs}}} : f32[4,2], token\n  return %r", [x], [x])
c.graph("joined", "  %t = token() : token\n  %a, %u = all_reduce(%0, %t) : f32[4,2], token\n"
        "  %s = token() : token\n  %b, %v = all_reduce(%0, %s) : f32[4,2], token\n  %j = join(%u, %v) : token\n"
        "  %r, %w = broadcast_from(%a, %j) : f32[4,2], token\n  return %r", [x], [x])
c.refuse("several", "unsupported_op", ["all_gather", "needs 4 processes"],
         "  %r = all_gather(%0) {axis = 0, world = 4} : f32[16,2]\n  return %r", ["f32[4,2]"], [x])
c.refuse("reduction", "usage", ["all_reduce", "C2", "'xor'"], '  %r = all_reduce(%0) {op = "xor"} : f32[2]\n  return %r',
         ["f32[2]"])
c.refuse("type", "bad_type", ["all_reduce", "C1", "bool"], "  %r = all_reduce(%0) : bool[2]\n  return %r", ["bool[2]"])
c.refuse("token", "bad_type", ["all_reduce", "C1", "needs a token"], "  %r = all_reduce(%0, %0) : f32[2]\n  return %r",
         ["f32[2]"])
c.refuse("split", "bad_shape", ["reduce_scatter", "C3", "5 over 2"],
         "  %r = reduce_scatter(%0) {world = 2} : f32[2]\n  return %r", ["f32[5]"])
c.refuse("world", "usage", ["all_gather", "C3", "group of 0"], "  %r = all_gather(%0) {world = 0} : f32[5]\n  return %r",
         ["f32[5]"])
c.refuse("root", "usage", ["broadcast_from", "C3", "root -1"],
         "  %r = broadcast_from(%0) {root = -1} : f32[5]\n  return %r", ["f32[5]"])
for op in ["all_gather", "broadcast_from", "reduce_scatter"]:
    c.refuse(f"{op}_token", "bad_type", [op, "C1", "needs a token"], f"  %r = {op}(%0, %0) : f32[2]\n  return %r", ["f32[2]"])
c.refuse("scatter_reduction", "usage", ["reduce_scatter", "C2", "'xor'"],
         '  %r = reduce_scatter(%0) {op = "xor"} : f32[2]\n  return %r', ["f32[2]"])
c.write()
