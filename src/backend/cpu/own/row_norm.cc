// SPDX-License-Identifier: Apache-2.0
// layer_norm and rms_norm of f32 rows: one loop for a row. A tile program calls its steps once a row, which
// takes several times as long as the arithmetic where rows are as short as the channels of an image.
#include "backend/cpu/own/row_norm.h"

#include <cmath>

#include "backend/cpu/own/implementations.h"
#include "backend/cpu/support.h"
#include "ir/ops/composite.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/own/row_norm.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// The sum of f over a row: f(i, whole) yields the vector at i, whose lanes behind the row's end are 0.
template <class F>
HWY_INLINE float sum_over(int64_t n, F f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  VF a = hn::Zero(DF()), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Add(a, f(i, true));
    b = hn::Add(b, f(i + lanes, true));
    c = hn::Add(c, f(i + 2 * lanes, true));
    d = hn::Add(d, f(i + 3 * lanes, true));
  }
  if (i + 2 * lanes <= n) {
    a = hn::Add(a, f(i, true));
    b = hn::Add(b, f(i + lanes, true));
    i += 2 * lanes;
  }
  if (i + lanes <= n) {
    c = hn::Add(c, f(i, true));
    i += lanes;
  }
  if (i < n) d = hn::Add(d, f(i, false));
  return hn::GetLane(hn::SumOfLanes(DF(), hn::Add(hn::Add(a, b), hn::Add(c, d))));
}

template <bool centred>
HWY_INLINE void row(const RowNorm& norm, const float* x, const float* scale, const float* bias, float* y) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df)), n = norm.n, rest = n % lanes;
  const auto end = hn::FirstN(df, static_cast<size_t>(rest));
  const auto load = [&](const float* p, int64_t i, bool whole)
                        HWY_ATTR { return whole ? hn::LoadU(df, p + i) : hn::MaskedLoad(end, df, p + i); };
  VF mean = hn::Zero(df);
  if (centred)
    mean = hn::Set(
        df, sum_over(n, [&](int64_t i, bool w) HWY_ATTR { return load(x, i, w); }) / static_cast<float>(n));
  const float squares = sum_over(n, [&](int64_t i, bool whole) HWY_ATTR {
    VF v = load(x, i, whole);
    if (centred) v = whole ? hn::Sub(v, mean) : hn::IfThenElseZero(end, hn::Sub(v, mean));
    return hn::Mul(v, v);
  });
  // Rounded once: every element is multiplied by it.
  const double variance = static_cast<double>(squares) / static_cast<double>(n);
  const VF rstd = hn::Set(df, static_cast<float>(1 / std::sqrt(variance + norm.eps)));
  const auto result = [&](int64_t i, bool whole) HWY_ATTR {
    VF v = load(x, i, whole);
    v = hn::Mul(centred ? hn::Sub(v, mean) : v, rstd);
    if (scale && bias) return hn::MulAdd(v, load(scale, i, whole), load(bias, i, whole));
    if (scale) v = hn::Mul(v, load(scale, i, whole));
    return bias ? hn::Add(v, load(bias, i, whole)) : v;
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(result(i, true), df, y + i);
  if (rest) hn::BlendedStore(result(i, false), end, df, y + i);
}

void row_norm(const RowNorm& norm, const float* x, const float* scale, const float* bias, float* y,
              int64_t rows) {
  if (norm.centred)
    for (int64_t r = 0; r < rows; ++r) row<true>(norm, x + r * norm.n, scale, bias, y + r * norm.n);
  else
    for (int64_t r = 0; r < rows; ++r) row<false>(norm, x + r * norm.n, scale, bias, y + r * norm.n);
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (std::string why = refuse_layouts(graph, node); !why.empty()) return why;
  const ir::Node& n = graph[node];
  if (n.outputs.size() > 1) return "yields statistics";
  const Shape& x = graph.type(n.inputs[0]).shape;
  const int64_t axis = ir::wrap_axis(n.get_int("axis"), static_cast<int64_t>(x.size()));
  for (ir::ValueId v : n.inputs) {
    if (!v) continue;
    const ir::Type& t = graph.type(v);
    if (t.dtype != DType::f32) return cat("needs f32, got ", name(t.dtype));
    if (v == n.inputs[0]) continue;
    // A value for each element of a row.
    Shape own = t.shape;
    while (own.size() > x.size() - static_cast<size_t>(axis) && own[0] == Dim(1)) own.erase(own.begin());
    if (own != Shape(x.begin() + axis, x.end()))
      return cat("needs a scale and bias of the shape of a row, not ", cat(t.shape));
  }
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const ir::Node& n = instance.node();
  const Dims& x = instance.inputs[0].dims;
  const int64_t axis = ir::wrap_axis(n.get_int("axis"), static_cast<int64_t>(x.size()));
  RowNorm norm;
  norm.n = element_count(Dims(x.begin() + axis, x.end()));
  norm.eps = n.get_real("eps");
  norm.centred = n.is("layer_norm");
  const int64_t rows = norm.n ? element_count(x) / norm.n : 0;
  const RowNormFunction f = PELTON_SIMD_PICK(target.isa, row_norm);
  const bool scaled = instance.has(1), shifted = instance.has(2);
  const int64_t grain = grain_for(rows, norm.n * 4);
  return make_kernel([=](const RunArgs& args) {
    const auto at = [](const void* p) { return static_cast<const float*>(p); };
    const float *from = at(args.in[0]), *scale = scaled ? at(args.in[1]) : nullptr,
                *bias = shifted ? at(args.in[2]) : nullptr;
    auto* to = static_cast<float*>(args.out[0]);
    parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
      f(norm, from + begin * norm.n, scale, bias, to + begin * norm.n, end - begin);
    });
  });
}

}  // namespace

void add_row_norm(Registry& registry) {
  registry.add({"cpu.row_norm", {"layer_norm", "rms_norm"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
#endif
