// SPDX-License-Identifier: Apache-2.0
// fft of real lines whose length is a power of two, one-sided: two lines are the real and the imaginary part
// of one complex transform in f64, which is Stockham's of radix 2 (no bit reversal; reads and writes run
// along memory).
#include <bit>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "backend/cpu/implementations.h"
#include "backend/cpu/own/implementations.h"
#include "backend/cpu/support.h"
#include "ir/image/simd.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kLongest = 4096;
constexpr int64_t kPairsAtOnce = 8;  // by one thread

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const ir::Node& n = graph[id];
  const ir::Type& x = graph.type(n.inputs[0]);
  if (x.dtype != DType::f32) return cat("needs f32, got ", name(x.dtype));
  if (n.get_bool("inverse") || !n.get_bool("onesided") || (n.inputs.size() > 1 && n.inputs[1]))
    return "transforms real lines, one-sided, at their own length";
  const int64_t rank = x.rank(), axis = n.get_int("axis");
  if ((axis < 0 ? axis + rank : axis) != rank - 2) return "transforms along the last axis";
  const Dim& length = x.shape[static_cast<size_t>(rank - 2)];
  if (!length.is_const() || length.value() < 2 || length.value() > kLongest ||
      !std::has_single_bit(static_cast<uint64_t>(length.value())))
    return cat("needs a length that is a power of two up to ", kLongest, ", got ", length.str());
  return {};
}

struct Waves {
  std::vector<double> cosine, sine;  // of exp(-2 pi i k / n), k < n / 2
};

// One level: groups of `half` values, `step` transforms side by side.
PELTON_CLONES void level(int64_t half, int64_t step, const double* w_re, const double* w_im,
                         const double* __restrict re, const double* __restrict im, double* __restrict to_re,
                         double* __restrict to_im) {
  for (int64_t p = 0; p < half; ++p) {
    const double c = w_re[p * step], s = w_im[p * step];
    const int64_t a = p * step, b = (p + half) * step, even = 2 * p * step, odd = even + step;
    for (int64_t q = 0; q < step; ++q) {
      const double x = re[a + q] - re[b + q], y = im[a + q] - im[b + q];
      to_re[even + q] = re[a + q] + re[b + q];
      to_im[even + q] = im[a + q] + im[b + q];
      to_re[odd + q] = x * c - y * s;
      to_im[odd + q] = x * s + y * c;
    }
  }
}

// Lines a and b [n] to [n / 2 + 1, 2] each; b may be null. `work`: 4 n values.
void transform_two(int64_t n, const Waves& w, const float* a, const float* b, float* out_a, float* out_b,
                   double* work) {
  double *re = work, *im = re + n, *other_re = im + n, *other_im = other_re + n;
  std::copy_n(a, n, re);
  if (b)
    std::copy_n(b, n, im);
  else
    std::fill_n(im, n, 0.0);
  for (int64_t half = n / 2, step = 1; half >= 1; half /= 2, step *= 2) {
    level(half, step, w.cosine.data(), w.sine.data(), re, im, other_re, other_im);
    std::swap(re, other_re);
    std::swap(im, other_im);
  }
  for (int64_t k = 0; k <= n / 2; ++k) {
    const int64_t mirror = k ? n - k : 0;
    out_a[2 * k] = static_cast<float>(0.5 * (re[k] + re[mirror]));
    out_a[2 * k + 1] = static_cast<float>(0.5 * (im[k] - im[mirror]));
    if (!b) continue;
    out_b[2 * k] = static_cast<float>(0.5 * (im[k] + im[mirror]));
    out_b[2 * k + 1] = static_cast<float>(0.5 * (re[mirror] - re[k]));
  }
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const TensorSpec& in = instance.inputs[0];
  if (in.count() == 0) return make_kernel([](const RunArgs&) {});
  const int64_t n = in.dims[in.dims.size() - 2], lines = in.count() / n, yields = 2 * (n / 2 + 1);
  Waves w;
  for (int64_t k = 0; k < n / 2; ++k) {
    const double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
    w.cosine.push_back(std::cos(angle));
    w.sine.push_back(std::sin(angle));
  }
  const int64_t pairs = (lines + 1) / 2, workers = std::max(1, instance.threads),
                grain = std::max((pairs + workers - 1) / workers, kPairsAtOnce), each = align64(4 * n * 8);
  return make_kernel(
      [=, w = std::move(w)](const RunArgs& args) {
        parallel_for(0, pairs, grain, [&](int64_t begin, int64_t end) {
          auto* const work = reinterpret_cast<double*>(offset(args.scratch, begin / grain * each));
          const auto* x = static_cast<const float*>(args.in[0]);
          auto* y = static_cast<float*>(args.out[0]);
          for (int64_t i = begin; i < end; ++i) {
            const int64_t a = 2 * i, b = a + 1;
            transform_two(n, w, x + a * n, b < lines ? x + b * n : nullptr, y + a * yields, y + b * yields,
                          work);
          }
        });
      },
      each * workers);
}

}  // namespace

void add_fft(Registry& registry) {
  registry.add({"cpu.fft", {"fft"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
