// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "base/thread_pool.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::test;

namespace {

const Options kProduct{.implementation = "cpu.product"};

struct Case {
  Dims a, b, y;
  const char* attrs = "";
};
std::string product_text(const Case& c) {
  return cat("graph \"g\"(%a: f32", c.a, ", %b: f32", c.b, ") { %y = matmul(%a, %b) {", c.attrs, "} : f32",
             c.y, " return %y }");
}

// A product with steps behind it; %p0, ... are constants of the graph of those dims, %r is like the result.
struct Chain {
  const char* steps;
  std::vector<Dims> operands = {};
};
std::string chain_text(const Dims& a, const Dims& b, const Dims& y, const Chain& chain) {
  std::string head = cat("%a: f32", a, ", %b: f32", b, ", %r: f32", y), body = head, constants,
              names = "%a, %b, %r", steps = chain.steps;
  for (size_t i = 0; i < chain.operands.size(); ++i) {
    const std::string type = cat("f32", chain.operands[i]);
    std::string values;
    for (int64_t k = 0; k < element_count(chain.operands[i]); ++k)
      append(values, cat(k ? ", " : "", 0.5 + static_cast<double>((k + static_cast<int64_t>(i)) % 7)));
    append(constants, cat("%p", i, " = constant() {value = tensor<", type, ">{", values, "}} : ", type, " "));
    append(body, cat(", %p", i, ": ", type));
    append(names, cat(", %p", i));
  }
  for (size_t at; (at = steps.find('@')) != std::string::npos;) steps.replace(at, 1, cat("f32", y));
  return cat("graph \"g\"(", head, ") { ", constants, "%o = fused(", names, ") {body = graph \"b\"(", body,
             ") { %0 = matmul(%a, %b) : f32", y, " ", steps, " }, kind = \"matmul\"} : f32", y,
             " return %o }");
}

Tensor first_rows(const Tensor& t, int64_t rows) {
  Tensor out(DType::f32, {rows, t.dims()[1]});
  std::memcpy(out.mutable_data(), t.data(), static_cast<size_t>(out.bytes()));
  return out;
}

}  // namespace

TEST_CASE("f32 products: rows, columns and sums of every remainder, constant and changing right operands") {
  for (int64_t m : {1, 2, 3, 5, 6, 7, 12, 13, 49, 97, 200})
    for (int64_t n : {1, 15, 16, 65, 130})
      for (int64_t k : {1, 7, 257, 600})
        for (bool constant : {false, true}) {
          if (m * n * k > 3000000) continue;
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          Options o = kProduct;
          o.constant = {false, constant};
          check_node(product_text({{m, k}, {k, n}, {m, n}}),
                     {random(DType::f32, {m, k}, 1), random(DType::f32, {k, n}, 2)}, o, Measure::absolute);
        }
}

TEST_CASE("f32 products: batches that broadcast, transposed operands, empty sums and results") {
  const Case cases[] = {{{2, 3, 7, 5}, {5, 17}, {2, 3, 7, 17}},
                        {{2, 3, 5, 7}, {5, 17}, {2, 3, 7, 17}, "transpose_a = true"},
                        {{4, 3}, {2, 3, 16}, {2, 4, 16}},
                        {{3, 4, 5}, {1, 5, 6}, {3, 4, 6}},
                        {{4, 5}, {1, 1, 5, 6}, {1, 1, 4, 6}},
                        {{2, 3, 4, 5}, {1, 1, 5, 40}, {2, 3, 4, 40}},
                        {{3, 4, 5}, {3, 5, 2}, {3, 4, 2}},
                        {{2, 1, 20, 5}, {3, 5, 18}, {2, 3, 20, 18}},
                        {{1, 3, 2, 300}, {2, 1, 70, 300}, {2, 3, 2, 70}, "transpose_b = true"},
                        {{300, 33}, {300, 47}, {33, 47}, "transpose_a = true"},
                        {{33, 300}, {47, 300}, {33, 47}, "transpose_b = true"},
                        {{9, 14}, {35, 9}, {14, 35}, "transpose_a = true, transpose_b = true"},
                        {{2, 3, 0}, {2, 0, 4}, {2, 3, 4}},
                        {{3, 0}, {0, 40}, {3, 40}},
                        {{0, 3}, {3, 4}, {0, 4}},
                        {{3, 4}, {4, 0}, {3, 0}},
                        {{0, 5, 4}, {4, 6}, {0, 5, 6}}};
  for (const Case& c : cases)
    for (std::vector<bool> constant :
         {std::vector<bool>{false, false}, {false, true}, {true, false}, {true, true}}) {
      CAPTURE(c.a);
      CAPTURE(c.b);
      Options o = kProduct;
      o.constant = constant;
      check_node(product_text(c), {random(DType::f32, c.a, 1), random(DType::f32, c.b, 2)}, o,
                 Measure::absolute);
    }
}

TEST_CASE("f32 products with what follows them, in one kernel") {
  const Chain chains[] = {
      {"%1 = add(%0, %p0) : @ %2 = gelu(%1) : @ %3 = add(%2, %r) : @ return %3", {{130}}},
      {"%1 = add(%0, %p0) : @ %2 = relu(%1) : @ return %2", {{1, 1, 130}}},
      {"%1 = add(%0, %p0) : @ %2 = mul(%1, %p1) : @ %3 = add(%r, %2) : @ return %3", {{130}, {130}}},
      {"%1 = sub(%0, %p0) : @ %2 = div(%1, %r) : @ return %2", {{130}}},
      {"%1 = mul(%0, %p0) : @ %2 = max(%1, %r) : @ return %2", {{1}}},
      {"%1 = sigmoid(%0) : @ %2 = mul(%0, %1) : @ %3 = add(%2, %r) : @ return %3"},
      {"%1 = prelu(%0, %p0) : @ %2 = tanh(%1) : @ %3 = mul(%2, %r) : @ return %3", {{130}}}};
  for (const Chain& chain : chains)
    for (bool constant : {false, true})
      for (const Dims& b : {Dims{40, 130}, Dims{2, 40, 130}}) {
        CAPTURE(chain.steps);
        Options o = kProduct;
        o.constant = {false, constant};
        const std::string text = chain_text({2, 13, 40}, b, {2, 13, 130}, chain);
        REQUIRE(refusal(ir::parse_graph(text), "cpu.product") == "");
        check_node(text,
                   {random(DType::f32, {2, 13, 40}, 1), random(DType::f32, b, 2),
                    random(DType::f32, {2, 13, 130}, 3, 0.5, 2)},
                   o, Measure::absolute);
      }
}

TEST_CASE("f32 products: NaN goes through a bias and relu") {
  Tensor a = random(DType::f32, {2, 13, 40}, 1);
  a.set_double(40 * 3 + 2, NAN);
  const std::string text = chain_text({2, 13, 40}, {40, 130}, {2, 13, 130},
                                      {"%1 = add(%0, %p0) : @ %2 = relu(%1) : @ return %2", {{130}}});
  const Tensor y =
      run_on_cpu(ir::parse_graph(text),
                 {a, random(DType::f32, {40, 130}, 2), random(DType::f32, {2, 13, 130}, 3)}, kProduct)[0];
  for (int64_t i = 0; i < 2 * 13 * 130; ++i) {
    CAPTURE(i);
    CHECK(std::isnan(y.get_double(i)) == (i / 130 == 3));
  }
}

TEST_CASE("bits of f32 products depend neither on the number of threads nor on how many rows there are") {
  const Tensor a = random(DType::f32, {197, 700}, 1), b = random(DType::f32, {700, 150}, 2);
  for (bool constant : {false, true}) {
    Options o = kProduct;
    o.constant = {false, constant};
    set_threads(1);
    const Tensor all =
        run_on_cpu(ir::parse_graph(product_text({{197, 700}, {700, 150}, {197, 150}})), {a, b}, o)[0];
    for (int threads : {1, 2, 3})
      for (int64_t m : {1, 2, 3, 4, 8, 13, 100, 197}) {
        CAPTURE(threads);
        CAPTURE(m);
        set_threads(threads);
        const Tensor y = run_on_cpu(ir::parse_graph(product_text({{m, 700}, {700, 150}, {m, 150}})),
                                    {first_rows(a, m), b}, o)[0];
        CHECK(y.same_bytes(first_rows(all, m)));
      }
  }
  set_threads(0);
}

TEST_CASE("long sums of an f32 product are as exact as sums of blocks") {
  // One chain of 8192 additions would be off by several times as much.
  const int64_t k = 8192;
  const Tensor a = random(DType::f32, {4, k}, 1, 0, 1), b = random(DType::f32, {k, 16}, 2, 0, 1);
  const Tensor y = run_on_cpu(ir::parse_graph(product_text({{4, k}, {k, 16}, {4, 16}})), {a, b}, kProduct)[0];
  double squares = 0;
  for (int64_t i = 0; i < 64; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += a.get_double(i / 16 * k + j) * b.get_double(j * 16 + i % 16);
    squares += std::pow(y.get_double(i) / sum - 1, 2);
  }
  CHECK(std::sqrt(squares / 64) < 1e-6);
}

TEST_CASE("what the own f32 product refuses") {
  const auto why = [](const std::string& text) { return refusal(ir::parse_graph(text), "cpu.product"); };
  CHECK(why("graph \"g\"(%a: f64[2,3], %b: f64[3,4]) { %y = matmul(%a, %b) : f64[2,4] return %y }") ==
        "needs f32, got f64");
  CHECK(why("graph \"g\"(%a: f32[3], %b: f32[3,4]) { %y = matmul(%a, %b) : f32[4] return %y }") ==
        "needs matrices");
  CHECK(why(chain_text({2, 3}, {3, 4}, {2, 4}, {"%1 = mish(%0) : @ return %1"})) == "has no loop for mish");
  CHECK(why(chain_text({2, 3}, {3, 4}, {2, 4}, {"%1 = softmax(%0) {axis = 1} : @ return %1"}))
            .find("softmax") != std::string::npos);
}
