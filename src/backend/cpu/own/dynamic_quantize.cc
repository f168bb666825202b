// SPDX-License-Identifier: Apache-2.0
// dynamic_quantize: the range of all values, then their 8-bit integers on it.
#include <cmath>

#include "backend/cpu/own/implementations.h"
#include "backend/cpu/support.h"
#include "backend/cpu/tile/lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/own/dynamic_quantize.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Widens [*low, *high] to hold x. NaN is nowhere.
void widen_range(const float* x, int64_t n, float* low, float* high) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto least = hn::Set(d, *low), most = hn::Set(d, *high);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    least = hn::IfThenElse(hn::Lt(v, least), v, least);
    most = hn::IfThenElse(hn::Gt(v, most), v, most);
  }
  *low = hn::GetLane(hn::MinOfLanes(d, least));
  *high = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < n; ++i) {
    if (x[i] < *low) *low = x[i];
    if (x[i] > *high) *high = x[i];
  }
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {
namespace {

constexpr int64_t kPiece = 1024;  // values that are held as f32 at once

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Type &x = graph.type(graph[node].inputs[0]), &y = graph.type(graph[node].outputs[0]);
  if (!is_real(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  return x.layout == y.layout ? "" : "changes the layout";
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const DType type = instance.inputs[0].dtype;
  const int64_t n = instance.inputs[0].bytes() / (bits(type) / 8), width = bits(type) / 8;
  const int64_t grain = grain_for(n, 1), chunks = (n + grain - 1) / grain;
  const auto range = PELTON_SIMD_PICK(target.isa, widen_range);
  const LoadFunction load = load_function(type, target.isa);
  const StoreFunction store = store_whole(DType::u8, target.isa);
  const StepFunction divide = f32_step(Code::div, target.isa), round = f32_step(Code::to_range, target.isa);
  // f(values, first, count) for pieces of [begin, end)
  const auto pieces = [=](const RunArgs& args, int64_t begin, int64_t end, auto&& f) {
    alignas(64) float values[kPiece];
    for (int64_t i = begin; i < end; i += kPiece) {
      const int64_t count = std::min(kPiece, end - i);
      load(static_cast<const std::byte*>(args.in[0]) + i * width, 1, values, count);
      f(values, i, count);
    }
  };
  return make_kernel(
      [=](const RunArgs& args) {
        auto* found = static_cast<float*>(args.scratch);  // least and largest of each chunk
        parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
          float low = 0, high = 0;
          pieces(args, begin, end,
                 [&](const float* v, int64_t, int64_t count) { range(v, count, &low, &high); });
          found[begin / grain * 2] = low;
          found[begin / grain * 2 + 1] = high;
        });
        double low = 0, high = 0;
        for (int64_t c = 0; c < chunks; ++c) {
          low = std::min(low, static_cast<double>(found[c * 2]));
          high = std::max(high, static_cast<double>(found[c * 2 + 1]));
        }
        const float scale = static_cast<float>(static_cast<double>(static_cast<float>(high - low)) / 255);
        float zero = 0;
        if (scale > 0)
          zero = std::nearbyint(
              std::min(std::max(static_cast<float>(-low / static_cast<double>(scale)), 0.0f), 255.0f));
        *static_cast<float*>(args.out[1]) = scale;
        *static_cast<uint8_t*>(args.out[2]) = static_cast<uint8_t>(zero);
        // Nothing is on a range of one value: all of it is the zero point.
        const float by = scale > 0 ? scale : HUGE_VALF;
        parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
          pieces(args, begin, end, [&](float* v, int64_t first, int64_t count) {
            Step s;
            s.in[0] = s.out = v;
            s.one[1] = true;
            s.in[1] = &by;
            divide(s, count);
            s.in[1] = &zero;
            s.imm[1] = 255;
            round(s, count);
            store(v, static_cast<uint8_t*>(args.out[0]) + first, 1, count);
          });
        });
      },
      align64(std::max<int64_t>(1, chunks) * 8));
}

}  // namespace

void add_dynamic_quantize(Registry& registry) {
  registry.add({"cpu.dynamic_quantize", {"dynamic_quantize"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
#endif
