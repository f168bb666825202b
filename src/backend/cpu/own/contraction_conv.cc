// SPDX-License-Identifier: Apache-2.0
// conv and conv_transpose on own loops.
#include <cstring>

#include "backend/conv_window.h"
#include "backend/cpu/own/contraction.h"

namespace pelton::backend::cpu {
namespace {

std::vector<int64_t> channel_strides(const TensorSpec& t) {
  // [batch, channel, spatial...] strides of a plain or channels-last tensor.
  std::vector<int64_t> s = row_major_strides(t.dims);
  if (t.layout.kind != ir::Layout::Kind::channels_last) return s;
  s[1] = 1;
  int64_t step = t.dims[1];
  for (size_t d = t.dims.size(); d-- > 2; step *= t.dims[d]) s[d] = step;
  s[0] = step;
  return s;
}

// A: weights of one group, [O / groups, C / groups * taps]. B: input values under each tap, gathered.
class ConvKernel final : public ContractionKernel {
 public:
  ConvKernel(const Instance& instance, const device::Target& target)
      : ContractionKernel(target), x_(instance.inputs[0]), w_(instance.inputs[1]) {
    const ir::Node& n = instance.node();
    const TensorSpec& y = instance.outputs[0];
    transposed_ = n.is("conv_transpose");
    groups_ = n.get_int("groups");
    window_ = conv_window(n, instance, w_.dims);
    taps_ = element_count(window_.kernel);
    p_.lane = lane_of(x_.dtype);
    inputs_ = x_.dims[1] / groups_;
    p_.m = y.dims[1] / groups_;
    p_.k = inputs_ * taps_;
    p_.batches = x_.dims[0] * groups_;
    spatial_.assign(y.dims.begin() + 2, y.dims.end());
    p_.n = element_count(spatial_);
    x_strides_ = channel_strides(x_);
    const std::vector<int64_t> ys = channel_strides(y);
    for (int64_t b = 0; b < p_.batches; ++b)
      p_.y_batch.push_back(b / groups_ * ys[0] + b % groups_ * p_.m * ys[1]);
    p_.y_row = ys[1];
    p_.y_column = ys.back();
    p_.y_type = y.dtype;
    has_bias_ = instance.has(2);
    load_x_ = load_function(x_.dtype, target.isa);
    load_w_ = load_function(w_.dtype, target.isa);
    x_zero_ = !transposed_ && instance.has(3);
    if (!transposed_ && instance.has(4)) w_zeros_ = instance.inputs[4].count();
    finish_setup();
    if (w_zeros_ == 0 && instance.constants[1].defined()) pack_a(instance.constants[1], 1);
  }

 private:
  int64_t a_copies() const override { return groups_; }
  int64_t a_of(int64_t batch) const override { return batch % groups_; }
  const void* bias(const RunArgs& args) const override { return has_bias_ ? args.in[2] : nullptr; }
  int64_t bias_row(int64_t batch, int64_t row) const override { return batch % groups_ * p_.m + row; }
  void fill_a(int64_t g, const RunArgs& args, std::byte* to) const override {
    const int64_t size = bits(w_.dtype) / 8;
    const auto* w = static_cast<const std::byte*>(args.in[1]);
    for (int64_t m = 0; m < p_.m; ++m)
      for (int64_t c = 0; c < inputs_; ++c) {
        const int64_t at =
            transposed_ ? ((g * inputs_ + c) * p_.m + m) * taps_ : ((g * p_.m + m) * inputs_ + c) * taps_;
        std::byte* row = to + (m * p_.k + c * taps_) * width();
        load_w_(w + at * size, 1, row, taps_);
        if (w_zeros_ == 0) continue;
        const int64_t i = w_zeros_ == 1 ? 0 : g * p_.m + m;
        subtract(row, taps_,
                 w_.dtype == DType::u8 ? static_cast<const uint8_t*>(args.in[4])[i]
                                       : static_cast<const int8_t*>(args.in[4])[i]);
      }
  }
  // Element offset within the image of the input under tap `t` of output position `o`, or -1 (padding).
  int64_t under(const int64_t* o, const int64_t* t) const {
    int64_t at = 0;
    for (size_t d = 0; d < spatial_.size(); ++d) {
      int64_t i;
      if (transposed_) {
        i = o[d] + window_.low[d] - t[d] * window_.dilations[d];
        if (i < 0 || i % window_.strides[d] != 0) return -1;
        i /= window_.strides[d];
      } else {
        i = o[d] * window_.strides[d] - window_.low[d] + t[d] * window_.dilations[d];
      }
      if (i < 0 || i >= x_.dims[d + 2]) return -1;
      at += i * x_strides_[d + 2];
    }
    return at;
  }
  void fill_panel(int64_t batch, int64_t first, int64_t count, const RunArgs& args,
                  std::byte* to) const override {
    const int64_t size = bits(x_.dtype) / 8;
    const auto* x = static_cast<const std::byte*>(args.in[0]) +
                    (batch / groups_ * x_strides_[0] + batch % groups_ * inputs_ * x_strides_[1]) * size;
    const int64_t zero = !x_zero_ ? 0
                                  : (x_.dtype == DType::u8 ? *static_cast<const uint8_t*>(args.in[3])
                                                           : *static_cast<const int8_t*>(args.in[3]));
    constexpr size_t kMaxRank = 8;
    const size_t rank = spatial_.size();
    int64_t positions[kMaxColumns][kMaxRank];
    for (int64_t c = 0; c < count; ++c) {
      int64_t rest = first + c;
      for (size_t d = rank; d-- > 0;) {
        positions[c][d] = rest % spatial_[d];
        rest /= spatial_[d];
      }
    }
    int64_t offsets[kMaxColumns];
    int64_t tap[kMaxRank] = {};
    for (int64_t t = 0; t < taps_; ++t) {
      bool run = true;  // the inputs lie side by side
      for (int64_t c = 0; c < count; ++c) {
        offsets[c] = under(positions[c], tap);
        run = run && offsets[c] >= 0 && offsets[c] == offsets[0] + c;
      }
      for (int64_t ch = 0; ch < inputs_; ++ch) {
        std::byte* lanes = to + (ch * taps_ + t) * p_.columns * width();
        const std::byte* from = x + ch * x_strides_[1] * size;
        if (run && count == p_.columns) {
          load_x_(from + offsets[0] * size, 1, lanes, count);
          if (x_zero_) subtract(lanes, count, zero);
        } else {
          std::memset(lanes, 0, static_cast<size_t>(p_.columns * width()));
          for (int64_t c = 0; c < count; ++c) {
            if (offsets[c] < 0) continue;  // padding is zero, with a zero point it is that point
            load_x_(from + offsets[c] * size, 1, lanes + c * width(), 1);
            if (x_zero_) subtract(lanes + c * width(), 1, zero);
          }
        }
      }
      for (size_t d = rank; d-- > 0;) {
        if (++tap[d] < window_.kernel[d]) break;
        tap[d] = 0;
      }
    }
  }

  TensorSpec x_, w_;
  ConvWindow window_;
  Dims spatial_;
  std::vector<int64_t> x_strides_;
  int64_t groups_ = 1, inputs_ = 0, taps_ = 1, w_zeros_ = 0;
  bool transposed_ = false, has_bias_ = false, x_zero_ = false;
  LoadFunction load_x_ = nullptr, load_w_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_own_conv(const Instance& instance, const device::Target& target) {
  return std::make_unique<ConvKernel>(instance, target);
}

}  // namespace pelton::backend::cpu
