// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/grouped_conv_steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/own/grouped_conv_steps.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// With sums of two vectors of channels, and of one.
constexpr int kPixels = 6, kMorePixels = 10;

template <class D>
HWY_INLINE hn::Mask<D> first(D d, int64_t count) {
  return hn::FirstN(d, static_cast<size_t>(count));
}

template <class D, int kPixels, int kVectors>
struct Sums {
  using V = hn::Vec<D>;
  V of[kPixels][kVectors];

  HWY_INLINE explicit Sums(const GroupedTile& t) {
    const D d;
    for (int v = 0; v < kVectors; ++v) {
      const auto lanes = static_cast<int64_t>(hn::Lanes(d));
      const V bias = t.bias ? hn::MaskedLoad(first(d, t.outputs[v]), d, t.bias + v * lanes) : hn::Zero(d);
      for (int p = 0; p < kPixels; ++p) of[p][v] = bias;
    }
  }
  HWY_INLINE void store(const GroupedTile& t) const {
    const D d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const V low = hn::Set(d, t.low);
    for (int p = 0; p < kPixels; ++p) {
      if (p >= t.count) break;
      for (int v = 0; v < kVectors; ++v) {
        float* to = t.out + p * t.out_stride + v * lanes;
        const V result = hn::IfThenElse(hn::Lt(of[p][v], low), low, of[p][v]);  // a NaN stays one
        if (t.outputs[v] >= lanes)
          hn::StoreU(result, d, to);
        else
          hn::BlendedStore(result, first(d, t.outputs[v]), d, to);
      }
    }
  }
};

// Groups of whole vectors of outputs: each input goes to all lanes.
template <int kLanes, int kVectors>
void spread(const GroupedTile& t) {
  using D = hn::CappedTag<float, kLanes>;
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Sums<D, kPixels, kVectors> sums(t);
  const float* w = t.weights;
  const float* const* pixels = t.pixels;
  const auto run = [&](auto same) {
    const int64_t second = t.first[kVectors - 1] - t.first[0];
    for (int64_t tap = 0; tap < t.taps; ++tap, pixels += kPixels) {
      const float* x[kPixels];
      for (int p = 0; p < kPixels; ++p) x[p] = pixels[p] + t.first[0];
      for (int64_t i = 0; i < t.inputs; ++i, w += kVectors * lanes)
        for (int p = 0; p < kPixels; ++p) {
          const auto value = hn::Set(d, x[p][i]);
          sums.of[p][0] = hn::MulAdd(value, hn::LoadU(d, w), sums.of[p][0]);
          if constexpr (kVectors == 2)
            sums.of[p][1] = hn::MulAdd(same() ? value : hn::Set(d, x[p][second + i]), hn::LoadU(d, w + lanes),
                                       sums.of[p][1]);
        }
    }
  };
  if (kVectors == 1 || t.first[0] == t.first[kVectors - 1])
    run([] { return true; });
  else
    run([] { return false; });
  sums.store(t);
}

#if HWY_TARGET != HWY_SCALAR
// Groups of four in and four out: one in each block of 128 bits.
void fours(const GroupedTile& t) {
  using D = hn::ScalableTag<float>;
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Sums<D, kMorePixels, 1> sums(t);
  const auto run = [&](auto load) {
    const float* w = t.weights;
    const float* const* pixels = t.pixels;
    for (int64_t tap = 0; tap < t.taps; ++tap, pixels += kMorePixels, w += 4 * lanes) {
      const auto w0 = hn::LoadU(d, w), w1 = hn::LoadU(d, w + lanes), w2 = hn::LoadU(d, w + 2 * lanes),
                 w3 = hn::LoadU(d, w + 3 * lanes);
      for (int p = 0; p < kMorePixels; ++p) {
        const auto x = load(pixels[p] + t.first[0]);
        auto sum = hn::MulAdd(hn::Broadcast<0>(x), w0, sums.of[p][0]);
        sum = hn::MulAdd(hn::Broadcast<1>(x), w1, sum);
        sum = hn::MulAdd(hn::Broadcast<2>(x), w2, sum);
        sums.of[p][0] = hn::MulAdd(hn::Broadcast<3>(x), w3, sum);
      }
    }
  };
  const auto mask = first(d, t.reads[0]);
  if (t.reads[0] == lanes)
    run([&](const float* x) { return hn::LoadU(d, x); });
  else
    run([&](const float* x) { return hn::MaskedLoad(mask, d, x); });
  sums.store(t);
}

// Other groups smaller than a vector, of no more inputs than outputs.
void looked_up(const GroupedTile& t) {
  using D = hn::ScalableTag<float>;
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Sums<D, kMorePixels, 1> sums(t);
  const float* w = t.weights;
  const float* const* pixels = t.pixels;
  const auto mask = first(d, t.reads[0]);
  for (int64_t tap = 0; tap < t.taps; ++tap, pixels += kMorePixels)
    for (int64_t i = 0; i < t.inputs; ++i, w += lanes) {
      const auto lookup = hn::SetTableIndices(d, t.lookup + i * lanes);
      const auto weights = hn::LoadU(d, w);
      for (int p = 0; p < kMorePixels; ++p)
        sums.of[p][0] =
            hn::MulAdd(hn::TableLookupLanes(hn::MaskedLoad(mask, d, pixels[p] + t.first[0]), lookup), weights,
                       sums.of[p][0]);
    }
  sums.store(t);
}
#endif

template <int kLanes>
GroupedConvSteps spread_steps() {
  const hn::CappedTag<float, kLanes> d;
  return {static_cast<int64_t>(hn::Lanes(d)), kPixels, 2, false, {spread<kLanes, 1>, spread<kLanes, 2>}};
}
GroupedConvSteps steps(int64_t inputs, int64_t outputs) {
  const auto most = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  if (most == 1 || (outputs >= 8 && outputs % 4 == 0)) {
    if (outputs % 16 == 0) return spread_steps<16>();
    return outputs % 8 == 0 ? spread_steps<8>() : spread_steps<4>();
  }
#if HWY_TARGET != HWY_SCALAR
  if (inputs == 4 && outputs == 4) return {most, kMorePixels, 1, true, {fours}};
  if ((outputs == 2 || outputs == 4) && inputs <= outputs) return {most, kMorePixels, 1, true, {looked_up}};
#else
  (void)inputs;
#endif
  return {};
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {

GroupedConvSteps grouped_conv_steps(device::CpuIsa isa, int64_t inputs, int64_t outputs) {
  return (*PELTON_SIMD_PICK(isa, steps))(inputs, outputs);
}

}  // namespace pelton::backend::cpu
#endif
