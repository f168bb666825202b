// SPDX-License-Identifier: Apache-2.0
// Gradients through branches, loops, scans and recurrent layers; and what cannot be differentiated.
#include <doctest/doctest.h>

#include <memory>

#include "autodiff/autodiff.h"
#include "gradient_check.h"
#include "interp/interpreter.h"
#include "ir/custom.h"
#include "ir/gradient.h"
#include "ir/infer.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;
using test::check_gradient;
using test::expect_error;
using test::Values;

namespace {

GraphPtr body_of(Builder& b, const std::vector<Type>& inputs,
                 const std::function<Values(Builder&, const Values&)>& f) {
  auto g = std::make_shared<Graph>("body");
  g->symbols = b.graph().symbols;
  Values in;
  for (const Type& t : inputs) in.push_back(g->add_input(t));
  Builder inner(*g);
  g->outputs = f(inner, in);
  return g;
}
Type f64(Shape shape) {
  return Type::tensor(DType::f64, std::move(shape));
}
Type of(DType t) {
  return Type::tensor(t, {});
}

}  // namespace

TEST_CASE("if, either branch, one of which leaves an operand out") {
  for (bool yes : {true, false})
    check_gradient({"if", {{3}, {3}}, [&](Builder& b, const Values& x) {
                      Attrs attrs{{"then", body_of(b, {f64({3}), f64({3})},
                                                   [](Builder& s, const Values& v) {
                                                     return Values{s.mul(v[0], s.op("exp", {v[1]}))};
                                                   })},
                                  {"else", body_of(b, {f64({3}), f64({3})}, [](Builder& s, const Values& v) {
                                     return Values{s.op("square", {v[0]})};
                                   })}};
                      ValueId sum = b.reduce("reduce_sum", x[0], {0}, false);
                      ValueId condition = b.op(yes ? "lt" : "gt", {sum, b.like(sum, 100)});
                      return Values{b.op("if", {condition, b.mul(x[0], x[0]), x[1]}, attrs)};
                    }});
}

TEST_CASE("scan: carried, scanned and captured operands, reversed and along another axis") {
  for (bool reverse : {false, true})
    check_gradient({"scan",
                    {{2}, {2, 4}, {2}},
                    [&](Builder& b, const Values& x) {
                      Attrs attrs{{"body", body_of(b, {f64({2}), f64({2}), f64({2})},
                                                   [](Builder& s, const Values& v) {
                                                     ValueId h =
                                                         s.op("tanh", {s.add(s.mul(v[0], v[2]), v[1])});
                                                     return Values{h, s.mul(h, v[1])};
                                                   })},
                                  {"carried", int64_t{1}},
                                  {"scanned", int64_t{1}},
                                  {"axes", Ints{1}},
                                  {"reverse", Ints{reverse}},
                                  {"out_axes", Ints{1}},
                                  {"out_reverse", Ints{!reverse}}};
                      return b.ops("scan", {x[0], x[1], x[2]}, attrs, 2);
                    },
                    -1,
                    1,
                    2,
                    1e-5});
}

TEST_CASE("loop: a trip count, and an end that the values decide") {
  for (bool early : {false, true})
    check_gradient(
        {"loop",
         {{2}, {2}},
         [&](Builder& b, const Values& x) {
           Attrs attrs{
               {"body",
                body_of(
                    b, {of(DType::i64), of(DType::boolean), f64({2}), f64({2})},
                    [&](Builder& s, const Values& v) {
                      ValueId next = s.mul(v[2], s.add(v[3], s.cast(v[0], DType::f64)));
                      ValueId go = v[1];
                      if (early)
                        go = s.op("lt", {s.reduce("reduce_max", next, {0}, false), s.scalar(DType::f64, 4)});
                      return Values{go, next, s.op("square", {next})};
                    })},
               {"carried", int64_t{1}}};
           ValueId trip = b.constant(Tensor::scalar<int64_t>(4)),
                   yes = b.constant(Tensor::scalar<bool>(true));
           Values results = b.ops("loop", {trip, yes, x[0], x[1]}, attrs, 2);
           return Values{results[0], b.reduce("reduce_sum", results[1], {0}, false)};
         },
         0.8,
         1.2,
         early ? 1 : 2,
         1e-5});
}

TEST_CASE("recurrent layers") {
  struct Layer {
    const char* op;
    int64_t gates;
  };
  for (Layer l : {Layer{"rnn", 1}, Layer{"gru", 3}, Layer{"lstm", 4}})
    for (bool both : {false, true}) {
      int64_t directions = both ? 2 : 1, hidden = 2, input = 2, steps = 3;
      check_gradient(
          {l.op,
           {{steps, 1, input},
            {directions, l.gates * hidden, input},
            {directions, l.gates * hidden, hidden},
            {directions, 2 * l.gates * hidden}},
           [&](Builder& b, const Values& x) {
             Attrs attrs{{"hidden", hidden}, {"direction", std::string(both ? "bidirectional" : "forward")}};
             return Values{b.op(l.op, {x[0], x[1], x[2], x[3]}, attrs)};
           },
           -1,
           1,
           1,
           1e-5});
    }
}

TEST_CASE("dropout inside a scan is drawn alike in both passes") {
  check_gradient(
      {"scan",
       {{3}, {4, 3}},
       [](Builder& b, const Values& x) {
         Attrs attrs{
             {"body",
              body_of(b, {f64({3}), f64({3})},
                      [](Builder& s, const Values& v) {
                        ValueId kept = s.op("dropout", {s.mul(v[0], v[1]), s.scalar(DType::f64, 0.5)});
                        return Values{s.add(kept, v[0])};
                      })},
             {"carried", int64_t{1}},
             {"scanned", int64_t{1}}};
         return Values{b.op("scan", {x[0], x[1]}, attrs)};
       },
       -1,
       1,
       1});
}

TEST_CASE("a custom op trains if it has a gradient") {
  auto infer = [](InferContext& c) { c.output(0, c.dtype(0), c.shape(0)); };
  auto cube = [](EvalContext& c) {
    std::vector<double> v = to_doubles(c.in(0));
    for (double& e : v) e = e * e * e;
    c.out(0, from_doubles(c.in(0).dtype(), c.in(0).dims(), v));
  };
  auto gradient = [](GradientContext& c) {
    c.set(0, c.b.mul(c.grad(), c.b.mul(c.b.op("square", {c.in(0)}), c.b.like(c.in(0), 3))));
  };
  add_custom_op({"test", "cube", 1, infer, cube, gradient});
  add_custom_op({"test", "opaque", 1, infer, cube, {}});
  auto attrs = [](const char* name) {
    return Attrs{{"domain", std::string("test")}, {"name", std::string(name)}};
  };
  check_gradient({"custom", {{3}}, [&](Builder& b, const Values& x) {
                    return Values{b.op("custom", {x[0]}, attrs("cube"))};
                  }});
  expect_error(ErrorCode::unsupported_op,
               {"test::opaque has no gradient", "custom 'body/opaque'",
                "path from the loss: reduce_sum 'head' <- exp 'head' <- custom 'body/opaque'"},
               [&] {
                 Graph g;
                 ValueId x = g.add_input(f64({3}));
                 Builder b(g);
                 b.set_name("body/opaque");
                 ValueId y = b.op("custom", {x}, attrs("opaque"));
                 b.set_name("head");
                 ValueId loss = b.reduce("reduce_sum", b.op("exp", {y}), {0}, false);
                 autodiff::gradient(g, loss, std::vector<ValueId>{x});
               });
}

TEST_CASE("what has no gradient is refused, zero or left alone") {
  Graph g;
  ValueId x = g.add_input(f64({2, 2})), y = g.add_input(f64({2})), n = g.add_input(of(DType::i64));
  Builder b(g);
  b.set_name("norm");
  ValueId d = b.op("det", {x});
  auto grad = [&](ValueId loss, Values wrt, autodiff::GradientOptions options = {}) {
    return autodiff::gradient(g, loss, wrt, options);
  };
  expect_error(ErrorCode::unsupported_op,
               {"op det cannot be differentiated", "det 'norm'", "path from the loss"},
               [&] { grad(d, {x}); });
  expect_error(ErrorCode::bad_shape, {"not one value", "reduce"}, [&] { grad(y, {y}); });
  expect_error(ErrorCode::bad_type, {"only floats have gradients", "i64"}, [&] { grad(d, {n}); });
  // Independent: zeros, although det has no gradient.
  CHECK(b.shape(grad(d, {y})[0]) == Shape{2});
  // Stopped: the op is not on the way.
  autodiff::GradientOptions options;
  options.stop = {d};
  ValueId loss = b.mul(d, b.reduce("reduce_sum", y, {0}, false));
  Values both = grad(loss, {x, y}, options);
  g.outputs = both;
  std::vector<HostValue> inputs{from_doubles(DType::f64, {2, 2}, {2, 0, 0, 3}),
                                from_doubles(DType::f64, {2}, {1, 1}), Tensor::scalar<int64_t>(0)};
  auto results = interp::run(g, inputs).outputs;
  CHECK(to_doubles(results[0].tensor) == std::vector<double>{0, 0, 0, 0});
  CHECK(to_doubles(results[1].tensor) == std::vector<double>{6, 6});
  // A seed stands for the gradient of the loss.
  options = {};
  options.seed = b.constant(from_doubles(DType::f64, {2}, {10, 20}));
  g.outputs = grad(b.op("square", {y}), {y}, options);
  CHECK(to_doubles(interp::run(g, inputs).outputs[0].tensor) == std::vector<double>{20, 40});
}
