// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/byte_product.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/own/byte_steps.h"
#include "backend/cpu/own/byte_weights.h"
#include "backend/cpu/own/row_chain.h"
#include "backend/cpu/support.h"
#include "backend/cpu/tile/lanes.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kSlack = 64;                  // elements behind the widened operand that loops may read
constexpr int64_t kBuffer = 16384;              // results of a unit: their chain stays in the cache
constexpr int64_t kWidened = int64_t{2} << 20;  // elements of widened images that are held at once
constexpr int64_t kUnitsAThread = 4;

class ByteProduct final : public Kernel {
 public:
  ByteProduct(const Group& group, const Instance& instance, const ByteProblem& problem,
              const device::Target& target)
      : p_(problem),
        steps_(byte_steps(target.isa)),
        weights_(pack_byte_weights(problem)),
        threads_(std::max(1, instance.threads)) {
    signed_ = instance.inputs[static_cast<size_t>(p_.x.input)].dtype == DType::i8;
    if (p_.late) w_signed_ = instance.inputs[static_cast<size_t>(p_.w.input)].dtype == DType::i8;
    result_ = instance.outputs[0].dtype;
    if (bits(result_) == 8) store_ = store_whole(result_, target.isa);
    to_range_ = f32_step(Code::to_range, target.isa);
    line_ = p_.padded[2] * p_.channels;
    image_ = p_.padded[0] * p_.padded[1] * line_;
    at_once_ = std::clamp<int64_t>(kWidened / std::max<int64_t>(1, image_), 1, p_.images);
    for (const ByteWeights::Tap& tap : weights_.taps)
      taps_.push_back(((tap.at[0] * p_.padded[1] + tap.at[1]) * p_.padded[2] + tap.at[2]) * p_.channels);
    const size_t rank = instance.outputs[0].dims.size();
    chain_.take(group, 0, weights_.channel_of, rank, group.node().is("conv") ? 1 : rank - 1, target.isa);
    choose_units();
  }

  int64_t packed_bytes() const override { return p_.late ? 0 : weights_.packed->bytes(); }
  int64_t scratch_bytes() const override { return buffers_at() + workers_ * buffer_bytes(); }
  bool reads(size_t input) const override { return p_.late || static_cast<int>(input) != p_.w.input; }

  void run(const RunArgs& args) const override {
    auto* widened = static_cast<int16_t*>(args.scratch);
    std::byte* buffers = offset(args.scratch, buffers_at());
    const int16_t zero = zero_of(args, p_.x_zero, signed_);
    for (int64_t first = 0; first < p_.images; first += at_once_) {
      const int64_t images = std::min(at_once_, p_.images - first);
      widen(args, first, images, zero, widened);
      if (p_.late) pack(args, first, images);
      const int64_t units = images * row_blocks_ * column_blocks_, workers = std::min(workers_, units);
      parallel_for(0, workers, 1, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k)
          for (int64_t u = units * k / workers; u < units * (k + 1) / workers; ++u)
            unit(args, first, u, widened, buffers + k * buffer_bytes());
      });
    }
  }

 private:
  int64_t widened_bytes() const { return align64((at_once_ * image_ + kSlack) * 2); }
  int64_t panels() const { return weights_.columns / kByteColumns; }
  int64_t buffers_at() const {
    return widened_bytes() + (p_.late ? align64(at_once_ * panels() * weights_.panel_size() * 2) : 0);
  }
  // Of a unit: its sums, and where the pixels of its rows begin.
  int64_t sums_bytes() const { return align64(unit_rows_ * unit_columns_ * 4); }
  int64_t buffer_bytes() const { return sums_bytes() + align64(unit_rows_ * 8); }

  // Blocks of rows and of columns (whole panels of one group), enough of them for every thread.
  void choose_units() {
    const int64_t columns = weights_.columns, rows = std::max<int64_t>(1, p_.rows());
    const int64_t wanted = kUnitsAThread * threads_;
    unit_columns_ = std::min<int64_t>(columns, 512);
    auto fit = [&] {
      column_blocks_ = weights_.groups * ((columns + unit_columns_ - 1) / unit_columns_);
      unit_rows_ = std::max<int64_t>(1, kBuffer / unit_columns_ / steps_.rows) * steps_.rows;
      while (unit_rows_ > steps_.rows &&
             at_once_ * ((rows + unit_rows_ - 1) / unit_rows_) * column_blocks_ < wanted)
        unit_rows_ = std::max(steps_.rows, unit_rows_ / 2 / steps_.rows * steps_.rows);
      unit_rows_ = std::min(unit_rows_, rows);
      row_blocks_ = (rows + unit_rows_ - 1) / unit_rows_;
      return at_once_ * row_blocks_ * column_blocks_;
    };
    while (fit() < wanted && unit_columns_ > 4 * kByteColumns)
      unit_columns_ = (unit_columns_ / 2 + kByteColumns - 1) / kByteColumns * kByteColumns;
    workers_ = std::clamp<int64_t>(threads_, 1, at_once_ * row_blocks_ * column_blocks_);
  }

  static int16_t zero_of(const RunArgs& args, const GroupOperand& zero, bool is_signed) {
    if (zero.constant.defined()) return static_cast<int16_t>(zero.constant.get_int(0));
    if (zero.input < 0) return 0;
    const void* p = args.in[static_cast<size_t>(zero.input)];
    return is_signed ? *static_cast<const int8_t*>(p) : *static_cast<const uint8_t*>(p);
  }

  // The right matrices of some images in panels.
  void pack(const RunArgs& args, int64_t first, int64_t images) const {
    auto* to = reinterpret_cast<int16_t*>(offset(args.scratch, widened_bytes()));
    const auto* w = static_cast<const uint8_t*>(args.in[static_cast<size_t>(p_.w.input)]);
    const int16_t zero = zero_of(args, p_.w_zero, w_signed_);
    const int64_t count = images * panels(), size = weights_.panel_size();
    parallel_for(0, count, grain_for(count, size / 4), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = i % panels() * kByteColumns;
        const int64_t matrix = p_.w_of[static_cast<size_t>(first + i / panels())];
        const uint8_t* from = w + matrix * p_.channels * p_.outputs + column * p_.w_output;
        const int64_t outputs = std::min(kByteColumns, p_.outputs - column);
        if (w_signed_)
          steps_.pack_signed(reinterpret_cast<const int8_t*>(from), p_.w_channel, p_.w_output, p_.channels,
                             outputs, zero, to + i * size);
        else
          steps_.pack_unsigned(from, p_.w_channel, p_.w_output, p_.channels, outputs, zero, to + i * size);
      }
    });
  }

  // Images with their pads, less the zero point, as 16 bits.
  void widen(const RunArgs& args, int64_t first, int64_t images, int16_t zero, int16_t* to) const {
    const int64_t lines = p_.padded[0] * p_.padded[1], from_line = p_.in[2] * p_.channels;
    const auto* x = static_cast<const uint8_t*>(args.in[static_cast<size_t>(p_.x.input)]);
    parallel_for(0, images * lines, grain_for(images * lines, line_ / 16), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int16_t* line = to + i * line_;
        const int64_t d = i % lines / p_.padded[1] - p_.low[0], h = i % p_.padded[1] - p_.low[1];
        if (d < 0 || d >= p_.in[0] || h < 0 || h >= p_.in[1]) {
          std::fill_n(line, line_, int16_t{0});
          continue;
        }
        const int64_t image = p_.late ? p_.x_of[static_cast<size_t>(first + i / lines)] : first + i / lines;
        const uint8_t* from = x + ((image * p_.in[0] + d) * p_.in[1] + h) * from_line;
        const int64_t left = p_.low[2] * p_.channels;
        std::fill_n(line, left, int16_t{0});
        if (signed_)
          steps_.widen_signed(reinterpret_cast<const int8_t*>(from), from_line, zero, line + left);
        else
          steps_.widen_unsigned(from, from_line, zero, line + left);
        std::fill_n(line + left + from_line, line_ - left - from_line, int16_t{0});
      }
    });
    std::fill_n(to + images * image_, kSlack, int16_t{0});
  }

  const int16_t* panel(const RunArgs& args, int64_t image, int64_t group, int64_t index) const {
    if (!p_.late) return weights_.panel(group, index);
    const auto* packed = reinterpret_cast<const int16_t*>(offset(args.scratch, widened_bytes()));
    return packed + (image * panels() + index) * weights_.panel_size();
  }
  // Offset in the widened image of what lies under the first tap of a row.
  int64_t under(int64_t row) const {
    const int64_t w = row % p_.out[2], h = row / p_.out[2] % p_.out[1], d = row / p_.out[2] / p_.out[1];
    return ((d * p_.stride[0] * p_.padded[1] + h * p_.stride[1]) * p_.padded[2] + w * p_.stride[2]) *
           p_.channels;
  }

  void unit(const RunArgs& args, int64_t first_image, int64_t u, const int16_t* widened,
            std::byte* buffer) const {
    const int64_t block = u % column_blocks_, in_group = column_blocks_ / weights_.groups;
    const int64_t group = block / in_group, column = block % in_group * unit_columns_;
    const int64_t image = u / column_blocks_ / row_blocks_,
                  row = u / column_blocks_ % row_blocks_ * unit_rows_;
    const int64_t rows = std::min(unit_rows_, p_.rows() - row);
    const int64_t ld = std::min(unit_columns_, weights_.columns - column);
    auto* sums = reinterpret_cast<int32_t*>(buffer);
    auto** at = reinterpret_cast<const int16_t**>(buffer + sums_bytes());
    const int64_t first = weights_.channelwise ? column : group * (p_.channels / p_.groups);
    for (int64_t r = 0; r < rows; ++r) at[r] = widened + image * image_ + first + under(row + r);
    if (weights_.channelwise)
      for (int64_t r = 0; r < rows; ++r)
        steps_.channelwise(at[r], weights_.tap_count(), taps_.data(), weights_.wide() + column,
                           weights_.columns, ld, sums + r * ld);
    else
      for (int64_t c = 0; c < ld; c += kByteColumns)
        steps_.product(rows, at, weights_.tap_count(), taps_.data(), weights_.pairs,
                       panel(args, image, group, (column + c) / kByteColumns), sums + c, ld);
    const int64_t outputs = p_.outputs / weights_.groups, channel = group * outputs + column;
    finish(args, sums, rows, ld,
           {(first_image + image) * p_.rows() + row, group * weights_.columns + column, channel,
            std::min(ld, outputs - column), p_.outputs});
  }

  void finish(const RunArgs& args, int32_t* sums, int64_t rows, int64_t ld,
              const RowChain::Place& place) const {
    if (!weights_.bias.empty())
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < ld; ++c)
          sums[r * ld + c] += weights_.bias[static_cast<size_t>(place.column + c)];
    auto* values = reinterpret_cast<float*>(sums);
    if (result_ != DType::i32) {
      steps_.to_f32(sums, rows * ld);
      chain_.run(args, values, rows, ld, place);
      if (store_) {
        constexpr float kNone = 0;
        Step limits;
        limits.in[0] = limits.out = values;
        limits.in[1] = &kNone;
        limits.one[1] = true;
        limits.imm[0] = static_cast<float>(lowest(result_));
        limits.imm[1] = static_cast<float>(highest(result_));
        to_range_(limits, rows * ld);
      }
    }
    const int64_t width = bits(result_) / 8;
    std::byte* y = offset(args.out[0], (place.row * place.channels + place.channel) * width);
    for (int64_t r = 0; r < rows; ++r, y += place.channels * width, values += ld)
      if (store_)
        store_(values, y, 1, place.count);
      else
        std::memcpy(y, values, static_cast<size_t>(place.count) * 4);
  }

  ByteProblem p_;
  const ByteSteps steps_;
  const ByteWeights weights_;
  const int64_t threads_;
  bool signed_ = false, w_signed_ = false;
  DType result_ = DType::i32;
  StoreFunction store_ = nullptr;  // of bytes
  StepFunction to_range_ = nullptr;
  int64_t line_ = 0, image_ = 0, at_once_ = 1;  // elements; images widened at once
  std::vector<int64_t> taps_;                   // offsets in the widened image
  RowChain chain_;
  int64_t unit_rows_ = 1, unit_columns_ = 1, row_blocks_ = 1, column_blocks_ = 1, workers_ = 1;
};

}  // namespace

std::unique_ptr<Kernel> make_byte_product(const Group& group, const Instance& instance,
                                          const ByteProblem& problem, const device::Target& target) {
  return std::make_unique<ByteProduct>(group, instance, problem, target);
}

}  // namespace pelton::backend::cpu
