// SPDX-License-Identifier: Apache-2.0
// A convolution in chunks of tiles: input transforms, products panel by panel, output transforms and the
// chain while the result is in the cache.
#include "backend/cpu/own/winograd_kernel.h"

#include <algorithm>

#include "backend/conv_window.h"
#include "backend/cpu/own/conv_chain.h"
#include "backend/cpu/own/winograd_steps.h"
#include "backend/cpu/support.h"
#include "base/cat.h"
#include "runtime/packed_weights.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kTiles = 28;  // of a chunk: their transforms stay in the second-level cache
constexpr int64_t kLeastTiles = 10;
constexpr int kPoints = kWinogradPoints;

class Winograd final : public Kernel {
 public:
  Winograd(const Group& group, const Instance& instance, const device::Target& target)
      : steps_(winograd_steps(target.isa)),
        threads_(std::max(1, instance.threads)),
        weights_(group.operands[1].constant) {
    const Dims &x = instance.inputs[static_cast<size_t>(group.operands[0].input)].dims,
               &y = instance.outputs[0].dims;
    const ConvWindow window = conv_window(group.node(), instance, weights_.dims());
    input_ = group.operands[0].input;
    height_ = x[2];
    width_ = x[3];
    channels_ = x[1];
    top_ = window.low[0];
    left_ = window.low[1];
    out_height_ = y[2];
    out_width_ = y[3];
    outputs_ = y[1];
    tiles_wide_ = (out_width_ + 1) / 2;
    tiles_high_ = (out_height_ + 1) / 2;
    tiles_ = y[0] * tiles_high_ * tiles_wide_;
    chunks_ = (tiles_ + kTiles - 1) / kTiles;
    // As many chunks for every thread; where that would make them small, threads share a chunk by panels.
    const int64_t even = (chunks_ + threads_ - 1) / threads_ * threads_;
    by_panels_ = tiles_ < even * kLeastTiles;
    if (!by_panels_) chunks_ = even;
    chunk_ = (tiles_ + chunks_ - 1) / chunks_;
    chunks_ = (tiles_ + chunk_ - 1) / chunk_;
    panels_ = (outputs_ + steps_.columns - 1) / steps_.columns;
    // A row that is a large power of two would map all rows to a few sets of the cache.
    row_ = align64((channels_ * 4)) / 4 + 16;
    zeros_.assign(static_cast<size_t>(channels_), 0.0f);
    workers_ = threads_ == 1 ? 1 : std::min(by_panels_ ? chunks_ * panels_ : chunks_, threads_);
    pack();
    chain_.take(group, y.size(), target.isa);
  }

  int64_t packed_bytes() const override { return packed_->bytes(); }
  int64_t scratch_bytes() const override {
    return ((by_panels_ ? chunks_ : workers_) * transformed_floats() + workers_ * product_floats()) * 4;
  }

  void run(const RunArgs& args) const override {
    auto* scratch = static_cast<float*>(args.scratch);
    float* products = scratch + (by_panels_ ? chunks_ : workers_) * transformed_floats();
    const auto share = [&](int64_t items, auto&& f) {  // f(worker, first, last)
      parallel_for(0, workers_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) f(k, items * k / workers_, items * (k + 1) / workers_);
      });
    };
    if (!by_panels_) {
      share(chunks_, [&](int64_t k, int64_t first, int64_t last) {
        for (int64_t c = first; c < last; ++c) {
          float* v = scratch + k * transformed_floats();
          transform(args, c, first_tile(c), last_tile(c), v);
          for (int64_t p = 0; p < panels_; ++p) multiply(args, c, p, v, products + k * product_floats());
          finish(args, c);
        }
      });
      return;
    }
    share(tiles_, [&](int64_t, int64_t first, int64_t last) {
      for (int64_t c = first / chunk_; c < chunks_ && c * chunk_ < last; ++c)
        transform(args, c, std::max(first, first_tile(c)), std::min(last, last_tile(c)),
                  scratch + c * transformed_floats());
    });
    share(chunks_ * panels_, [&](int64_t k, int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        multiply(args, i / panels_, i % panels_, scratch + i / panels_ * transformed_floats(),
                 products + k * product_floats());
    });
    if (!chain_.empty())
      share(chunks_, [&](int64_t, int64_t first, int64_t last) {
        for (int64_t c = first; c < last; ++c) finish(args, c);
      });
  }

 private:
  struct Tile {
    int64_t image, y, x;  // y and x in tiles
  };
  Tile tile(int64_t i) const {
    return {i / (tiles_high_ * tiles_wide_), i / tiles_wide_ % tiles_high_, i % tiles_wide_};
  }
  int64_t first_tile(int64_t chunk) const { return chunk * chunk_; }
  int64_t last_tile(int64_t chunk) const { return std::min(tiles_, (chunk + 1) * chunk_); }
  int64_t transformed_floats() const { return kPoints * chunk_ * row_; }
  int64_t product_floats() const { return kPoints * chunk_ * steps_.columns; }

  // [panel][point][channel][columns], zeros behind the last output.
  void pack() {
    const int64_t columns = steps_.columns, point = channels_ * columns, floats = panels_ * kPoints * point;
    const auto* from = static_cast<const float*>(weights_.data());
    const int64_t groups = (columns + 15) / 16;
    const auto make = [&](void* to) {
      parallel_for(0, panels_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
          for (int64_t g = 0; g < groups; ++g) {
            const int64_t first = p * columns + g * 16;
            steps_.weights(from + std::min(first, outputs_ - 1) * channels_ * 9, channels_ * 9, channels_,
                           std::max<int64_t>(0, outputs_ - first),
                           static_cast<float*>(to) + p * kPoints * point + g * 16, point, columns);
          }
      });
    };
    packed_ =
        runtime::PackedWeights::instance().get(weights_, cat("winograd 2x2 ", columns), floats * 4, make);
  }

  void transform(const RunArgs& args, int64_t chunk, int64_t first, int64_t last, float* v) const {
    const auto* x = static_cast<const float*>(args.in[static_cast<size_t>(input_)]);
    for (int64_t i = first; i < last; ++i) {
      const Tile t = tile(i);
      const float* pixels[16];
      for (int64_t r = 0; r < 4; ++r)
        for (int64_t c = 0; c < 4; ++c) {
          const int64_t row = t.y * 2 + r - top_, column = t.x * 2 + c - left_;
          const bool inside = row >= 0 && row < height_ && column >= 0 && column < width_;
          pixels[r * 4 + c] =
              inside ? x + ((t.image * height_ + row) * width_ + column) * channels_ : zeros_.data();
        }
      steps_.input(pixels, channels_, v + (i - first_tile(chunk)) * row_, chunk_ * row_);
    }
  }

  void multiply(const RunArgs& args, int64_t chunk, int64_t panel, const float* v, float* m) const {
    const int64_t first = first_tile(chunk), tiles = last_tile(chunk) - first, columns = steps_.columns;
    const auto* u = static_cast<const float*>(packed_->data()) + panel * kPoints * channels_ * columns;
    for (int64_t p = 0; p < kPoints; ++p)
      steps_.product(tiles, channels_, v + p * chunk_ * row_, row_, u + p * channels_ * columns,
                     m + p * chunk_ * columns);
    const float* bias = chain_.bias(args);
    const int64_t o = panel * columns;
    auto* y = static_cast<float*>(args.out[0]) + o;
    for (int64_t i = 0; i < tiles; ++i) {
      const Tile t = tile(first + i);
      float* pixels[4];
      for (int64_t k = 0; k < 4; ++k) {
        const int64_t row = t.y * 2 + k / 2, column = t.x * 2 + k % 2;
        const bool inside = row < out_height_ && column < out_width_;
        pixels[k] = inside ? y + ((t.image * out_height_ + row) * out_width_ + column) * outputs_ : nullptr;
      }
      const int64_t count = std::min(columns, outputs_ - o);
      if (steps_.output(m + i * columns, chunk_ * columns, count, bias ? bias + o : nullptr, chain_.low(),
                        pixels))
        continue;
      for (int64_t k = 0; k < 4; ++k)
        if (pixels[k]) by_definition(args, t, k, o, count, bias, pixels[k]);
    }
  }

  // Pixel k of a tile by the sum that defines it, `count` outputs from o on.
  void by_definition(const RunArgs& args, const Tile& t, int64_t k, int64_t o, int64_t count,
                     const float* bias, float* to) const {
    const auto* x = static_cast<const float*>(args.in[static_cast<size_t>(input_)]);
    const auto* w = static_cast<const float*>(weights_.data());
    for (int64_t i = o; i < o + count; ++i) {
      float sum = 0;
      for (int64_t tap = 0; tap < 9; ++tap) {
        const int64_t row = t.y * 2 + k / 2 + tap / 3 - top_, column = t.x * 2 + k % 2 + tap % 3 - left_;
        if (row < 0 || row >= height_ || column < 0 || column >= width_) continue;
        const float* pixel = x + ((t.image * height_ + row) * width_ + column) * channels_;
        for (int64_t c = 0; c < channels_; ++c) sum += pixel[c] * w[(i * channels_ + c) * 9 + tap];
      }
      if (bias) sum += bias[i];
      to[i - o] = sum < chain_.low() ? chain_.low() : sum;
    }
  }

  // The rest of the chain over the pixels of a chunk: in each row of tiles two runs of pixels.
  void finish(const RunArgs& args, int64_t chunk) const {
    if (chain_.empty()) return;
    for (int64_t i = first_tile(chunk); i < last_tile(chunk);) {
      const Tile t = tile(i);
      const int64_t tiles = std::min(tiles_wide_ - t.x, last_tile(chunk) - i);
      const int64_t pixels = std::min(out_width_, (t.x + tiles) * 2) - t.x * 2;
      for (int64_t row = t.y * 2; row < std::min(out_height_, t.y * 2 + 2); ++row)
        chain_.run(args, ((t.image * out_height_ + row) * out_width_ + t.x * 2) * outputs_,
                   pixels * outputs_);
      i += tiles;
    }
  }

  const WinogradSteps steps_;
  const int64_t threads_;
  int input_ = 0;
  int64_t height_, width_, channels_, top_, left_, out_height_, out_width_, outputs_;
  int64_t tiles_wide_, tiles_high_, tiles_, chunk_, chunks_, panels_, row_, workers_;
  bool by_panels_;
  ConvChain chain_;
  const Tensor weights_;
  std::shared_ptr<const Tensor> packed_;
  std::vector<float> zeros_;
};

}  // namespace

std::unique_ptr<Kernel> make_winograd(const Group& group, const Instance& instance,
                                      const device::Target& target) {
  return std::make_unique<Winograd>(group, instance, target);
}

}  // namespace pelton::backend::cpu
