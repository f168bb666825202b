// SPDX-License-Identifier: Apache-2.0
// Gradients of primitives: pointwise to the third order, reductions, movement and matmul to the second.
#include <doctest/doctest.h>

#include "gradient_check.h"

using namespace pelton;
using namespace pelton::ir;
using test::check_gradient;
using test::Values;

namespace {

struct Domain {
  const char* op;
  double low, high;
};

std::string text(const char* s) {
  return s;
}

}  // namespace

TEST_CASE("pointwise ops of one operand, to the third order") {
  const Domain unary[] = {
      {"exp", -2, 2},      {"log", 0.3, 3},   {"log1p", -0.5, 2},   {"expm1", -2, 2}, {"sqrt", 0.3, 3},
      {"rsqrt", 0.5, 3},   {"sin", -3, 3},    {"cos", -3, 3},       {"tan", -1, 1},   {"asin", -0.7, 0.7},
      {"acos", -0.7, 0.7}, {"atan", -2, 2},   {"sinh", -2, 2},      {"cosh", -2, 2},  {"tanh", -2, 2},
      {"asinh", -2, 2},    {"acosh", 1.5, 3}, {"atanh", -0.7, 0.7}, {"erf", -2, 2},   {"sigmoid", -3, 3},
      {"softplus", -3, 3}, {"neg", -2, 2},    {"abs", -2, 2},       {"sign", -2, 2},  {"reciprocal", 0.5, 2},
      {"square", -2, 2},   {"relu", -2, 2},   {"floor", -2, 2},     {"ceil", -2, 2},  {"round", -2, 2},
      {"trunc", -2, 2},
  };
  for (const Domain& d : unary)
    for (const Dims& dims : {Dims{}, Dims{2, 3}})
      check_gradient({d.op,
                      {dims},
                      [&](Builder& b, const Values& x) { return Values{b.op(d.op, {x[0]})}; },
                      d.low,
                      d.high,
                      3});
}

TEST_CASE("pointwise ops of two operands, to the third order, with broadcasting") {
  const Domain binary[] = {{"add", -2, 2},  {"sub", -2, 2},   {"mul", -2, 2},  {"div", 0.5, 2},
                           {"pow", 0.5, 2}, {"mod", 0.6, 2},  {"rem", 0.6, 2}, {"max", -2, 2},
                           {"min", -2, 2},  {"atan2", 0.5, 2}};
  const std::vector<std::vector<Dims>> shapes = {
      {{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{2, 1}, {1, 3}}, {{}, {2}}};
  for (const Domain& d : binary)
    for (const std::vector<Dims>& s : shapes)
      check_gradient({d.op, s,
                      [&](Builder& b, const Values& x) {
                        return Values{b.op(d.op, {x[0], x[1]})};
                      },
                      d.low, d.high, 3, 1e-5});
}

TEST_CASE("a power with a known exponent, also at zero and below") {
  for (double p : {0.0, 1.0, 2.0, 3.0})
    check_gradient({cat("pow ", p), {{5}}, [&](Builder& b, const Values& x) {
                      return Values{b.op("pow", {x[0], b.like(x[0], p)})};
                    }});
}

TEST_CASE("select, and an operand used many times") {
  check_gradient({"select", {{2, 3}, {3}}, [](Builder& b, const Values& x) {
                    ValueId test = b.op("gt", {x[0], x[1]});
                    return Values{b.select(test, b.mul(x[0], x[0]), b.mul(x[1], x[0]))};
                  }});
  check_gradient({"cast", {{3}}, [](Builder& b, const Values& x) {
                    ValueId y = b.op("exp", {x[0]});
                    return Values{b.mul(y, b.add(y, x[0]))};
                  }});
}

TEST_CASE("reductions") {
  for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"})
    for (const Ints& axes : {Ints{}, Ints{0}, Ints{1}, Ints{-1, 0}, Ints{0, 1, 2}})
      for (bool keep : {false, true})
        check_gradient({cat(op, " ", axes), {{2, 3, 2}}, [&](Builder& b, const Values& x) {
                          return Values{b.op("square", {b.reduce(op, x[0], axes, keep)})};
                        }});
  for (const char* op : {"cumsum", "cumprod"})
    for (int flags = 0; flags < 4; ++flags)
      for (int64_t axis : {0, 1})
        check_gradient(
            {op, {{3, 4}}, [&](Builder& b, const Values& x) {
               Attrs attrs{{"axis", axis}, {"exclusive", (flags & 1) != 0}, {"reverse", (flags & 2) != 0}};
               return Values{b.op("square", {b.op(op, {x[0]}, attrs)})};
             }});
}

TEST_CASE("movement") {
  auto square = [](Builder& b, ValueId v) { return Values{b.op("square", {v})}; };
  check_gradient({"reshape", {{2, 3}}, [&](Builder& b, const Values& x) {
                    return square(b, b.reshape(x[0], {3, 2}));
                  }});
  check_gradient({"transpose", {{2, 3, 4}}, [&](Builder& b, const Values& x) {
                    return square(b, b.transpose(x[0], {2, 0, 1}));
                  }});
  check_gradient({"broadcast", {{2, 1}}, [&](Builder& b, const Values& x) {
                    return square(b, b.broadcast_to(x[0], {3, 2, 4}));
                  }});
  struct Part {
    int64_t start, size, step;
  };
  for (Part p : {Part{1, 2, 1}, Part{0, 3, 2}, Part{1, 2, 3}, Part{5, 3, -2}, Part{4, 5, -1}, Part{2, 0, 1}})
    check_gradient({cat("slice ", p.start, " ", p.step), {{2, 6}}, [&](Builder& b, const Values& x) {
                      return square(b, b.op("slice", {x[0]},
                                            {{"axes", Ints{-1}},
                                             {"starts", Shape{p.start}},
                                             {"sizes", Shape{p.size}},
                                             {"steps", Ints{p.step}}}));
                    }});
  check_gradient({"concat", {{2, 3}, {2, 1}, {2, 2}}, [&](Builder& b, const Values& x) {
                    return square(b, b.op("concat", {x[0], x[1], x[0], x[2]}, {{"axis", int64_t{1}}}));
                  }});
  for (const char* mode : {"constant", "reflect", "edge", "wrap"})
    check_gradient(
        {cat("pad ", mode), {{3, 4}, {}}, [&](Builder& b, const Values& x) {
           bool constant = text(mode) == "constant";
           return square(
               b, b.op("pad", {x[0], constant ? x[1] : ValueId{}},
                       {{"low", Shape{1, constant ? -1 : 3}}, {"high", Shape{2, 2}}, {"mode", text(mode)}}));
         }});
  check_gradient({"tile", {{2, 3}}, [&](Builder& b, const Values& x) {
                    return square(b, b.op("tile", {x[0]}, {{"repeats", Shape{3, 2}}}));
                  }});
  check_gradient({"reverse", {{2, 3}}, [&](Builder& b, const Values& x) {
                    return square(b, b.op("reverse", {x[0]}, {{"axes", Ints{1}}}));
                  }});
  check_gradient({"fill", {{1}}, [&](Builder& b, const Values& x) {
                    return square(b, b.op("fill", {x[0]}, {{"dims", Shape{2, 2}}}));
                  }});
  for (bool upper : {false, true})
    check_gradient({"trilu", {{3, 4}}, [&](Builder& b, const Values& x) {
                      return square(b, b.op("trilu", {x[0]}, {{"upper", upper}}));
                    }});
}

TEST_CASE("matmul: transposes, batches, ranks of 1") {
  struct Operands {
    Dims a, b;
  };
  for (const Operands& s : {Operands{{2, 3}, {3, 4}}, Operands{{2, 2, 3}, {3, 4}},
                            Operands{{2, 3}, {2, 3, 2}}, Operands{{2, 1, 2, 3}, {3, 3, 2}}})
    for (int flags = 0; flags < 4; ++flags) {
      bool ta = flags & 1, tb = flags & 2;
      Dims left = s.a, right = s.b;
      if (ta) std::swap(left[left.size() - 1], left[left.size() - 2]);
      if (tb) std::swap(right[right.size() - 1], right[right.size() - 2]);
      check_gradient(
          {cat("matmul ", left, right), {left, right}, [&](Builder& b, const Values& x) {
             return Values{b.op("matmul", {x[0], x[1]}, {{"transpose_a", ta}, {"transpose_b", tb}})};
           }});
    }
  for (const Operands& s : {Operands{{3}, {3}}, Operands{{3}, {3, 2}}, Operands{{2, 3}, {3}},
                            Operands{{2, 2, 3}, {3}}, Operands{{3}, {2, 3, 2}}})
    check_gradient({cat("matmul ", s.a, s.b), {s.a, s.b}, [&](Builder& b, const Values& x) {
                      return Values{b.matmul(x[0], x[1])};
                    }});
}
