// SPDX-License-Identifier: Apache-2.0
// The kernel's text, run on the host as clusters, against sums in f64.
#include <doctest/doctest.h>

#include "backend/cuda/emulated_device.h"
#include "base/philox.h"
// After the emulation.
#include "backend/cuda/own/batch_norm_cluster.cuh"

using namespace pelton;
using namespace pelton::backend::cuda;

namespace {

template <class T>
std::vector<T> numbers(int64_t count, uint64_t seed, float mean = 0) {
  std::vector<T> out(static_cast<size_t>(count));
  const RandomStream stream{seed};
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] =
        from_float<T>(mean + static_cast<float>(stream.normal(static_cast<uint64_t>(i))));
  return out;
}

struct Sizes {
  int n, c, places, lanes, blocks;
  BatchNorm::Gate through = BatchNorm::open;
};

template <class T, int V, bool kBackward, NormEnd kEnd>
void run(const BatchNorm& problem, const NormCluster& s) {
  const BatchNorm d = started(problem);
  REQUIRE(end_of(d) == kEnd);
  const ClusterPlan<V> plan(d, s, kBackward, sizeof(T));
  for (int tile = 0; tile * plan.width < d.c; ++tile)
    Emulation::current().run(
        kNormClusterThreads, {tile, 0}, [&] { norm_cluster_kernel<T, V, kBackward, kEnd>(d, s); }, s.blocks,
        static_cast<size_t>(plan.bytes));
  CHECK(Emulation::current().outside() == 0);
}

// What lies about a value of `size` in T, and sums in f32.
template <class T>
double near(double size) {
  return std::abs(size) * (sizeof(T) == 2 ? 1.0 / 200 : 1e-5) + 1e-5;
}

template <class T, int V, NormEnd kEnd = NormEnd::bounds>
void check(const Sizes& z) {
  CAPTURE(z.c);
  CAPTURE(z.lanes);
  const auto c = static_cast<size_t>(z.c), rows = static_cast<size_t>(z.n * z.places);
  const std::vector<T> x = numbers<T>(static_cast<int64_t>(rows * c), 1, 3),
                       g = numbers<T>(static_cast<int64_t>(rows * c), 2);
  const std::vector<float> scale = numbers<float>(z.c, 3), bias = numbers<float>(z.c, 4),
                           old_mean = numbers<float>(z.c, 5), old_var = numbers<float>(z.c, 6, 4);
  BatchNorm d;
  d.x = x.data();
  d.type = sizeof(T) == 4 ? Elem::f32 : Elem::bf16;
  d.n = z.n;
  d.c = z.c;
  d.places = z.places;
  d.scale = scale.data();
  d.bias = bias.data();
  std::vector<T> y(x.size(), from_float<T>(NAN));
  std::vector<float> new_mean(c, NAN), new_var = new_mean, mean = new_mean, rstd = new_mean;
  d.y = y.data();
  d.old_mean = old_mean.data();
  d.old_var = old_var.data();
  d.new_mean = new_mean.data();
  d.new_var = new_var.data();
  d.batch_mean = mean.data();
  d.batch_rstd = rstd.data();
  d.eps = 1e-3f;
  d.keep = 0.75f;
  // relu; a sum before it; relu of the negative.
  EpilogueStep* step = d.epilogue.steps;
  if (kEnd == NormEnd::sum_and_bounds)
    *step++ = {EpilogueStep::add, EpilogueStep::full, d.type, 1, 0, g.data()};
  else if (kEnd == NormEnd::steps)
    (step++)->a = -1;
  step->op = EpilogueStep::relu;
  d.epilogue.count = static_cast<int>(step - d.epilogue.steps) + 1;
  const NormCluster s{z.lanes, z.blocks};
  Emulation::current() = Emulation();
  Emulation::current().allow(x.data(), x.size() * sizeof(T));
  Emulation::current().allow(g.data(), g.size() * sizeof(T));
  run<T, V, false, kEnd>(d, s);
  size_t wrong = 0;
  for (size_t k = 0; k < c; ++k) {
    double sum = 0, squares = 0;
    for (size_t r = 0; r < rows; ++r) sum += to_float(x[r * c + k]);
    const double m = sum / static_cast<double>(rows);
    for (size_t r = 0; r < rows; ++r) squares += (to_float(x[r * c + k]) - m) * (to_float(x[r * c + k]) - m);
    const double var = squares / static_cast<double>(rows), rs = 1 / std::sqrt(var + 1e-3);
    wrong += !(std::abs(mean[k] - m) < 1e-5) + !(std::abs(rstd[k] - rs) < 1e-5);
    wrong += !(std::abs(new_mean[k] - (old_mean[k] * 0.75 + m * 0.25)) < 1e-5);
    wrong += !(std::abs(new_var[k] - (old_var[k] * 0.75 + var * 0.25)) < 1e-4);
    for (size_t r = 0; r < rows; ++r) {
      double want = (to_float(x[r * c + k]) - m) * rs * scale[k] + bias[k];
      if (kEnd == NormEnd::sum_and_bounds) want += to_float(g[r * c + k]);
      want = std::max(0.0, kEnd == NormEnd::steps ? -want : want);
      wrong += !(std::abs(to_float(y[r * c + k]) - want) < near<T>(want));
    }
  }
  CHECK(wrong == 0);

  std::vector<T> dx(x.size(), from_float<T>(NAN));
  std::vector<float> dscale(c, NAN), dbias = dscale;
  d.g = g.data();
  d.mean = mean.data();
  d.rstd = rstd.data();
  d.dx = dx.data();
  d.dscale = dscale.data();
  d.dbias = dbias.data();
  d.through = z.through;
  d.epilogue.count = 0;
  run<T, V, true, NormEnd::bounds>(d, s);
  for (size_t k = 0; k < c; ++k) {
    double a = 0, b = 0;
    const float factor = scale[k] * rstd[k];
    auto passed = [&](size_t r) {
      const float v = to_float(from_float<T>(std::fma(to_float(x[r * c + k]) - mean[k], factor, bias[k])));
      const bool through =
          z.through == BatchNorm::open || (z.through == BatchNorm::positive ? v > 0 : v >= 0 && v <= 6);
      return through ? static_cast<double>(to_float(g[r * c + k])) : 0.0;
    };
    for (size_t r = 0; r < rows; ++r) {
      a += passed(r);
      b += passed(r) * (static_cast<double>(to_float(x[r * c + k])) - mean[k]);
    }
    const double count = static_cast<double>(rows);
    wrong += !(std::abs(dbias[k] - a) < 1e-4 * std::sqrt(count)) +
             !(std::abs(dscale[k] - b * rstd[k]) < 1e-4 * std::sqrt(count));
    for (size_t r = 0; r < rows; ++r) {
      const double centred = static_cast<double>(to_float(x[r * c + k])) - mean[k];
      const double want = factor * (passed(r) - a / count - centred * rstd[k] * rstd[k] * b / count);
      wrong += !(std::abs(to_float(dx[r * c + k]) - want) < near<T>(want) + 1e-4);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("batch norm in clusters: the kernel's text yields the norm and its gradient") {
  check<__nv_bfloat16, 8>({2, 32, 25, 2, 2});                        // two tiles
  check<__nv_bfloat16, 8>({3, 24, 49, 2, 3, BatchNorm::to_six});     // half a tile idle
  check<__nv_bfloat16, 8>({1, 64, 300, 8, 2, BatchNorm::positive});  // several rows a thread
  check<float, 4>({2, 12, 67, 4, 3, BatchNorm::positive});           // a lane idle
  check<float, 4>({1, 32, 2, 8, 4});                                 // blocks without rows
  check<__nv_bfloat16, 8, NormEnd::sum_and_bounds>({2, 32, 25, 2, 2});
  check<float, 4, NormEnd::steps>({2, 12, 67, 4, 3});
}
