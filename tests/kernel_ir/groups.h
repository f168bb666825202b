// SPDX-License-Identifier: Apache-2.0
// Groups that kernels are made of in these tests, as graphs in text form, with sizes to run them at.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "base/philox.h"
#include "ir/op.h"
#include "ir/text.h"

namespace pelton::test {

struct Group {
  std::string name, text;
  std::vector<SymbolValues> sizes = {{}};
  double rtol = 2e-6, atol = 2e-6;  // against the f64 interpreter
  bool single_op = false;
};

// Every pointwise op alone, on every kind of element it takes.
inline void add_single_ops(std::vector<Group>& to) {
  for (const ir::OpDef* op : ir::all_ops()) {
    if (op->family != ir::Family::pointwise || !op->scalar) continue;
    for (std::string_view t : {"f32", "f64", "i32", "u32", "i64", "bool"}) {
      std::string operands, inputs;
      for (int i = 0; i < op->min_inputs; ++i) {
        std::string_view type = op->name == "select" && i == 0 ? "bool" : t;
        append(inputs, cat(i ? ", " : "", "%x", i, ": ", type, "[40]"));
        append(operands, cat(i ? ", " : "", "%x", i));
      }
      std::string text = cat("graph \"g\"(", inputs, ") {\n  %r = ", op->name, "(", operands,
                             ") : ", op->scalar->yields_bool ? "bool" : t, "[40]\n  return %r\n}");
      try {
        (void)ir::parse_graph(text);
      } catch (const Error&) {
        continue;  // an element type the op does not take
      }
      if (op->name == "pow" && !t.starts_with("f")) continue;  // powers of integers have no scalar code
      to.push_back({cat(op->name, "_", t), text, {{}}, 1e-5, 1e-5, true});
    }
  }
}

inline const std::vector<Group>& groups() {
  static const std::vector<Group> all = [] {
    std::vector<Group> list = {
        {"bias_gelu",
         R"(graph "g"(%x: f32[N,4], %b: f32[4]) {
        symbol N in [0, 100]
        %0 = add(%x, %b) : f32[N,4]
        %1 = gelu(%0) {tanh = true} : f32[N,4]
        %2 = mul(%1, %x) : f32[N,4]
        return %2, %0
      })",
         {{{"N", 3}}, {{"N", 1}}, {{"N", 0}}}},
        {"half_intermediate",
         R"(graph "g"(%x: f16[6], %y: bf16[6]) {
        %0 = exp(%x) : f16[6]
        %1 = mul(%0, %0) : f16[6]
        %2 = cast(%y) {to = f16} : f16[6]
        %3 = sub(%1, %2) : f16[6]
        %4 = cast(%3) {to = bf16} : bf16[6]
        return %3, %4
      })",
         {{}},
         8e-3,
         4e-3},
        {"integers", R"(graph "g"(%a: i8[5], %b: i8[5], %u: u32[5]) {
        %0 = mul(%a, %b) : i8[5]
        %1 = div(%0, %b) : i8[5]
        %2 = mod(%a, %b) : i8[5]
        %3 = max(%1, %2) : i8[5]
        %4 = cast(%3) {to = u32} : u32[5]
        %5 = xor(%4, %u) : u32[5]
        %6 = not(%5) : u32[5]
        %7 = lt(%6, %u) : bool[5]
        %8 = select(%7, %3, %a) : i8[5]
        return %8, %6
      })"},
        {"compare_cast", R"(graph "g"(%x: f32[7], %y: f64[7]) {
        %0 = cast(%x) {to = f64} : f64[7]
        %1 = lt(%0, %y) : bool[7]
        %2 = is_nan(%x) : bool[7]
        %3 = or(%1, %2) : bool[7]
        %4 = cast(%x) {to = i32} : i32[7]
        %5 = cast(%4) {to = f32} : f32[7]
        %6 = select(%3, %5, %x) : f32[7]
        %7 = pow(%6, %4) : f32[7]
        return %3, %6, %4
      })"},
        {"softmax",
         R"(graph "g"(%x: f32[N,C]) {
        symbol N in [0, 100]
        symbol C in [1, 5000]
        %0 = softmax(%x) : f32[N,C]
        return %0
      })",
         {{{"N", 3}, {"C", 5}}, {{"N", 2}, {"C", 1}}, {{"N", 2}, {"C", 1500}}, {{"N", 0}, {"C", 4}}}},
        {"layer_norm",
         R"(graph "g"(%x: f16[2,3,40], %s: f16[40], %b: f16[40]) {
        %0, %1, %2 = layer_norm(%x, %s, %b) {eps = 0.001} : f16[2,3,40], f32[2,3,1], f32[2,3,1]
        return %0, %1, %2
      })",
         {{}},
         2e-3,
         2e-3},
        {"add_rms_norm",
         R"(graph "g"(%x: f32[N,64], %r: f32[N,64], %s: f32[64]) {
        symbol N in [0, 100]
        %0 = add(%x, %r) : f32[N,64]
        %1 = rms_norm(%0, %s) : f32[N,64]
        return %1, %0
      })",
         {{{"N", 5}}}},
        {"channel_mean", R"(graph "g"(%x: f32[2,3,4,5]) {
        %0 = reduce_mean(%x) {axes = [2, 3]} : f32[2,3]
        %1 = reduce_max(%x) {axes = [2, 3], keep_dims = true} : f32[2,3,1,1]
        %2 = sub(%x, %1) : f32[2,3,4,5]
        return %0, %2
      })"},
        {"middle_axis",
         R"(graph "g"(%x: f32[2,5,3]) {
        %0 = reduce_sum(%x) {axes = [1], keep_dims = true} : f32[2,1,3]
        %1 = div(%x, %0) : f32[2,5,3]
        %2 = reshape(%1) {dims = dims[10,3]} : f32[10,3]
        return %2
      })",
         {{}},
         2e-5},
        {"integer_reductions", R"(graph "g"(%x: i16[3,4]) {
        %0 = reduce_sum(%x) {axes = [1]} : i16[3]
        %1 = reduce_min(%x) {axes = [1]} : i16[3]
        %2 = reduce_max(%x) {axes = [1]} : i16[3]
        %3 = sub(%2, %1) : i16[3]
        return %0, %3
      })"},
        {"whole_reduction", R"(graph "g"(%x: f32[3,7]) {
        %0 = square(%x) : f32[3,7]
        %1 = reduce_sum(%0) {axes = [0, 1]} : f32[]
        %2 = sqrt(%1) : f32[]
        return %2
      })"},
        {"movement", R"(graph "g"(%x: f32[3,4], %y: f32[2,4]) {
        %0 = concat(%x, %y) {axis = 0} : f32[5,4]
        %1 = transpose(%0) {perm = [1, 0]} : f32[4,5]
        %2 = slice(%1) {axes = [1], starts = dims[4], sizes = dims[3], steps = [-2]} : f32[4,3]
        %3 = reverse(%2) {axes = [0]} : f32[4,3]
        %4 = reshape(%3) {dims = dims[2,6]} : f32[2,6]
        %5 = neg(%4) : f32[2,6]
        return %5
      })"},
        {"pad_tile", R"(graph "g"(%x: f32[2,3], %v: f32[]) {
        %0 = exp(%x) : f32[2,3]
        %1 = pad(%0, %v) {low = dims[1,0], high = dims[0,2]} : f32[3,5]
        %2 = tile(%1) {repeats = dims[2,1]} : f32[6,5]
        %3 = iota() {dims = dims[6,5], axis = 1, dtype = f32} : f32[6,5]
        %4 = add(%2, %3) : f32[6,5]
        return %4
      })"},
        {"quantize_channels", R"(graph "g"(%x: f32[2,3,5], %s: f32[3], %z: u8[3]) {
        %0 = mul(%s, %s) : f32[3]
        %c = constant() {value = tensor<f32[1]>{0.25}} : f32[1]
        %1 = add(%0, %c) : f32[3]
        %2 = quantize(%x, %1, %z) {axis = 1, to = u8} : u8[2,3,5]
        %3 = dequantize(%2, %1, %z) {axis = 1} : f32[2,3,5]
        return %2, %3
      })"},
        {"requantize",
         R"(graph "g"(%x: i32[N,4], %s: f32[4]) {
        symbol N in [0, 100]
        %z = constant() {value = tensor<i8[]>{-7}} : i8[]
        %0 = requantize(%x, %s, %z) {axis = 1, to = i8} : i8[N,4]
        %1 = dequantize(%x, %s) {axis = 1} : f32[N,4]
        %2 = quantize(%1, %s) {axis = -1, to = i8} : i8[N,4]
        return %0, %2
      })",
         {{{"N", 7}}}},
        {"dynamic_quantize", R"(graph "g"(%x: f32[3,70]) {
        %0, %1, %2 = dynamic_quantize(%x) : u8[3,70], f32[], u8[]
        return %0, %1, %2
      })"},
        {"dynamic_quantize_of_zeros", R"(graph "g"(%x: f32[3,7]) {
        %c = constant() {value = tensor<f32[]>{0}} : f32[]
        %y = mul(%x, %c) : f32[3,7]
        %0, %1, %2 = dynamic_quantize(%y) : u8[3,7], f32[], u8[]
        return %0, %1, %2
      })"},
        {"lrn", R"(graph "g"(%x: f32[2,5,2]) {
        %0 = lrn(%x) {size = 3} : f32[2,5,2]
        return %0
      })"},
        {"cross_entropy_rows",
         R"(graph "g"(%x: f32[4,9], %t: f32[4,9]) {
        %0 = log_softmax(%x) : f32[4,9]
        %1 = mul(%0, %t) : f32[4,9]
        %2 = reduce_sum(%1) {axes = [1]} : f32[4]
        %3 = neg(%2) : f32[4]
        return %3
      })",
         {{}},
         1e-5,
         1e-5},
    };
    add_single_ops(list);
    return list;
  }();
  return all;
}

// Inputs of a group at these sizes: small numbers of either sign from a fixed seed.
inline std::vector<Tensor> inputs_of(const ir::Graph& g, const SymbolValues& sizes) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    const ir::Type& t = g.type(g.inputs[i]);
    Tensor x = Tensor::zeros(t.dtype, eval(t.shape, sizes));
    RandomStream stream{1, 0, i + 1};
    for (int64_t k = 0; k < x.count(); ++k) {
      auto e = static_cast<uint64_t>(k);
      if (is_float(t.dtype))
        x.set_double(k, std::round(stream.normal(e) * 1024) / 1024);
      else
        x.set_int(k, static_cast<int64_t>(stream.bits(e) % 41) - 20);
    }
    out.push_back(std::move(x));
  }
  return out;
}

}  // namespace pelton::test
