// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "autodiff/autodiff.h"
#include "base/philox.h"
#include "gradient_check.h"
#include "interp/interpreter.h"
#include "ir/verify.h"

namespace pelton::test {

using namespace ir;

namespace {

class Draws {
 public:
  Tensor uniform(const Dims& dims, double low, double high) {
    Tensor t = Tensor::zeros(DType::f64, dims);
    for (int64_t i = 0; i < t.count(); ++i)
      t.set_double(i, low + (high - low) * static_cast<double>(stream_.uniform(next_++)));
    return t;
  }

 private:
  RandomStream stream_{11, 5, 3};
  uint64_t next_ = 0;
};

ValueId weighted_sum(Builder& b, const Values& values, Draws& draws) {
  ValueId total;
  for (ValueId v : values) {
    if (b.dtype(v) != DType::f64) continue;
    auto dims = as_dims(b.shape(v));
    REQUIRE(dims);
    Ints all;
    for (int64_t d = 0; d < b.rank(v); ++d) all.push_back(d);
    ValueId weights = b.constant(draws.uniform(*dims, 0.5, 1.5));
    ValueId sum = b.reduce("reduce_sum", b.mul(v, weights), all, false);
    total = total ? b.add(total, sum) : sum;
  }
  REQUIRE(bool(total));
  return total;
}

double loss_at(const Graph& g, const std::vector<Tensor>& inputs) {
  std::vector<HostValue> values(inputs.begin(), inputs.end());
  return interp::run(g, values).outputs[0].tensor.get_double(0);
}

// Compares outputs 1.. of g, the gradients of output 0, with differences of `f`, which computes output 0
// alone.
void compare(const Graph& g, const Graph& f, std::vector<Tensor> inputs, double tolerance) {
  std::vector<HostValue> values(inputs.begin(), inputs.end());
  std::vector<HostValue> results = interp::run(g, values).outputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& gradient = results[i + 1].tensor;
    CAPTURE(i);
    REQUIRE(gradient.dims() == inputs[i].dims());
    double scale = 1;
    for (double v : to_doubles(gradient)) scale = std::max(scale, std::fabs(v));
    for (int64_t k = 0; k < gradient.count(); ++k) {
      double x = inputs[i].get_double(k), h = 1e-5 * std::max(1.0, std::fabs(x));
      inputs[i].set_double(k, x + h);
      double up = loss_at(f, inputs);
      inputs[i].set_double(k, x - h);
      double down = loss_at(f, inputs);
      inputs[i].set_double(k, x);
      CAPTURE(k);
      double expected = (up - down) / (2 * h);
      CAPTURE(expected);
      CAPTURE(gradient.get_double(k));
      CHECK(std::fabs(gradient.get_double(k) - expected) <= tolerance * scale);
    }
  }
}

}  // namespace

void check_gradient(const GradientCase& c) {
  CAPTURE(c.name);
  Graph g;
  Builder b(g);
  b.set_name(c.name);
  Draws draws;
  Values inputs;
  std::vector<Tensor> tensors;
  for (const Dims& dims : c.shapes) {
    inputs.push_back(g.add_input(Type::tensor(DType::f64, to_shape(dims))));
    tensors.push_back(draws.uniform(dims, c.low, c.high));
  }
  Values results = c.build(b, inputs);
  for (int order = 1; order <= c.order; ++order) {
    CAPTURE(order);
    ValueId loss = weighted_sum(b, results, draws);
    g.outputs = {loss};
    Graph alone = g;
    results = autodiff::gradient(g, loss, inputs);
    for (ValueId v : results) g.outputs.push_back(v);
    verify(g, "gradient");
    compare(g, alone, tensors, c.tolerance * std::pow(10, order - 1));
    g.outputs.clear();
  }
}

}  // namespace pelton::test
