// SPDX-License-Identifier: Apache-2.0
// A convolution in groups in blocks of pixels and parts of the channels: the addresses under a block's taps
// are found once, then all channels of the part go over them.
#include "backend/cpu/own/grouped_conv_kernel.h"

#include <algorithm>

#include "backend/conv_window.h"
#include "backend/cpu/own/conv_chain.h"
#include "backend/cpu/own/grouped_conv_steps.h"
#include "backend/cpu/support.h"
#include "base/cat.h"
#include "runtime/packed_weights.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kMostAddresses = 2048;  // of a block, on the stack
constexpr int64_t kMostTiles = 8;
constexpr int64_t kPartWork = 1 << 15;  // products that are worth a hand-out

struct Axis {
  int64_t size = 1, results = 1, kernel = 1, stride = 1, dilation = 1, low = 0;
  // Whether the window that begins at `first` lies within.
  bool covers(int64_t first) const { return first >= 0 && first + (kernel - 1) * dilation < size; }
};

class GroupedConv final : public Kernel {
 public:
  GroupedConv(const Group& group, const Instance& instance, const device::Target& target)
      : weights_(group.operands[1].constant), input_(group.operands[0].input) {
    const Dims &x = instance.inputs[static_cast<size_t>(input_)].dims, &y = instance.outputs[0].dims,
               &w = weights_.dims();
    const ConvWindow window = conv_window(group.node(), instance, w);
    const size_t spatial = w.size() - 2;
    for (size_t i = 0; i < spatial; ++i)
      axes_[2 - spatial + i] = {
          x[2 + i], y[2 + i], window.kernel[i], window.strides[i], window.dilations[i], window.low[i]};
    const int64_t groups = group.node().get_int("groups");
    channels_ = x[1];
    outputs_ = y[1];
    inputs_ = w[1];
    group_outputs_ = outputs_ / groups;
    taps_ = axes_[0].kernel * axes_[1].kernel;
    steps_ = grouped_conv_steps(target.isa, inputs_, group_outputs_);
    vectors_ = (outputs_ + steps_.lanes - 1) / steps_.lanes;
    pixels_ = y[0] * axes_[0].results * axes_[1].results;
    for (int64_t tap = 0; tap < taps_; ++tap)
      offsets_.push_back((tap / axes_[1].kernel * axes_[0].dilation * axes_[1].size +
                          tap % axes_[1].kernel * axes_[1].dilation) *
                         channels_);
    zeros_.assign(static_cast<size_t>(channels_), 0.0f);
    for (int64_t i = 0; i < inputs_; ++i)
      for (int64_t l = 0; l < steps_.lanes; ++l)
        lookup_.push_back(static_cast<int32_t>(steps_.looks_up ? l / group_outputs_ * inputs_ + i : 0));
    cut(std::max(1, instance.threads));
    pack();
    chain_.take(group, y.size(), target.isa);
    describe_units();
  }

  int64_t packed_bytes() const override { return packed_->bytes(); }

  void run(const RunArgs& args) const override {
    parallel_for(0, blocks_ * parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t block = i / parts_, part = i % parts_;
        run_part(args, block * block_, std::min(pixels_, (block + 1) * block_), units() * part / parts_,
                 units() * (part + 1) / parts_);
      }
    });
  }

 private:
  // Of one or two vectors of channels.
  int64_t units() const { return (vectors_ + steps_.vectors - 1) / steps_.vectors; }

  // Blocks of pixels, and parts of the channels where blocks are few for the threads. No sum is cut.
  void cut(int64_t threads) {
    const int64_t tiles = (pixels_ + steps_.pixels - 1) / steps_.pixels;
    const int64_t fit = std::min(kMostTiles, kMostAddresses / (taps_ * steps_.pixels));
    const int64_t block = std::clamp<int64_t>(tiles / (threads * 4), 1, std::max<int64_t>(1, fit));
    block_ = block * steps_.pixels;
    blocks_ = (pixels_ + block_ - 1) / block_;
    if (threads == 1 || blocks_ >= threads * 8) return;
    const int64_t work = block_ * outputs_ * inputs_ * taps_;
    parts_ = std::clamp<int64_t>(std::min(threads * 8 / blocks_, work / kPartWork), 1, units());
  }

  // For each unit [tap][input][vector][lane], zeros behind the last output.
  void pack() {
    const int64_t lanes = steps_.lanes, vector = taps_ * inputs_ * lanes;
    const auto* from = static_cast<const float*>(weights_.data());
    const auto make = [&](void* to) {
      parallel_for(0, units(), grain_for(units(), steps_.vectors * vector), [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t count = std::min(steps_.vectors, vectors_ - unit * steps_.vectors);
          float* at = static_cast<float*>(to) + unit * steps_.vectors * vector;
          for (int64_t tap = 0; tap < taps_; ++tap)
            for (int64_t i = 0; i < inputs_; ++i)
              for (int64_t o = unit * steps_.vectors * lanes; o < (unit * steps_.vectors + count) * lanes;
                   ++o)
                *at++ = o < outputs_ ? from[(o * inputs_ + i) * taps_ + tap] : 0.0f;
        }
      });
    };
    packed_ = runtime::PackedWeights::instance().get(weights_, cat("grouped conv ", lanes),
                                                     vectors_ * vector * 4, make);
  }

  // What tiles of a unit have in common.
  void describe_units() {
    const int64_t lanes = steps_.lanes, vector = taps_ * inputs_ * lanes;
    for (int64_t unit = 0; unit < units(); ++unit) {
      GroupedTile t;
      t.taps = taps_;
      t.inputs = inputs_;
      t.lookup = lookup_.data();
      t.low = chain_.low();
      t.out_stride = outputs_;
      for (int64_t v = 0; v < std::min(steps_.vectors, vectors_ - unit * steps_.vectors); ++v) {
        const int64_t o = (unit * steps_.vectors + v) * lanes;
        t.first[v] = o / group_outputs_ * inputs_;
        t.reads[v] = std::min(std::max<int64_t>(1, lanes / group_outputs_) * inputs_, channels_ - t.first[v]);
        t.outputs[v] = std::min(lanes, outputs_ - o);
      }
      t.weights = static_cast<const float*>(packed_->data()) + unit * steps_.vectors * vector;
      tiles_.push_back(t);
    }
  }

  // The address of every tap for the pixels from `first` on, tile by tile; what is outside or behind the last
  // pixel reads zeros.
  void find_addresses(const float* x, int64_t first, int64_t last, const float** to) const {
    const Axis &v = axes_[0], &h = axes_[1];
    const int64_t tiles = (last - first + steps_.pixels - 1) / steps_.pixels;
    int64_t image = first / (v.results * h.results), row = first / h.results % v.results,
            column = first % h.results;
    for (int64_t i = 0; i < tiles * steps_.pixels; ++i) {
      const float** at = to + i / steps_.pixels * taps_ * steps_.pixels + i % steps_.pixels;
      const int64_t top = row * v.stride - v.low, left = column * h.stride - h.low;
      const float* start = x + ((image * v.size + top) * h.size + left) * channels_;
      const bool counts = first + i < last;
      if (counts && v.covers(top) && h.covers(left))
        for (int64_t tap = 0; tap < taps_; ++tap) at[tap * steps_.pixels] = start + offsets_[tap];
      else
        for (int64_t tap = 0; tap < taps_; ++tap) {
          const int64_t y = top + tap / h.kernel * v.dilation, z = left + tap % h.kernel * h.dilation;
          const bool inside = counts && y >= 0 && y < v.size && z >= 0 && z < h.size;
          at[tap * steps_.pixels] = inside ? start + offsets_[tap] : zeros_.data();
        }
      if (++column < h.results) continue;
      column = 0;
      if (++row < v.results) continue;
      row = 0;
      ++image;
    }
  }

  void run_part(const RunArgs& args, int64_t first, int64_t last, int64_t unit, int64_t last_unit) const {
    const float* addresses[kMostAddresses];
    find_addresses(static_cast<const float*>(args.in[static_cast<size_t>(input_)]), first, last, addresses);
    const float* bias = chain_.bias(args);
    const int64_t from = unit * steps_.vectors * steps_.lanes,
                  to = std::min(outputs_, last_unit * steps_.vectors * steps_.lanes);
    const auto tile = [&](int64_t u, int64_t p) {
      GroupedTile t = tiles_[static_cast<size_t>(u)];
      const int64_t o = u * steps_.vectors * steps_.lanes;
      if (bias) t.bias = bias + o;
      t.pixels = addresses + (p - first) * taps_;
      t.out = static_cast<float*>(args.out[0]) + p * outputs_ + o;
      t.count = std::min(steps_.pixels, last - p);
      steps_.tile[std::min(steps_.vectors, vectors_ - u * steps_.vectors) - 1](t);
    };
    for (int64_t u = unit; u < last_unit; ++u)
      for (int64_t p = first; p < last; p += steps_.pixels) tile(u, p);
    if (chain_.empty()) return;
    if (to - from == outputs_) return chain_.run(args, first * outputs_, (last - first) * outputs_);
    for (int64_t p = first; p < last; ++p) chain_.run(args, p * outputs_ + from, to - from);
  }

  const Tensor weights_;
  const int input_;
  Axis axes_[2];
  int64_t channels_, outputs_, inputs_, group_outputs_, taps_, vectors_, pixels_;
  int64_t block_ = 1, blocks_ = 1, parts_ = 1;
  GroupedConvSteps steps_;
  std::vector<GroupedTile> tiles_;  // of the units
  std::vector<int32_t> lookup_;
  std::vector<int64_t> offsets_;  // of the taps, from that of the first
  std::vector<float> zeros_;
  std::shared_ptr<const Tensor> packed_;
  ConvChain chain_;
};

}  // namespace

std::unique_ptr<Kernel> make_grouped_conv(const Group& group, const Instance& instance,
                                          const device::Target& target) {
  return std::make_unique<GroupedConv>(group, instance, target);
}

}  // namespace pelton::backend::cpu
