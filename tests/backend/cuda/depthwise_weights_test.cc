// SPDX-License-Identifier: Apache-2.0
// The kernel's text, run on the host, against sums in f64.
#include <doctest/doctest.h>

#include "backend/cuda/emulated_device.h"
#include "base/philox.h"
// After the emulation.
#include "backend/cuda/own/depthwise_weights.cuh"

using namespace pelton;
using namespace pelton::backend::cuda;

namespace {

template <class T>
std::vector<T> numbers(int64_t count, uint64_t seed) {
  std::vector<T> out(static_cast<size_t>(count));
  const RandomStream stream{seed};
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] = from_float<T>(static_cast<float>(stream.normal(static_cast<uint64_t>(i))));
  return out;
}

struct Sizes {
  int n, c, h, w, pad;
};

template <class T, int V, int kWindow, int kStride, bool kCluster>
void check(const Sizes& z, DepthwiseShares s) {
  CAPTURE(z.h);
  CAPTURE(kWindow);
  CAPTURE(kStride);
  CAPTURE(kCluster);
  DepthwiseBackward d;
  d.type = sizeof(T) == 4 ? Elem::f32 : Elem::bf16;
  d.result_type = Elem::f32;
  d.n = z.n;
  d.c = z.c;
  d.h = z.h;
  d.w = z.w;
  d.r = d.s = kWindow;
  d.stride_h = d.stride_w = kStride;
  d.pad_h = d.pad_w = z.pad;
  d.p = (z.h + 2 * z.pad - kWindow) / kStride + 1;
  d.q = (z.w + 2 * z.pad - kWindow) / kStride + 1;
  s.cluster = kCluster;
  s.bands = (d.p + s.band - 1) / s.band;
  s.stages = (z.n + s.images - 1) / s.images * s.bands;
  REQUIRE(s.blocks <= s.stages);
  const auto g = numbers<T>(int64_t{d.n} * d.p * d.q * d.c, 1),
             x = numbers<T>(int64_t{d.n} * d.h * d.w * d.c, 2);
  const auto taps = static_cast<size_t>(kWindow * kWindow), c = static_cast<size_t>(d.c);
  std::vector<float> dw(c * taps, NAN), partial(kCluster ? 1 : static_cast<size_t>(s.blocks) * taps * c, NAN);
  d.g = g.data();
  d.other = x.data();
  d.result = dw.data();
  Emulation& e = Emulation::current();
  e = Emulation();
  e.allow(g.data(), g.size() * sizeof(T));
  e.allow(x.data(), x.size() * sizeof(T));
  const int width = s.lanes * V, bytes = DepthwiseTile(d, s).shared_bytes();
  for (int tile = 0; tile * width < d.c; ++tile)
    for (int block = 0; block < (kCluster ? 1 : s.blocks); ++block)
      e.run(
          kDepthwiseThreads, {tile, block},
          [&] { depthwise_weights_kernel<T, V, kWindow, kStride, kCluster>(d, s, partial.data()); },
          kCluster ? s.blocks : 1, static_cast<size_t>(bytes));
  CHECK(e.outside() == 0);
  double worst = 0;
  for (size_t k = 0; k < c; ++k)
    for (size_t tap = 0; tap < taps; ++tap) {
      double exact = 0, got = 0;
      for (int n = 0; n < d.n; ++n)
        for (int p = 0; p < d.p; ++p)
          for (int q = 0; q < d.q; ++q) {
            const int row = p * kStride - z.pad + static_cast<int>(tap) / kWindow,
                      column = q * kStride - z.pad + static_cast<int>(tap) % kWindow;
            if (row < 0 || row >= d.h || column < 0 || column >= d.w) continue;
            exact += static_cast<double>(to_float(g[static_cast<size_t>((n * d.p + p) * d.q + q) * c + k])) *
                     to_float(x[static_cast<size_t>((n * d.h + row) * d.w + column) * c + k]);
          }
      if (kCluster)
        got = dw[k * taps + tap];
      else
        for (int block = 0; block < s.blocks; ++block)
          got += partial[(static_cast<size_t>(block) * taps + tap) * c + k];
      worst = std::max(worst, std::abs(got - exact));
      if (std::isnan(got)) worst = INFINITY;
    }
  CHECK(worst <= 1e-5 * std::sqrt(static_cast<double>(d.n) * d.p * d.q));
}

DepthwiseShares shares(int lanes, int images, int band, int segment, int blocks) {
  DepthwiseShares s;
  s.lanes = lanes;
  s.images = images;
  s.band = band;
  s.segment = segment;
  s.blocks = blocks;
  return s;
}

}  // namespace

TEST_CASE("gradients of depthwise weights from shared memory: the kernel's text computes the sums") {
  check<__nv_bfloat16, 2, 3, 1, true>({5, 72, 7, 7, 1},
                                      shares(32, 2, 7, 7, 3));  // a tile of 8 channels, an image missing
  check<__nv_bfloat16, 2, 3, 1, false>({2, 24, 14, 13, 1},
                                       shares(16, 1, 5, 4, 3));  // bands, the last one short; segments
  check<__nv_bfloat16, 2, 3, 2, true>({4, 32, 14, 14, 1}, shares(16, 2, 7, 7, 2));
  check<__nv_bfloat16, 2, 3, 2, false>({2, 32, 15, 11, 0},
                                       shares(16, 1, 4, 3, 4));  // columns that no window sees
  check<__nv_bfloat16, 2, 5, 1, true>({3, 16, 9, 6, 2}, shares(16, 1, 9, 6, 3));
  check<float, 1, 5, 2, false>({3, 20, 9, 8, 2}, shares(16, 1, 3, 4, 2));
  check<float, 1, 3, 1, true>({1, 32, 5, 5, 1}, shares(32, 1, 1, 5, 5));
}

TEST_CASE("gradients of depthwise weights from shared memory: stages of the largest images fit") {
  for (int side : {7, 224, 3600, 5000, 20000}) {
    CAPTURE(side);
    DepthwiseBackward d;
    d.type = Elem::bf16;
    d.result_type = Elem::f32;
    d.n = 1;
    d.c = 64;
    d.h = d.w = d.p = d.q = side;
    d.r = d.s = 3;
    d.stride_h = d.stride_w = d.pad_h = d.pad_w = 1;
    const std::vector<DepthwiseShares> all = depthwise_weights_shares(d, 132);
    CHECK((side > 224 || !all.empty()));
    for (const DepthwiseShares& s : all) {
      const int64_t columns = d.q + 2, rows = s.band + 2;
      const int64_t stage = s.images * (rows * columns + int64_t{s.band} * d.q) * s.lanes * 4;
      CHECK(2 * stage <= 220 * 1024);
    }
  }
}
