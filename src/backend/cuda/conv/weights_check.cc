// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "backend/cuda/conv/backward_weights.h"
#include "backend/cuda/own/conv_weights.h"
#include "base/log.h"
#include "tensor/tensor.h"

namespace pelton::backend::cuda {
namespace {

DType type_of(Elem e) {
  return e == Elem::f16 ? DType::f16 : e == Elem::bf16 ? DType::bf16 : DType::f32;
}

Tensor download(const void* from, DType type, int64_t count, cudaStream_t stream) {
  Tensor out(type, {count});
  PELTON_CUDA(cudaMemcpyAsync(out.mutable_data(), from, static_cast<size_t>(out.bytes()),
                              cudaMemcpyDeviceToHost, stream));
  PELTON_CUDA(cudaStreamSynchronize(stream));
  return out;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    if (std::isnan(d)) return d;
    most = std::max(most, d);
  }
  return most;
}

// The distance of values of the type around the largest one.
double unit_of(DType type, const std::vector<double>& values) {
  double most = 0;
  for (double v : values) most = std::max(most, std::abs(v));
  const int digits = type == DType::f16 ? 10 : type == DType::bf16 ? 7 : 23;
  return most > 0 ? std::ldexp(1.0, std::ilogb(most) - digits) : 0;
}

}  // namespace

void leave_out_inexact(const WeightsProblem& p, const WeightsBuffers& trial, WeightsMethods& methods) {
  if (std::none_of(methods.begin(), methods.end(), [](const auto& m) { return m->judged_as().has_value(); }))
    return;
  const int64_t count = element_count(p.dw);
  StreamHandle stream = make_stream();
  DeviceBuffer exact_memory(count * 8, "checking convolutions"),
      plain_memory(count * 4, "checking convolutions");
  ConvWeights d = conv_weights_of(p);
  d.g = trial.g;
  d.x = trial.x;
  PELTON_CUDA(conv_weights_exact(d, static_cast<double*>(exact_memory.get()),
                                 static_cast<float*>(plain_memory.get()), stream.get()));
  const std::vector<double> exact = to_doubles(download(exact_memory.get(), DType::f64, count, stream.get()));
  const std::vector<double> plain = to_doubles(download(plain_memory.get(), DType::f32, count, stream.get()));
  std::erase_if(methods, [&](const auto& m) {
    const std::optional<Elem> as = m->judged_as();
    if (!as) return false;
    const DType type = type_of(*as);
    const std::vector<double> straight = to_doubles(from_doubles(type, {count}, plain));
    double found = 0;
    try {
      m->run(trial, stream.get());
      found = largest_difference(to_doubles(download(trial.dw, p.result, count, stream.get())), exact);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::device_lost) throw;
      return true;
    }
    // The rule allows twice the error of the straightforward sums; a quarter of that is kept for other data.
    const double allowed = 1.5 * largest_difference(straight, exact) + unit_of(p.result, exact);
    if (found <= allowed) return false;
    log_debug(
        cat("left out ", m->name(), " of ", p.key(), ": it errs by ", found, ", ", allowed, " allowed"));
    return true;
  });
}

void leave_out_different(const WeightsProblem& p, const WeightsBuffers& trial, WeightsMethods& methods) {
  constexpr double kUnitsApart = 8;  // sums in f32, in another order
  if (std::none_of(methods.begin(), methods.end(), [](const auto& m) { return m->compared(); })) return;
  StreamHandle stream = make_stream();
  auto values = [&](const WeightsMethod& m) {
    const size_t bytes = static_cast<size_t>(byte_size(p.result, element_count(p.dw)));
    PELTON_CUDA(cudaMemsetAsync(trial.dw, 0xff, bytes, stream.get()));  // NaN where nothing is written
    m.run(trial, stream.get());
    return to_doubles(download(trial.dw, p.result, element_count(p.dw), stream.get()));
  };
  const std::vector<double> first = values(*methods[0]);
  // What was rounded to 16 bits on the way may be off by one of their units.
  const double allowed = kUnitsApart * unit_of(p.x.dtype, first);
  std::erase_if(methods, [&](const auto& m) {
    if (!m->compared() || m == methods[0]) return false;
    double found = 0;
    try {
      found = largest_difference(values(*m), first);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::device_lost) throw;
      log_debug(cat("left out ", m->name(), " of ", p.key(), ": ", e.message()));
      return true;
    }
    if (found <= allowed) return false;
    log_warn(
        cat("left out ", m->name(), " of ", p.key(), ": it differs by ", found, ", ", allowed, " allowed"));
    return true;
  });
}

}  // namespace pelton::backend::cuda
