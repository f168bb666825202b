// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/move/copy.h"

#include <cstring>

namespace pelton::backend::cpu {
namespace {

template <class T>
void copy_block(int64_t height, int64_t length, const std::byte* from, int64_t height_from,
                int64_t length_from, std::byte* to, int64_t height_to, int64_t length_to) {
  const T* x = reinterpret_cast<const T*>(from);
  T* y = reinterpret_cast<T*>(to);
  if (length_to == 1 && length_from == 0) {
    for (int64_t h = 0; h < height; ++h) std::fill_n(y + h * height_to, length, x[h * height_from]);
    return;
  }
  if (length_to == 1 && length_from != 1 && height_from == 1 && height > 1) {
    // A transposition: square tiles keep the lines of both sides in cache.
    constexpr int64_t kTile = 16;
    for (int64_t l0 = 0; l0 < length; l0 += kTile)
      for (int64_t h0 = 0; h0 < height; h0 += kTile) {
        const int64_t l1 = std::min(length, l0 + kTile), h1 = std::min(height, h0 + kTile);
        if (l1 - l0 == kTile && h1 - h0 == kTile) {
          T tile[kTile][kTile];
          for (int64_t l = 0; l < kTile; ++l)
            for (int64_t h = 0; h < kTile; ++h) tile[h][l] = x[h0 + h + (l0 + l) * length_from];
          for (int64_t h = 0; h < kTile; ++h)
            for (int64_t l = 0; l < kTile; ++l) y[(h0 + h) * height_to + l0 + l] = tile[h][l];
        } else {
          for (int64_t h = h0; h < h1; ++h)
            for (int64_t l = l0; l < l1; ++l) y[h * height_to + l] = x[h + l * length_from];
        }
      }
    return;
  }
  for (int64_t h = 0; h < height; ++h)
    for (int64_t l = 0; l < length; ++l)
      y[h * height_to + l * length_to] = x[h * height_from + l * length_from];
}

}  // namespace

StridedCopy::StridedCopy(Dims sizes, std::vector<int64_t> from, std::vector<int64_t> to, int64_t width)
    : width_(width) {
  auto drop = [&](size_t i) {
    const auto at = static_cast<int64_t>(i);
    sizes.erase(sizes.begin() + at);
    from.erase(from.begin() + at);
    to.erase(to.begin() + at);
  };
  const bool empty = element_count(sizes) == 0;
  for (size_t i = sizes.size(); i-- > 0;)
    if (sizes[i] == 1) drop(i);
  for (size_t i = sizes.size(); i-- > 1;)
    if (from[i - 1] == from[i] * sizes[i] && to[i - 1] == to[i] * sizes[i]) {
      from[i - 1] = from[i];
      to[i - 1] = to[i];
      sizes[i - 1] *= sizes[i];
      drop(i);
    }
  auto take = [&](size_t i, int64_t& size, int64_t& f, int64_t& t) {
    size = sizes[i];
    f = from[i];
    t = to[i];
    drop(i);
  };
  auto find_unit = [&](const std::vector<int64_t>& strides) {
    for (size_t i = sizes.size(); i-- > 0;)
      if (strides[i] == 1) return i;
    return sizes.empty() ? size_t{0} : sizes.size() - 1;
  };
  if (!sizes.empty()) take(find_unit(to), length_, length_from_, length_to_);
  if (!sizes.empty())
    take(length_from_ == 1 ? sizes.size() - 1 : find_unit(from), height_, height_from_, height_to_);
  outer_ = sizes;
  outer_from_ = from;
  outer_to_ = to;
  // Tall blocks are split so that there is work for every thread.
  const int64_t outer = element_count(outer_);
  constexpr int64_t kStrip = 64;
  if (outer < 16 && height_ >= 2 * kStrip) {
    const int64_t strips = height_ / kStrip;
    if (height_ % kStrip == 0) {
      outer_.push_back(strips);
      outer_from_.push_back(height_from_ * kStrip);
      outer_to_.push_back(height_to_ * kStrip);
      height_ = kStrip;
    }
  }
  rows_ = empty ? 0 : element_count(outer_);
  grain_ = grain_for(rows_, height_ * length_ * 2);
}

void StridedCopy::rows(int64_t begin, int64_t end, const std::byte* from, std::byte* to) const {
  for (int64_t row = begin; row < end; ++row) {
    int64_t rest = row, f = 0, t = 0;
    for (size_t d = outer_.size(); d-- > 0;) {
      const int64_t i = rest % outer_[d];
      rest /= outer_[d];
      f += i * outer_from_[d];
      t += i * outer_to_[d];
    }
    const std::byte* x = from + f * width_;
    std::byte* y = to + t * width_;
    if (length_from_ == 1 && length_to_ == 1) {
      for (int64_t h = 0; h < height_; ++h)
        std::memcpy(y + h * height_to_ * width_, x + h * height_from_ * width_,
                    static_cast<size_t>(length_ * width_));
      continue;
    }
    auto block = [&](auto tag) {
      copy_block<decltype(tag)>(height_, length_, x, height_from_, length_from_, y, height_to_, length_to_);
    };
    if (width_ == 4)
      block(uint32_t{});
    else if (width_ == 2)
      block(uint16_t{});
    else if (width_ == 1)
      block(uint8_t{});
    else
      block(uint64_t{});
  }
}

void StridedCopy::run(const void* from, void* to) const {
  parallel_for(0, rows_, grain_, [&](int64_t begin, int64_t end) {
    rows(begin, end, static_cast<const std::byte*>(from), static_cast<std::byte*>(to));
  });
}

Dims physical_dims(const Dims& dims, const ir::Layout& layout, int64_t* axis) {
  if (layout.is_plain() || dims.size() < 2) return dims;
  const auto rank = static_cast<int64_t>(dims.size());
  Dims out = {dims[0]};
  const bool blocked = layout.kind == ir::Layout::Kind::blocked;
  if (blocked) out.push_back((dims[1] + layout.block - 1) / layout.block);
  out.insert(out.end(), dims.begin() + 2, dims.end());
  out.push_back(blocked ? layout.block : dims[1]);
  if (axis && !blocked) *axis = *axis == 1 ? rank - 1 : *axis >= 2 ? *axis - 1 : *axis;
  return out;
}

}  // namespace pelton::backend::cpu
