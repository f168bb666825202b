// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/byte_weights.h"

#include "backend/cpu/own/byte_steps.h"
#include "backend/cpu/support.h"
#include "base/cat.h"
#include "runtime/packed_weights.h"

namespace pelton::backend::cpu {
namespace {

// Reads the weight of an output, a channel of its group and a place of the window.
class Reader {
 public:
  explicit Reader(const ByteProblem& p)
      : p_(p),
        data_(static_cast<const uint8_t*>(p.w.constant.data())),
        signed_(p.w.constant.dtype() == DType::i8) {
    if (p.w_zero.constant.defined())
      for (int64_t i = 0; i < p.w_zero.constant.count(); ++i) zeros_.push_back(p.w_zero.constant.get_int(i));
  }
  bool shifted() const {
    for (int64_t z : zeros_)
      if (z != 0) return true;
    return false;
  }
  int64_t operator()(int64_t output, int64_t channel, int64_t place) const {
    const int64_t at = output * p_.w_output + channel * p_.w_channel + place;
    const int64_t zero = zeros_.empty() ? 0 : zeros_[zeros_.size() == 1 ? 0 : static_cast<size_t>(output)];
    return (signed_ ? static_cast<int8_t>(data_[at]) : data_[at]) - zero;
  }

 private:
  const ByteProblem& p_;
  const uint8_t* data_;
  const bool signed_;
  std::vector<int64_t> zeros_;
};

}  // namespace

int64_t ByteWeights::panel_size() const {
  return tap_count() * pairs * kByteColumns * 2;
}
const int16_t* ByteWeights::panel(int64_t group, int64_t index) const {
  return static_cast<const int16_t*>(packed->data()) +
         (group * (columns / kByteColumns) + index) * panel_size();
}

ByteWeights pack_byte_weights(const ByteProblem& p) {
  ByteWeights out;
  const int64_t channels = p.channels / p.groups, outputs = p.outputs / p.groups;
  out.channelwise = p.groups > 1 && channels == 1 && outputs == 1;
  out.groups = out.channelwise ? 1 : p.groups;
  // Pixels of a row of the window lie side by side where nothing stands between their channels.
  const bool merged = p.groups == 1 && p.dilation[2] == 1;
  for (int64_t d = 0; d < p.kernel[0]; ++d)
    for (int64_t h = 0; h < p.kernel[1]; ++h)
      for (int64_t w = 0; w < (merged ? 1 : p.kernel[2]); ++w)
        out.taps.push_back({{d * p.dilation[0], h * p.dilation[1], w * p.dilation[2]}});
  out.run = merged ? p.kernel[2] * channels : channels;
  out.pairs = (out.run + 1) / 2;
  const int64_t each = p.outputs / out.groups;
  out.columns = (each + kByteColumns - 1) / kByteColumns * kByteColumns;
  for (int64_t g = 0; g < out.groups; ++g)
    for (int64_t c = 0; c < out.columns; ++c) out.channel_of.push_back(c < each ? g * each + c : -1);
  if (p.bias.constant.defined())
    for (int64_t c : out.channel_of)
      out.bias.push_back(
          c < 0 ? 0 : static_cast<int32_t>(p.bias.constant.get_int(p.bias.constant.count() == 1 ? 0 : c)));
  if (p.late) return out;

  const Reader weight(p);
  const int64_t taps = out.tap_count(), panels = out.columns / kByteColumns;
  const auto fill_wide = [&](int32_t* to) {
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t c = 0; c < out.columns; ++c)
        to[t * out.columns + c] = c < each ? static_cast<int32_t>(weight(c, 0, t)) : 0;
  };
  const auto fill_panel = [&](int64_t g, int64_t panel, int16_t* to) {
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t l = 0; l < out.pairs * 2; ++l)
        for (int64_t c = 0; c < kByteColumns; ++c) {
          const int64_t output = panel * kByteColumns + c;
          int64_t value = 0;
          if (l < out.run && output < each)
            value = merged ? weight(output, l % channels, t * p.kernel[2] + l / channels)
                           : weight(g * each + output, l, t);
          to[((t * out.pairs + l / 2) * kByteColumns + c) * 2 + l % 2] = static_cast<int16_t>(value);
        }
  };
  const int64_t panel_size = out.panel_size();
  const auto fill = [&](void* to) {
    if (out.channelwise) return fill_wide(static_cast<int32_t*>(to));
    parallel_for(0, out.groups * panels, grain_for(out.groups * panels, panel_size),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i)
                     fill_panel(i / panels, i % panels, static_cast<int16_t*>(to) + i * panel_size);
                 });
  };
  const int64_t bytes = out.channelwise ? taps * out.columns * 4 : out.groups * panels * panel_size * 2;
  if (weight.shifted()) {  // by values that no name of an order could say
    auto own = std::make_shared<Tensor>(DType::u8, Dims{bytes});
    fill(own->mutable_data());
    out.packed = std::move(own);
  } else {
    out.packed = runtime::PackedWeights::instance().get(
        p.w.constant,
        cat("int8 in pairs, ", kByteColumns, " columns, ", out.groups, " groups, strides ", p.w_output, " ",
            p.w_channel, merged ? ", rows" : ", pixels"),
        bytes, fill);
  }
  return out;
}

}  // namespace pelton::backend::cpu
