// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "backend/cuda/harness.h"
#include "base/cat.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

namespace {

struct Sizes {
  int64_t n, heads, groups, queries, keys, depth, width;
};

}  // namespace

TEST_CASE("attention at many sizes, masks and types") {
  PELTON_NEEDS_GPU();
  const Sizes all[] = {{1, 2, 2, 16, 16, 32, 32},   {1, 2, 2, 17, 33, 64, 64},   {2, 4, 2, 70, 70, 64, 64},
                       {1, 1, 1, 1, 129, 128, 128}, {1, 2, 1, 5, 200, 40, 24},   {2, 2, 2, 3, 5, 7, 9},
                       {1, 1, 1, 40, 40, 80, 80},   {1, 2, 2, 33, 20, 160, 200}, {1, 1, 1, 1, 1, 8, 8},
                       {52, 4, 4, 12, 20, 32, 32},  {1, 2, 2, 4, 0, 16, 16},     {0, 2, 2, 4, 4, 16, 16}};
  for (const Sizes& s : all)
    for (const char* type : {"f16", "bf16", "f32"})
      for (int mask = 0; mask < 4; ++mask)
        for (bool causal : {false, true}) {
          if (s.n > 40 && (mask || causal)) continue;  // the reference takes long
          const DType t = *dtype_from_name(type);
          const Dims q = {s.n, s.heads, s.queries, s.depth}, k = {s.n, s.groups, s.keys, s.depth},
                     v = {s.n, s.groups, s.keys, s.width}, y = {s.n, s.heads, s.queries, s.width};
          const Dims masks[] = {
              {}, {s.n, 1, 1, s.keys}, {s.n, s.heads, s.queries, s.keys}, {s.queries, s.keys}};
          const Dims& m = masks[mask];
          const char* mask_type = mask == 2 ? "bool" : type;
          const std::string text = cat(
              "graph \"g\"(%q: ", type, q, ", %k: ", type, k, ", %v: ", type, v,
              mask ? cat(", %m: ", mask_type, m) : "", ") { %y = attention(%q, %k, %v", mask ? ", %m" : "",
              ") {causal = ", causal ? "true" : "false", "} : ", type, y, " return %y }");
          CAPTURE(text);
          std::vector<Tensor> inputs = {random(t, q, 1), random(t, k, 2), random(t, v, 3)};
          if (mask) inputs.push_back(mask == 2 ? random(DType::boolean, m, 4, 0, 2) : random(t, m, 4, -4, 1));
          GpuCase(text, inputs).check("cuda.attention");
        }
}

TEST_CASE("attention yields the logarithm of its sums, and soft caps") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"f16", "f32"}) {
    const DType t = *dtype_from_name(type);
    GpuCase(
        cat("graph \"g\"(%q: ", type, "[1,2,20,32], %k: ", type, "[1,2,24,32], %v: ", type,
            "[1,2,24,32]) { %y, %l = attention(%q, %k, %v) {scale = 0.3, softcap = 5.0, causal = true} : ",
            type, "[1,2,20,32], f32[1,2,20] return %y, %l }"),
        {random(t, {1, 2, 20, 32}, 1), random(t, {1, 2, 24, 32}, 2), random(t, {1, 2, 24, 32}, 3)})
        .check("cuda.attention");
  }
}

TEST_CASE("a query that sees no key yields zeros") {
  PELTON_NEEDS_GPU();
  Tensor mask = Tensor::full(DType::f32, {1, 1, 3, 40}, 0);
  for (int64_t i = 0; i < 40; ++i) mask.set_double(40 + i, -INFINITY);
  for (const char* type : {"f16", "f32"}) {
    const DType t = *dtype_from_name(type);
    const Tensor m = from_doubles(t, mask.dims(), to_doubles(mask));
    GpuCase(cat("graph \"g\"(%q: ", type, "[1,1,3,16], %k: ", type, "[1,1,40,16], %v: ", type,
                "[1,1,40,16], %m: ", type, "[1,1,3,40]) { %y = attention(%q, %k, %v, %m) : ", type,
                "[1,1,3,16] return %y }"),
            {random(t, {1, 1, 3, 16}, 1), random(t, {1, 1, 40, 16}, 2), random(t, {1, 1, 40, 16}, 3), m})
        .check("cuda.attention");
  }
}

TEST_CASE("operands that are views of one product, results back in rows") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"f16", "f32"}) {
    const DType t = *dtype_from_name(type);
    std::string text =
        "graph \"g\"(%x: T[2,19,96]) {"
        " %q0 = slice(%x) {axes = [2], starts = dims[0], sizes = dims[32], steps = [1]} : T[2,19,32]"
        " %q1 = reshape(%q0) {dims = dims[2,19,2,16]} : T[2,19,2,16]"
        " %q = transpose(%q1) {perm = [0,2,1,3]} : T[2,2,19,16]"
        " %k0 = slice(%x) {axes = [2], starts = dims[32], sizes = dims[32], steps = [1]} : T[2,19,32]"
        " %k1 = reshape(%k0) {dims = dims[2,19,2,16]} : T[2,19,2,16]"
        " %k = transpose(%k1) {perm = [0,2,1,3]} : T[2,2,19,16]"
        " %v0 = slice(%x) {axes = [2], starts = dims[64], sizes = dims[32], steps = [1]} : T[2,19,32]"
        " %v1 = reshape(%v0) {dims = dims[2,19,2,16]} : T[2,19,2,16]"
        " %v = transpose(%v1) {perm = [0,2,1,3]} : T[2,2,19,16]"
        " %a = attention(%q, %k, %v) : T[2,2,19,16]"
        " %b = transpose(%a) {perm = [0,2,1,3]} : T[2,19,2,16]"
        " %y = reshape(%b) {dims = dims[2,19,32]} : T[2,19,32] return %y }";
    for (size_t at; (at = text.find('T')) != text.npos;) text.replace(at, 1, type);
    GpuCase(text, {random(t, {2, 19, 96}, 1)}, {"attention", {}, {}}).check("cuda.attention");
  }
}

TEST_CASE("operands that share a transposed product") {
  PELTON_NEEDS_GPU();
  std::string text =
      "graph \"g\"(%x: T[2,19,96]) {"
      " %r = reshape(%x) {dims = dims[2,19,3,2,16]} : T[2,19,3,2,16]"
      " %t = transpose(%r) {perm = [2,0,3,1,4]} : T[3,2,2,19,16]"
      " %q0 = slice(%t) {axes = [0], starts = dims[0], sizes = dims[1], steps = [1]} : T[1,2,2,19,16]"
      " %k0 = slice(%t) {axes = [0], starts = dims[1], sizes = dims[1], steps = [1]} : T[1,2,2,19,16]"
      " %v0 = slice(%t) {axes = [0], starts = dims[2], sizes = dims[1], steps = [1]} : T[1,2,2,19,16]"
      " %q = reshape(%q0) {dims = dims[2,2,19,16]} : T[2,2,19,16]"
      " %k = reshape(%k0) {dims = dims[2,2,19,16]} : T[2,2,19,16]"
      " %v = reshape(%v0) {dims = dims[2,2,19,16]} : T[2,2,19,16]"
      " %y = attention(%q, %k, %v) : T[2,2,19,16] return %y }";
  for (size_t at; (at = text.find('T')) != text.npos;) text.replace(at, 1, "f16");
  GpuCase(text, {random(DType::f16, {2, 19, 96}, 1)}, {"attention", {}, {}}).check("cuda.attention");
}

TEST_CASE("gradients of attention: sizes, masks, causal, grouped heads, capped scores") {
  PELTON_NEEDS_GPU();
  struct Case {
    int64_t n, heads, groups, queries, keys, depth, width;
    const char *attrs, *mask;
  };
  const Case cases[] = {
      {2, 3, 3, 64, 64, 64, 64, "", ""},
      {1, 2, 2, 130, 130, 64, 64, "causal = true", ""},
      {1, 4, 2, 33, 70, 32, 32, "causal = true", ""},
      {2, 2, 1, 70, 33, 16, 24, "", ""},
      {1, 2, 2, 100, 100, 128, 128, "causal = true", ""},
      {1, 2, 2, 40, 200, 80, 80, "scale = 0.2", ""},
      {1, 2, 2, 50, 50, 64, 64, "softcap = 3.0", ""},
      {2, 2, 2, 40, 40, 64, 64, "", "bool[2,1,1,40]"},
      {1, 2, 2, 65, 65, 64, 64, "causal = true", "T[1,1,65,65]"},
      {1, 1, 1, 1, 1, 8, 8, "", ""},
  };
  for (const Case& c : cases)
    for (const char* type : {"bf16", "f16"}) {
      const DType t = *dtype_from_name(type);
      const Dims q = {c.n, c.heads, c.queries, c.depth}, k = {c.n, c.groups, c.keys, c.depth},
                 v = {c.n, c.groups, c.keys, c.width}, y = {c.n, c.heads, c.queries, c.width},
                 rows = {c.n, c.heads, c.queries};
      const std::string mask_type = *c.mask == 'T' ? cat(type, c.mask + 1) : c.mask;
      const std::string mask = *c.mask ? cat(", %m: ", mask_type) : "", use = *c.mask ? ", %m" : "";
      std::vector<Tensor> in = {random(t, q, 1), random(t, k, 2), random(t, v, 3)};
      if (*c.mask) {
        const bool boolean = *c.mask == 'b';
        Tensor m = boolean ? random(DType::u8, {c.n, 1, 1, c.keys}, 4, 0, 2)
                           : random(t, {1, 1, c.queries, c.keys}, 4, -1, 1);
        if (boolean) {
          Tensor b(DType::boolean, m.dims());
          for (int64_t i = 0; i < m.count(); ++i) b.set_int(i, i % c.keys == 0 || m.get_int(i));
          m = b;
        }
        in.push_back(m);
      }
      const std::string operands = cat("%q: ", type, q, ", %k: ", type, k, ", %v: ", type, v);
      // The result and its sums as the interpreter has them.
      const ir::Graph forward =
          ir::parse_graph(cat("graph \"g\"(", operands, mask, ") { %y, %s = attention(%q, %k, %v", use, ") {",
                              c.attrs, "} : ", type, y, ", f32", rows, " return %y, %s }"));
      const std::vector<ir::HostValue> known =
          interp::run(forward, std::vector<ir::HostValue>(in.begin(), in.end())).outputs;
      const std::string text =
          cat("graph \"g\"(%g: ", type, y, ", ", operands, ", %y: ", type, y, ", %s: f32", rows, mask,
              ") { %dq, %dk, %dv = attention_backward(%g, %q, %k, %v, %y, %s", use, ") {", c.attrs,
              "} : ", type, q, ", ", type, k, ", ", type, v, " return %dq, %dk, %dv }");
      CAPTURE(text);
      std::vector<Tensor> all = {random(t, y, 5), in[0], in[1], in[2], known[0].tensor, known[1].tensor};
      if (*c.mask) all.push_back(in[3]);
      GpuCase(text, all).check("cuda.attention_backward");
    }
}

TEST_CASE("attention and its gradient with the views around them") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"bf16", "f16"}) {
    const DType t = *dtype_from_name(type);
    const std::string x = cat(type, "[2,33,96]"), heads = cat(type, "[2,2,33,16]"),
                      rows = cat(type, "[2,33,32]"), cut = cat(type, "[2,33,2,16]");
    std::string views;
    for (int i = 0; i < 3; ++i) {
      const char name = "qkv"[i];
      views += cat(" %", name, "0 = slice(%x) {axes = [2], starts = dims[", 32 * i,
                   "], sizes = dims[32], steps = [1]} : ", rows, " %", name, "1 = reshape(%", name,
                   "0) {dims = dims[2,33,2,16]} : ", cut, " %", name, " = transpose(%", name,
                   "1) {perm = [0,2,1,3]} : ", heads);
    }
    const std::string forward =
        cat("graph \"g\"(%x: ", x, ") {", views, " %a, %s = attention(%q, %k, %v) {causal = true} : ", heads,
            ", f32[2,2,33] %b = transpose(%a) {perm = [0,2,1,3]} : ", cut,
            " %y = reshape(%b) {dims = dims[2,33,32]} : ", rows, " return %y, %s }");
    const Tensor data = random(t, {2, 33, 96}, 1);
    GpuCase(forward, {data}, {"attention", {}, {}}).check("cuda.attention");
    const auto known = interp::run(ir::parse_graph(forward), {data}).outputs;
    auto as_heads = [&](const char* from, const char* to) {
      return cat(" %", to, "1 = reshape(%", from, ") {dims = dims[2,33,2,16]} : ", cut, " %", to,
                 " = transpose(%", to, "1) {perm = [0,2,1,3]} : ", heads);
    };
    std::string back;
    for (const char* d : {"dq", "dk", "dv"})
      back += cat(" %", d, "1 = transpose(%", d, ") {perm = [0,2,1,3]} : ", cut, " %", d, "2 = reshape(%", d,
                  "1) {dims = dims[2,33,32]} : ", rows);
    const std::string backward =
        cat("graph \"g\"(%gr: ", rows, ", %x: ", x, ", %yr: ", rows, ", %s: f32[2,2,33]) {", views,
            as_heads("gr", "g"), as_heads("yr", "y"),
            " %dq, %dk, %dv = attention_backward(%g, %q, %k, %v, %y, %s) {causal = true} : ", heads, ", ",
            heads, ", ", heads, back, " return %dq2, %dk2, %dv2 }");
    CAPTURE(backward);
    GpuCase(backward, {random(t, {2, 33, 32}, 2), data, known[0].tensor, known[1].tensor},
            {"attention_backward", {}, {}})
        .check("cuda.attention_backward");
  }
}
