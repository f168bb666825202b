# SPDX-License-Identifier: Apache-2.0
import numpy as np
from casegen import Cases, type_of

c = Cases("control")
f32, i64 = np.float32, np.int64

IF = """  %r = if(%0, %1) {then = graph "yes"(%x: f32[3]) {
    %y = neg(%x) : f32[3]
    return %y
  }, else = graph "no"(%x: f32[3]) {
    %y = exp(%x) : f32[3]
    return %y
  }} : f32[3]
  return %r"""
x = c.normal(3)
c.graph("if_then", IF, [np.bool_(True), x], [-x])
c.graph("if_else", IF, [np.bool_(False), x], [np.exp(x.astype(np.float64)).astype(f32)])
# Branches of different sizes: the result has a size that only the run knows.
SIZES = """  %r = if(%0, %1) {then = graph "yes"(%x: f32[3]) {
    return %x
  }, else = graph "no"(%x: f32[3]) {
    %y = concat(%x, %x) {axis = 0} : f32[6]
    return %y
  }} : f32[u0]
  return %r"""
SIZES = "  symbol u0 in [3, 6]\n" + SIZES
c.graph("if_sizes_then", SIZES, [np.bool_(True), x], [x])
c.graph("if_sizes_else", SIZES, [np.array([False]), x], [np.concatenate([x, x])])
# A condition that is a constant decides the type.
c.graph("if_constant", """  %k = constant() {value = tensor<bool[]>{true}} : bool[]
  %r = if(%k, %0) {then = graph "yes"(%x: f32[3]) {
    return %x
  }, else = graph "no"(%x: f32[3]) {
    %y = reshape(%x) {dims = dims[1, 3]} : f32[1,3]
    return %y
  }} : f32[3]
  return %r""", [x], [x])
c.refuse("if_condition", "bad_type", ["if", "C1", "i64[]"], IF, ["i64[]", "f32[3]"])
c.refuse("if_capture", "bad_type", ["if", "C2", "i32[3]", "graph 'yes'"], IF, ["bool[]", "i32[3]"])
c.refuse("if_captures", "usage", ["if", "C2", "gives 2 values to graph 'yes', which takes 1"],
         IF.replace("if(%0, %1)", "if(%0, %1, %1)"), ["bool[]", "f32[3]"])
c.refuse("if_results", "usage", ["if", "C3", "expects 2 results of graph 'yes'"],
         IF.replace("%r = if", "%r, %s = if").replace("}} : f32[3]", "}} : f32[3], f32[3]"), ["bool[]", "f32[3]"])
c.refuse("if_types", "bad_type", ["C3", "do not agree"],
         IF.replace("%y = exp(%x) : f32[3]", "%y = cast(%x) {to = i32} : i32[3]"), ["bool[]", "f32[3]"])


def loop(inputs, attrs="", body_inputs="%s: f32[2]", body="%t = add(%s, %s) : f32[2]", yields="%c, %t",
         results="%r", types="f32[2]"):
    return f"""  {results} = loop({inputs}) {{body = graph "body"(%i: i64[], %c: bool[], {body_inputs}) {{
    {body}
    return {yields}
  }}, carried = 1{attrs}}} : {types}
  return {results}"""


s = c.normal(2)
c.graph("loop_double", loop("%0, _, %1"), [i64(5), s], [s * 32])
c.graph("loop_no_trips", loop("%0, _, %1"), [i64(0), s], [s])
c.graph("loop_condition_false", loop("%0, %1, %2"), [i64(5), np.bool_(False), s], [s])
c.graph("loop_until", loop("_, _, %0", body="""%t = add(%s, %s) : f32[2]
    %m = constant() {value = tensor<i64[]>{3}} : i64[]
    %go = lt(%i, %m) : bool[]""", yields="%go, %t"), [s], [s * 16])
c.graph("loop_scan", loop("%0, _, %1, %2", body_inputs="%s: f32[2], %k: f32[2]", body="%t = add(%s, %k) : f32[2]",
                          yields="%c, %t, %t, %i", results="%r, %all, %n", types="f32[2], f32[u0,2], i64[u0]")
        .replace("  %r", "  symbol u0 in [0, 100]\n  %r", 1),
        [i64(3), np.array([1, 2], f32), np.array([10, 20], f32)],
        [np.array([31, 62], f32), np.array([[11, 22], [21, 42], [31, 62]], f32), np.arange(3, dtype=i64)])
c.graph("loop_scan_empty", loop("%0, _, %1", yields="%c, %t, %t", results="%r, %all", types="f32[2], f32[u0,2]")
        .replace("  %r", "  symbol u0 in [0, 100]\n  %r", 1), [i64(0), s], [s, np.zeros((0, 2), f32)])
c.graph("loop_known_trips", "  %k = constant() {value = tensor<i64[]>{3}} : i64[]\n"
        + loop("%k, _, %0", yields="%c, %t, %t", results="%r, %all", types="f32[2], f32[3,2]"), [s],
        [s * 8, np.stack([s * 2, s * 4, s * 8])])
# A carried value that grows.
c.graph("loop_grows", "  symbol u0 in [0, 1000]\n  symbol u1 in [0, 1000]\n" + loop(
    "%0, _, %1", body_inputs="%s: f32[u0]", body="%t = concat(%s, %s) {axis = 0} : f32[2*u0]",
    types="f32[u1]"), [i64(3), s], [np.concatenate([s] * 8)])
c.refuse("loop_trip", "bad_type", ["loop", "C1", "f32[]"], loop("%0, _, %1"), ["f32[]", "f32[2]"])
c.refuse("loop_condition", "bad_type", ["loop", "C1", "i64[]"], loop("_, %0, %1"), ["i64[]", "f32[2]"])
c.refuse("loop_carried_type", "bad_type", ["loop", "C4", "f32[2]", "i32[2]"],
         loop("%0, _, %1", body="%t = cast(%s) {to = i32} : i32[2]"), ["i64[]", "f32[2]"])
c.refuse("loop_body_inputs", "usage", ["loop", "C2", "gives 4 values"], loop("%0, _, %1, %1"), ["i64[]", "f32[2]"])
c.refuse("loop_body_results", "usage", ["loop", "C3", "expects 2 or more results"], loop("%0, _, %1", yields="%c"),
         ["i64[]", "f32[2]"])
c.refuse("loop_body_condition", "bad_type", ["loop", "C3", "expects a bool"], loop("%0, _, %1", yields="%i, %t"),
         ["i64[]", "f32[2]"])
c.refuse("loop_carried_count", "usage", ["loop", "C2", "carries 1 values but has 0"], loop("%0, _"), ["i64[]"])

x = c.normal(3, 2)
SCAN = """  %h, %y = scan(%0, %1) {body = graph "step"(%s: f32[2], %x: f32[2]) {
    %t = add(%s, %x) : f32[2]
    return %t, %t
  }, carried = 1, scanned = 1ATTRS} : f32[2], f32[3,2]
  return %h, %y"""
cum = np.cumsum(np.concatenate([s[None], x]).astype(np.float64), 0)[1:]
c.graph("scan_sum", SCAN.replace("ATTRS", ""), [s, x], [cum[-1].astype(f32), cum.astype(f32)], rtol=1e-6, atol=1e-6)
back = np.cumsum(np.concatenate([s[None], x[::-1]]).astype(np.float64), 0)[1:]
c.graph("scan_reverse", SCAN.replace("ATTRS", ", reverse = [1], out_reverse = [1]"), [s, x],
        [back[-1].astype(f32), back[::-1].astype(f32)], rtol=1e-6, atol=1e-6)
c.graph("scan_axes", SCAN.replace("ATTRS", ", axes = [1], out_axes = [-1]").replace("f32[3,2]", "f32[2,3]"),
        [s, np.ascontiguousarray(x.T)], [cum[-1].astype(f32), cum.T.astype(f32)], rtol=1e-6, atol=1e-6)
c.graph("scan_empty", SCAN.replace("ATTRS", "").replace("f32[3,2]", "f32[0,2]"), [s, x[:0]], [s, x[:0]])
c.refuse("scan_lengths", "bad_shape", ["scan", "C5", "3 is not 4"], """  %y = scan(%0, %1) {body = graph "step"(%a: f32[2], %b: f32[2]) {
    %t = add(%a, %b) : f32[2]
    return %t
  }, carried = 0, scanned = 2} : f32[3,2]
  return %y""", ["f32[3,2]", "f32[4,2]"])
c.refuse("scan_none", "usage", ["scan", "C1", "scans 0"], SCAN.replace("scanned = 1ATTRS", "scanned = 0"),
         ["f32[2]", "f32[3,2]"])
c.refuse("scan_list", "usage", ["scan", "C1", "axes"], SCAN.replace("ATTRS", ", axes = [0, 1]"), ["f32[2]", "f32[3,2]"])

FUSED = """  %r, %q = fused(%0, %1) {body = graph "group"(%a: f32[2], %b: f32[2]) {
    %s = add(%a, %b) : f32[2]
    %e = neg(%s) : f32[2]
    return %s, %e
  }, kind = "pointwise"} : f32[2], f32[2]
  return %r, %q"""
a, b = np.array([1, 2.5], f32), np.array([3, 4], f32)
c.graph("fused", FUSED, [a, b], [a + b, -(a + b)])
c.refuse("fused_inputs", "usage", ["fused", "C1", "gives 1 values"], FUSED.replace("%0, %1", "%0"), ["f32[2]"])
c.refuse("fused_results", "usage", ["fused", "C1", "expects 1 results"],
         FUSED.replace("%r, %q", "%r").replace(": f32[2], f32[2]\n  return", ": f32[2]\n  return"), ["f32[2]", "f32[2]"])
c.refuse("join_tensor", "bad_type", ["join", "C1", "f32[2]"], "  %t = join(%0) : token\n  return %0", ["f32[2]"])
c.refuse("custom_unknown", "unsupported_op", ["nobody::twice", "--plugin"],
         '  %r = custom(%0) {domain = "nobody", name = "twice"} : f32[2]\n  return %r', ["f32[2]"])
assert type_of(x) == "f32[3,2]"
c.refuse("scan_body_inputs", "usage", ["scan", "C2", "gives 3 values"],
         SCAN.replace("ATTRS", "").replace("scan(%0, %1)", "scan(%0, %1, %0)"), ["f32[2]", "f32[3,2]"])
c.refuse("scan_body_results", "usage", ["scan", "C3", "expects 3 results"],
         SCAN.replace("ATTRS", "").replace("%h, %y = scan", "%h, %y, %z = scan").replace("f32[3,2]\n", "f32[3,2], f32[3]\n"),
         ["f32[2]", "f32[3,2]"])
c.refuse("scan_carried_type", "bad_type", ["scan", "C4", "i32[2]"],
         SCAN.replace("ATTRS", "").replace("return %t, %t", "%u = cast(%t) {to = i32} : i32[2]\n    return %u, %t"),
         ["f32[2]", "f32[3,2]"])
c.write()
