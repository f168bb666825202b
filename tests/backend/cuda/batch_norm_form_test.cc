// SPDX-License-Identifier: Apache-2.0
// Batch norms whose clusters keep the data, against the three launches (training_test.cc judges those).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda/harness.h"
#include "backend/cuda/own/batch_norm.h"
#include "backend/cuda/own/host.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::backend::cuda;
using namespace pelton::test;

namespace {

// Results of one form, in order.
class Problem {
 public:
  Problem(Elem type, int n, int c, int64_t places, BatchNorm::Gate through) {
    const DType t = type == Elem::f32 ? DType::f32 : type == Elem::f16 ? DType::f16 : DType::bf16;
    const Dims data = {n, places, c};
    d_.type = type;
    d_.n = n;
    d_.c = c;
    d_.places = places;
    d_.x = put(random(t, data, 1, 1, 3));
    d_.scale = put(random(DType::f32, {c}, 3));
    d_.bias = put(random(DType::f32, {c}, 4));
    d_.old_mean = put(random(DType::f32, {c}, 5));
    d_.old_var = put(random(DType::f32, {c}, 6, 0, 1));
    d_.g = put(random(t, data, 2));
    d_.mean = static_cast<const float*>(put(random(DType::f32, {c}, 7, 1.8, 2.2)));
    d_.rstd = static_cast<const float*>(put(random(DType::f32, {c}, 8, 1, 2)));
    operand_ = put(random(t, data, 9));
    d_.eps = 1e-3f;
    d_.keep = 0.75f;
    d_.y = result(t, data);
    d_.new_mean = result(DType::f32, {c});
    d_.new_var = result(DType::f32, {c});
    d_.batch_mean = static_cast<float*>(result(DType::f32, {c}));
    d_.batch_rstd = static_cast<float*>(result(DType::f32, {c}));
    d_.dx = result(t, data);
    d_.dscale = result(DType::f32, {c});
    d_.dbias = result(DType::f32, {c});
    d_.through = through;
    scratch_ = std::make_unique<DeviceBuffer>(std::max<int64_t>(batch_norm_scratch_bytes(d_), 1), "a test");
    d_.scratch = static_cast<double*>(scratch_->get());
  }
  // Steps behind the norm: none, bounds, a sum and bounds, one that is none of these.
  static constexpr int kEnds = 4;
  BatchNorm forward(int end) const {
    BatchNorm d = d_;
    EpilogueStep* s = d.epilogue.steps;
    if (end == 1) {
      *s = {EpilogueStep::clamp, EpilogueStep::none, Elem::f32, 0, 1.5f, nullptr};
      d.epilogue.count = 1;
    } else if (end == 2) {
      *s++ = {EpilogueStep::add, EpilogueStep::full, d_.type, 1, 0, operand_};
      s->op = EpilogueStep::relu;
      d.epilogue.count = 2;
    } else if (end == 3) {
      s->op = EpilogueStep::silu;
      d.epilogue.count = 1;
    }
    return d;
  }
  BatchNorm backward() const { return d_; }
  std::vector<Tensor> results(const std::function<void()>& run) const {
    for (const Result& r : results_) PELTON_CUDA(cudaMemset(r.at, 0xFF, static_cast<size_t>(r.like.bytes())));
    run();
    PELTON_CUDA(cudaDeviceSynchronize());
    std::vector<Tensor> out;
    for (const Result& r : results_) {
      out.emplace_back(r.like.dtype(), r.like.dims());
      PELTON_CUDA(cudaMemcpy(out.back().mutable_data(), r.at, static_cast<size_t>(r.like.bytes()),
                             cudaMemcpyDeviceToHost));
    }
    return out;
  }

 private:
  struct Result {
    Tensor like;
    void* at;
  };
  void* put(const Tensor& t) {
    memory_.push_back(std::make_unique<DeviceBuffer>(t.bytes(), "a test"));
    PELTON_CUDA(
        cudaMemcpy(memory_.back()->get(), t.data(), static_cast<size_t>(t.bytes()), cudaMemcpyHostToDevice));
    return memory_.back()->get();
  }
  void* result(DType t, const Dims& dims) {
    results_.push_back({Tensor(t, dims), nullptr});
    return results_.back().at = put(results_.back().like);
  }
  BatchNorm d_;
  const void* operand_ = nullptr;
  std::unique_ptr<DeviceBuffer> scratch_;
  std::vector<std::unique_ptr<DeviceBuffer>> memory_;
  std::vector<Result> results_;
};

// The largest difference, in units of the type at the largest value. Poison that both kept is equal.
double units_apart(const Tensor& a, const Tensor& b) {
  double most = 0, largest = 0;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double x = a.get_double(i), y = b.get_double(i);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (std::isnan(x) != std::isnan(y)) return INFINITY;
    most = std::max(most, std::abs(x - y));
    largest = std::max(largest, std::abs(x));
  }
  const int digits = a.dtype() == DType::f16    ? 10
                     : a.dtype() == DType::bf16 ? 7
                                                : 19;  // sums of f32 in another order
  return largest > 0 ? most / std::ldexp(1.0, std::ilogb(largest) - digits) : most;
}

}  // namespace

TEST_CASE("batch norms in clusters yield what the three launches yield") {
  PELTON_NEEDS_GPU();
  if (gpu()->sm < 90) PELTON_SKIP("no clusters");
  struct Sizes {
    int n, c;
    int64_t places;
  };
  int forms = 0;
  for (const Sizes& z :
       {Sizes{4, 8, 30}, Sizes{16, 72, 196}, Sizes{7, 24, 49}, Sizes{8, 320, 49}, Sizes{1, 64, 1}})
    for (Elem type : {Elem::f32, Elem::f16, Elem::bf16})
      for (auto through : {BatchNorm::open, BatchNorm::positive, BatchNorm::to_six}) {
        const Problem p(type, z.n, z.c, z.places, through);
        const int ends = through == BatchNorm::open ? Problem::kEnds : 0;
        for (int end = 0; end <= ends; ++end) {
          const bool backward = end == ends;
          const BatchNorm d = backward ? p.backward() : p.forward(end);
          const auto expected = p.results([&] {
            PELTON_CUDA(backward ? batch_norm_backward(d, nullptr) : batch_norm_train(d, nullptr));
          });
          for (const NormCluster& c : batch_norm_clusters(d, backward)) {
            CAPTURE(z.c);
            CAPTURE(z.places);
            CAPTURE(c.lanes);
            CAPTURE(c.blocks);
            CAPTURE(end);
            ++forms;
            const auto got = p.results([&] {
              PELTON_CUDA(backward ? batch_norm_backward(d, c, nullptr) : batch_norm_train(d, c, nullptr));
            });
            for (size_t i = 0; i < got.size(); ++i) {
              CAPTURE(i);
              CHECK(units_apart(expected[i], got[i]) <= 1);
            }
          }
        }
      }
  CHECK(forms > 400);
}
