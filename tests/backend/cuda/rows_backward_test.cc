// SPDX-License-Identifier: Apache-2.0
// The kernels' text, run on the host, against sums in f64.
#include <doctest/doctest.h>

#include "backend/cuda/emulated_device.h"
#include "base/philox.h"
// After the emulation.
#include "backend/cuda/own/rows_backward.cuh"

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

// rms: without mean and bias. The addition is of the type of dx.
template <class T, int V, int kTeam, int kChunks>
void check(int64_t rows, int64_t size, int blocks, bool rms = false, bool added = false) {
  CAPTURE(rows);
  CAPTURE(size);
  CAPTURE(rms);
  const std::vector<T> g = numbers<T>(rows * size, 1), x = numbers<T>(rows * size, 2, 1),
                       more = numbers<T>(rows * size, 3);
  const std::vector<float> scale = numbers<float>(size, 4, 1), mean = numbers<float>(rows, 5),
                           rstd = numbers<float>(rows, 6, 3);
  std::vector<T> dx(g.size(), from_float<T>(NAN));
  const auto columns = static_cast<size_t>(size);
  std::vector<float> dscale(columns, NAN), dbias(columns, NAN),
      scratch(2 * columns * static_cast<size_t>(blocks), NAN);
  RowsBackward d;
  d.type = sizeof(T) == 4 ? Elem::f32 : Elem::bf16;
  d.g = g.data();
  d.x = x.data();
  d.scale = scale.data();
  if (!rms) d.mean = mean.data();
  d.rstd = rstd.data();
  if (added) d.added = more.data();
  d.dx = dx.data();
  d.dscale = dscale.data();
  if (!rms) d.dbias = dbias.data();
  d.scratch = scratch.data();
  d.rows = rows;
  d.size = size;
  d.parameters = true;
  Emulation& e = Emulation::current();
  e = Emulation();
  for (int block = 0; block < blocks; ++block)
    e.run(
        kRowsBlock<kTeam>, {block, 0}, [&] { rows_backward_kernel<T, V, kTeam, kChunks, true>(d, blocks); },
        1, 2 * columns * sizeof(float));
  for (int block = 0; block < (size + 31) / 32; ++block)
    for (int which : {0, 1}) e.run(kFinishThreads, {block, which}, [&] { rows_finish_kernel(d, blocks); });
  const double close = sizeof(T) == 4 ? 2e-5 : 0.02;
  double worst = 0;
  std::vector<double> of_scale(columns), of_bias(columns);
  for (int64_t r = 0; r < rows; ++r) {
    auto at = [&](const std::vector<T>& v, int64_t i) {
      return static_cast<double>(to_float(v[static_cast<size_t>(r * size + i)]));
    };
    auto h = [&](int64_t i) {
      return (at(x, i) - (rms ? 0 : mean[static_cast<size_t>(r)])) * rstd[static_cast<size_t>(r)];
    };
    double shift = 0, slope = 0;
    for (int64_t i = 0; i < size; ++i) {
      const double s = at(g, i) * scale[static_cast<size_t>(i)];
      if (!rms) shift += s / static_cast<double>(size);
      slope += s * h(i) / static_cast<double>(size);
      of_scale[static_cast<size_t>(i)] += at(g, i) * h(i);
      of_bias[static_cast<size_t>(i)] += at(g, i);
    }
    for (int64_t i = 0; i < size; ++i) {
      const double exact =
          rstd[static_cast<size_t>(r)] * (at(g, i) * scale[static_cast<size_t>(i)] - shift - h(i) * slope) +
          (added ? at(more, i) : 0);
      const double off = std::abs(at(dx, i) - exact) / (1 + std::abs(exact));
      worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    }
  }
  CHECK(worst < close);
  for (size_t i = 0; i < columns; ++i) {
    CAPTURE(i);
    CHECK(std::abs(dscale[i] - of_scale[i]) < 1e-4 * (1 + std::abs(of_scale[i])));
    if (!rms) CHECK(std::abs(dbias[i] - of_bias[i]) < 1e-4 * (1 + std::abs(of_bias[i])));
  }
}

}  // namespace

TEST_CASE("gradients of norms of rows: the kernel's text computes them, by teams of every size") {
  check<__nv_bfloat16, 8, 32, 1>(19, 200, 2);
  check<__nv_bfloat16, 8, 64, 1>(9, 512, 2, false, true);
  check<__nv_bfloat16, 8, 96, 1>(11, 768, 2);
  check<__nv_bfloat16, 8, 96, 1>(2, 760, 1, true);  // a team without a row, threads without elements
  check<__nv_bfloat16, 8, 128, 1>(5, 1000, 2);
  check<float, 4, 256, 1>(4, 1024, 3, true, true);
  check<float, 4, 256, 2>(3, 1500, 1);
  check<float, 4, 256, 4>(2, 4096, 2);
}
