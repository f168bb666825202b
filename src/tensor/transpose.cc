// SPDX-License-Identifier: Apache-2.0
#include "tensor/transpose.h"

#include <algorithm>
#include <atomic>

#include "base/thread_pool.h"

namespace pelton {
namespace {

constexpr int64_t kTile = 64;  // a tile of each side stays in the cache
constexpr int64_t kGrain = 1 << 18;

// f(from row-major [rows, columns], to row-major [columns, rows]) on the places of each pair, on all threads,
// until it says no.
template <class F>
bool each_pair(int64_t rows, int64_t columns, F&& f) {
  const int64_t bands = (rows + kTile - 1) / kTile,
                grain = std::max<int64_t>(1, kGrain / (kTile * std::max<int64_t>(columns, 1)));
  std::atomic<bool> yes{true};
  parallel_for(0, bands, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r0 = begin * kTile; r0 < end * kTile; r0 += kTile)
      for (int64_t c0 = 0; c0 < columns && yes; c0 += kTile)
        for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r)
          for (int64_t c = c0; c < std::min(columns, c0 + kTile); ++c)
            if (!f(r * columns + c, c * rows + r)) return yes.store(false);
  });
  return yes;
}

bool is_matrix(const Tensor& t) {
  return t.defined() && t.dtype() != DType::string && t.rank() == 2 && bits(t.dtype()) >= 8;
}

// f on an element type of the width of t's.
template <class F>
bool with_width(DType t, F&& f) {
  switch (bits(t)) {
    case 8:
      return f(uint8_t{});
    case 16:
      return f(uint16_t{});
    case 32:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

}  // namespace

Tensor transposed(const Tensor& matrix) {
  PELTON_CHECK(is_matrix(matrix), matrix.str());
  const int64_t rows = matrix.dims()[0], columns = matrix.dims()[1];
  Tensor out(matrix.dtype(), {columns, rows});
  with_width(matrix.dtype(), [&](auto width) {
    const auto* from = static_cast<const decltype(width)*>(matrix.data());
    auto* to = static_cast<decltype(width)*>(out.mutable_data());
    return each_pair(rows, columns, [&](int64_t i, int64_t j) { return to[j] = from[i], true; });
  });
  return out;
}

bool is_transpose(const Tensor& a, const Tensor& b) {
  if (!is_matrix(a) || !is_matrix(b) || a.dtype() != b.dtype() || a.dims()[0] != b.dims()[1] ||
      a.dims()[1] != b.dims()[0])
    return false;
  return with_width(a.dtype(), [&](auto width) {
    const auto* x = static_cast<const decltype(width)*>(a.data());
    const auto* y = static_cast<const decltype(width)*>(b.data());
    return each_pair(a.dims()[0], a.dims()[1], [&](int64_t i, int64_t j) { return x[i] == y[j]; });
  });
}

}  // namespace pelton
