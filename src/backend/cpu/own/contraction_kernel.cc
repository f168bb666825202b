// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "backend/cpu/own/contraction.h"

namespace pelton::backend::cpu {

void ContractionKernel::finish_setup() {
  p_.columns = panel_columns(p_.lane, target_.isa);
  p_.panel = panel_function(p_.lane, target_.isa);
  p_.store = store_function(p_.y_type, target_.isa);
  a_bytes_ = align64(p_.m * p_.k * width());
  panel_bytes_ = align64(p_.k * p_.columns * width());
  panels_ = (p_.n + p_.columns - 1) / p_.columns;
  units_ = p_.batches * panels_;
  grain_ = std::max<int64_t>(grain_for(units_, p_.m * p_.k * p_.columns / 16), (units_ + 15) / 16);
}

void ContractionKernel::run(const RunArgs& args) const {
  if (units_ == 0 || p_.m == 0) return;
  const std::byte* a;
  std::byte* panels = static_cast<std::byte*>(args.scratch);
  if (packed_a_.defined()) {
    a = static_cast<const std::byte*>(packed_a_.data());
  } else {
    std::byte* to = panels;
    parallel_for(0, a_copies(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) fill_a(c, args, to + c * a_bytes_);
    });
    a = to;
    panels = to + a_copies() * a_bytes_;
  }
  parallel_for(0, units_, grain_, [&](int64_t begin, int64_t end) {
    std::byte* filled = panels + begin / grain_ * panel_bytes_;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t batch = unit / panels_, index = unit % panels_;
      fill_panel(batch, index * p_.columns, columns_of(index), args, filled);
      one_panel(batch, index, a, filled, args);
    }
  });
}

void ContractionKernel::pack_a(const Tensor& constant, int input) {
  packed_a_ = Tensor(DType::u8, {a_copies() * a_bytes_});
  const void* in[5] = {};
  in[input] = constant.data();
  const RunArgs args{in, {}, nullptr, {}};
  for (int64_t c = 0; c < a_copies(); ++c)
    fill_a(c, args, static_cast<std::byte*>(packed_a_.mutable_data()) + c * a_bytes_);
}

void ContractionKernel::one_panel(int64_t batch, int64_t index, const std::byte* a, const std::byte* panel,
                                  const RunArgs& args) const {
  const int64_t first = index * p_.columns, count = columns_of(index);
  const std::byte* rows = a + a_of(batch) * a_bytes_;
  const void* extra = bias(args);
  auto* y = static_cast<std::byte*>(args.out[0]);
  const int64_t y_width = bits(p_.y_type) / 8;
  alignas(64) std::byte out[kPanelRows * kMaxColumns * 8];
  for (int64_t m = 0; m < p_.m; m += kPanelRows) {
    const int64_t height = std::min(kPanelRows, p_.m - m);
    p_.panel(height, p_.k, rows + m * p_.k * width(), p_.k, panel, out);
    for (int64_t r = 0; r < height; ++r) {
      std::byte* lanes = out + r * p_.columns * width();
      if (extra) add_bias(lanes, count, extra, bias_row(batch, m + r));
      p_.store(
          lanes,
          y + (p_.y_batch[static_cast<size_t>(batch)] + (m + r) * p_.y_row + first * p_.y_column) * y_width,
          p_.y_column, count);
    }
  }
}

void ContractionKernel::add_bias(std::byte* lanes, int64_t count, const void* bias, int64_t index) const {
  auto add = [&](auto* out, auto value) {
    for (int64_t c = 0; c < count; ++c) out[c] += value;
  };
  alignas(8) std::byte value[8];
  load_function(p_.y_type, target_.isa)(static_cast<const std::byte*>(bias) + index * (bits(p_.y_type) / 8),
                                        1, value, 1);
  if (p_.lane == Lane::f32) {
    float v;
    std::memcpy(&v, value, 4);
    add(reinterpret_cast<float*>(lanes), v);
  } else if (p_.lane == Lane::f64) {
    double v;
    std::memcpy(&v, value, 8);
    add(reinterpret_cast<double*>(lanes), v);
  } else {
    int64_t v;
    std::memcpy(&v, value, 8);
    add(reinterpret_cast<int64_t*>(lanes), v);
  }
}

}  // namespace pelton::backend::cpu
