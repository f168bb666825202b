// SPDX-License-Identifier: Apache-2.0
// The kernel's text, run on the host, against sums in f64.
#include <doctest/doctest.h>

#include "backend/cuda/emulated_device.h"
#include "base/philox.h"
// After the emulation.
#include "backend/cuda/own/depthwise_lines.cuh"
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

// Operands and their sums in f64. Around the operands lie NaNs.
template <class T>
class Problem {
 public:
  Problem(const Sizes& z, int window, int stride) {
    d.type = sizeof(T) == 4 ? Elem::f32 : Elem::bf16;
    d.result_type = Elem::f32;
    d.n = z.n;
    d.c = z.c;
    d.h = z.h;
    d.w = z.w;
    d.r = d.s = window;
    d.stride_h = d.stride_w = stride;
    d.pad_h = d.pad_w = z.pad;
    d.p = (z.h + 2 * z.pad - window) / stride + 1;
    d.q = (z.w + 2 * z.pad - window) / stride + 1;
    g_ = numbers<T>(int64_t{d.n} * d.p * d.q * d.c, 1);
    x_ = numbers<T>(int64_t{d.n} * d.h * d.w * d.c, 2);
    for (auto* operand : {&g_, &x_}) {
      const size_t around = static_cast<size_t>(8 * d.w * d.c);
      operand->insert(operand->begin(), around, from_float<T>(NAN));
      operand->insert(operand->end(), around, from_float<T>(NAN));
    }
    d.g = g_.data() + 8 * d.w * d.c;
    d.other = x_.data() + 8 * d.w * d.c;
    Emulation& e = Emulation::current();
    e = Emulation();
    e.allow(d.g, size_t(d.n * d.p * d.q * d.c) * sizeof(T));
    e.allow(d.other, size_t(d.n * d.h * d.w * d.c) * sizeof(T));
  }
  size_t taps() const { return static_cast<size_t>(d.r * d.s); }
  size_t channels() const { return static_cast<size_t>(d.c); }

  // of(channel, tap) is compared.
  void check(const std::function<double(size_t, size_t)>& of) const {
    const auto* const g = static_cast<const T*>(d.g);
    const auto* const x = static_cast<const T*>(d.other);
    double worst = 0;
    for (int k = 0; k < d.c; ++k)
      for (int tap = 0; tap < d.r * d.s; ++tap) {
        double exact = 0;
        for (int n = 0; n < d.n; ++n)
          for (int p = 0; p < d.p; ++p)
            for (int q = 0; q < d.q; ++q) {
              const int row = p * d.stride_h - d.pad_h + tap / d.s,
                        column = q * d.stride_w - d.pad_w + tap % d.s;
              if (row < 0 || row >= d.h || column < 0 || column >= d.w) continue;
              exact += static_cast<double>(to_float(g[((n * d.p + p) * d.q + q) * d.c + k])) *
                       to_float(x[((n * d.h + row) * d.w + column) * d.c + k]);
            }
        const double got = of(static_cast<size_t>(k), static_cast<size_t>(tap));
        worst = std::max(worst, std::abs(got - exact));
        if (std::isnan(got)) worst = INFINITY;
      }
    CHECK(worst <= 1e-5 * std::sqrt(static_cast<double>(d.n) * d.p * d.q));
  }
  // The same of partial[block][tap][C].
  void check(const std::vector<float>& partial) const {
    check([&](size_t k, size_t tap) {
      double sum = 0;
      for (size_t at = tap * channels() + k; at < partial.size(); at += taps() * channels())
        sum += partial[at];
      return sum;
    });
  }

  DepthwiseBackward d;

 private:
  std::vector<T> g_, x_;
};

template <class T, int V, int kWindow, int kStride, bool kCluster>
void check(const Sizes& z, DepthwiseShares s) {
  CAPTURE(z.h);
  CAPTURE(kWindow);
  CAPTURE(kStride);
  CAPTURE(kCluster);
  Problem<T> problem(z, kWindow, kStride);
  DepthwiseBackward& d = problem.d;
  s.cluster = kCluster;
  s.bands = (d.p + s.band - 1) / s.band;
  s.stages = (z.n + s.images - 1) / s.images * s.bands;
  REQUIRE(s.blocks <= s.stages);
  const size_t taps = problem.taps(), c = problem.channels();
  std::vector<float> dw(c * taps, NAN), partial(kCluster ? 1 : static_cast<size_t>(s.blocks) * taps * c, NAN);
  d.result = dw.data();
  Emulation& e = Emulation::current();
  const int width = s.lanes * V, bytes = DepthwiseTile(d, s).shared_bytes();
  for (int tile = 0; tile * width < d.c; ++tile)
    for (int block = 0; block < (kCluster ? 1 : s.blocks); ++block)
      e.run(
          kDepthwiseThreads, {tile, block},
          [&] { depthwise_weights_kernel<T, V, kWindow, kStride, kCluster>(d, s, partial.data()); },
          kCluster ? s.blocks : 1, static_cast<size_t>(bytes));
  CHECK(e.outside() == 0);
  if (kCluster)
    problem.check([&](size_t k, size_t tap) { return static_cast<double>(dw[k * taps + tap]); });
  else
    problem.check(partial);
}

template <class T, int kStride, int kRows>
void check_lines(const Sizes& z, int lanes, int segment, int blocks) {
  CAPTURE(z.h);
  CAPTURE(kStride);
  CAPTURE(kRows);
  Problem<T> problem(z, 3, kStride);
  const DepthwiseBackward& d = problem.d;
  DepthwiseLines s;
  s.lanes = lanes;
  s.rows = kRows;
  s.segment = segment;
  s.segments = (d.q + segment - 1) / segment;
  s.blocks = blocks;
  const int teams = kLineThreads / lanes;
  s.items = (int64_t{d.n} * ((d.p + kRows - 1) / kRows) + teams - 1) / teams * s.segments;
  REQUIRE(blocks <= s.items);
  std::vector<float> partial(static_cast<size_t>(blocks) * problem.taps() * problem.channels(), NAN);
  for (int tile = 0; tile * lanes * kLineChannels < d.c; ++tile)
    for (int block = 0; block < blocks; ++block)
      Emulation::current().run(
          kLineThreads, {tile, block},
          [&] { depthwise_lines_kernel<T, kStride, kRows>(d, s, partial.data()); }, 1,
          static_cast<size_t>(depthwise_lines_shared_bytes(s)));
  problem.check(partial);
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

TEST_CASE("gradients of depthwise weights from registers: the kernel's text computes the sums") {
  check_lines<__nv_bfloat16, 1, 1>({5, 72, 7, 7, 1}, 32, 7, 3);    // a tile of 8 channels
  check_lines<__nv_bfloat16, 1, 1>({2, 48, 14, 13, 1}, 24, 8, 4);  // 16 threads idle, segments
  check_lines<__nv_bfloat16, 1, 2>({3, 32, 9, 16, 1}, 16, 16, 1);  // the last row alone
  check_lines<__nv_bfloat16, 1, 2>({2, 64, 6, 21, 0}, 32, 12, 2);
  check_lines<__nv_bfloat16, 2, 1>({4, 32, 14, 14, 1}, 16, 7, 2);
  check_lines<__nv_bfloat16, 2, 1>({2, 34, 15, 11, 0}, 16, 4,
                                   2);  // columns that no window sees, one pair more
  check_lines<__nv_bfloat16, 2, 2>({2, 32, 15, 19, 1}, 16, 10, 1);
  check_lines<float, 1, 1>({1, 32, 5, 5, 1}, 16, 5, 1);
  check_lines<float, 2, 2>({3, 20, 9, 8, 2}, 16, 4, 1);  // two columns of padding
  check_lines<float, 1, 2>({1, 2, 1, 1, 1}, 16, 1, 1);
}

TEST_CASE("gradients of depthwise weights from registers: numbers that are not finite stay in their taps") {
  Problem<float> problem({1, 2, 4, 6, 1}, 3, 1);
  DepthwiseBackward d = problem.d;
  std::vector<float> x(4 * 6 * 2, 1), g(4 * 6 * 2, 1);
  for (int q = 0; q < 6; ++q) x[static_cast<size_t>(q * 2)] = INFINITY;  // row 0 of channel 0
  d.other = x.data();
  d.g = g.data();
  DepthwiseLines s;
  s.lanes = 16;
  s.rows = 2;
  s.segment = 6;
  s.items = s.blocks = 1;
  std::vector<float> partial(18, NAN);
  Emulation::current().run(
      kLineThreads, {0, 0}, [&] { depthwise_lines_kernel<float, 1, 2>(d, s, partial.data()); }, 1,
      static_cast<size_t>(depthwise_lines_shared_bytes(s)));
  for (size_t tap = 0; tap < 9; ++tap) {
    CAPTURE(tap);
    CHECK(std::isinf(partial[tap * 2]) == (tap < 6));  // no window has row 0 at its bottom
    CHECK(std::isfinite(partial[tap * 2 + 1]));
  }
}

TEST_CASE(
    "gradients of depthwise weights from registers: every row is taken once, by lanes of few that are idle") {
  for (const auto& [c, side, stride] :
       {std::tuple{32, 112, 1}, {96, 112, 2}, {144, 56, 1}, {192, 28, 1}, {960, 7, 1}}) {
    CAPTURE(c);
    DepthwiseBackward d;
    d.type = Elem::bf16;
    d.n = 32;
    d.c = c;
    d.h = d.w = side;
    d.p = d.q = (side - 1) / stride + 1;
    d.stride_h = d.stride_w = stride;
    d.pad_h = d.pad_w = 1;
    const std::vector<DepthwiseLines> all = depthwise_lines(d, 132);
    CHECK(all.size() >= 2);
    for (const DepthwiseLines& s : all) {
      const int64_t teams = kLineThreads / s.lanes, stacks = int64_t{d.n} * ((d.p + s.rows - 1) / s.rows);
      CHECK(s.items / s.segments * teams >= stacks);
      CHECK((s.items / s.segments - 1) * teams < stacks);
      CHECK(s.segments * s.segment >= d.q);
      CHECK((s.segments - 1) * s.segment < d.q);
      CHECK(s.blocks <= s.items);
      CHECK(kLineThreads - teams * s.lanes <= 16);
    }
  }
  DepthwiseBackward five;
  five.r = five.s = 5;
  five.n = five.p = five.q = five.h = five.w = 8;
  five.c = 16;
  CHECK(depthwise_lines(five, 132).empty());
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
