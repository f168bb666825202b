// SPDX-License-Identifier: Apache-2.0
// Gradients of the weights of convolutions of one place by our own kernel (own/rows_product.h). Its values
// are compared with the library's on the GPU before it is timed against it.
#include <algorithm>

#include "backend/cuda/conv/backward_weights.h"
#include "backend/cuda/own/rows_product.h"

namespace pelton::backend::cuda {
namespace {

class RowsMethod final : public WeightsMethod {
 public:
  explicit RowsMethod(const RowsProduct& product) : product_(product) {}
  std::string name() const override { return kRows; }
  int64_t scratch_bytes() const override { return rows_product_scratch_bytes(product_); }
  bool compared() const override { return true; }
  void run(const WeightsBuffers& b, cudaStream_t stream) const override {
    RowsProduct p = product_;
    p.g = b.g;
    p.x = b.x;
    p.dw = b.dw;
    p.scratch = static_cast<float*>(b.scratch);
    PELTON_CUDA(rows_product(p, stream));
  }

 private:
  RowsProduct product_;
};

}  // namespace

std::optional<RowsProduct> rows_product_of(const WeightsProblem& p) {
  constexpr int64_t kMostElements = int64_t{1} << 24;
  auto all = [](const Dims& v, int64_t value) {
    return std::all_of(v.begin(), v.end(), [&](int64_t x) { return x == value; });
  };
  if (p.groups != 1 || p.taps() != 1 || !p.channels_last() || !all(p.window.strides, 1) ||
      !all(p.window.low, 0) || !all(p.window.high, 0) || p.x.dtype == DType::f32)
    return std::nullopt;
  const int64_t m = p.dw[0], n = p.dw[1];
  if (m % 8 != 0 || n % 8 != 0 || m == 0 || n == 0 || m * n > kMostElements) return std::nullopt;
  RowsProduct product;
  product.type = elem(p.x.dtype);
  product.result_type = elem(p.result);
  product.m = static_cast<int>(m);
  product.n = static_cast<int>(n);
  product.rows = p.x.count() / n;
  product.multiprocessors = p.multiprocessors;
  return product;
}

void add_weights_rows(const WeightsProblem& p, const std::string& only, WeightsMethods& to) {
  if (!only.empty() && only != kRows) return;
  if (const std::optional<RowsProduct> product = rows_product_of(p))
    to.push_back(std::make_unique<RowsMethod>(*product));
}

}  // namespace pelton::backend::cuda
