// SPDX-License-Identifier: Apache-2.0
#include "data/image/tile_writer.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "ir/image/simd.h"
#include "tensor/float_types.h"

namespace pelton::data {
using ir::kTileRows;
namespace {

// JFIF: full-range YCbCr.
constexpr ColourMatrix kToRgb = {1, 0,          1.402f,     -1.402f * 128,
                                 1, -0.344136f, -0.714136f, (0.344136f + 0.714136f) * 128,
                                 1, 1.772f,     0,          -1.772f * 128};

PELTON_CLONES void mix(float* a, float* b, float* c, int n, const ColourMatrix& m) {
  for (int i = 0; i < n; ++i) {
    const float x = a[i], y = b[i], z = c[i];
    a[i] = m[0] * x + m[1] * y + (m[2] * z + m[3]);
    b[i] = m[4] * x + m[5] * y + (m[6] * z + m[7]);
    c[i] = m[8] * x + m[9] * y + (m[10] * z + m[11]);
  }
}

inline float clamped_scaled(float v, float mean, float scale) {
  v = v < 0 ? 0 : v;
  v = v > 255 ? 255 : v;
  return (v - mean) * scale;
}

PELTON_CLONES void clamp_scale(float* a, int n, float mean, float scale) {
  for (int i = 0; i < n; ++i) a[i] = clamped_scaled(a[i], mean, scale);
}

// mix() and then clamp_scale() of each plane, in one pass.
PELTON_CLONES void mix_clamp_scale(float* __restrict a, float* __restrict b, float* __restrict c, int n,
                                   const ColourMatrix& matrix, const std::array<float, 4>& means,
                                   const std::array<float, 4>& scales) {
  const ColourMatrix m = matrix;
  const std::array<float, 4> mean = means, scale = scales;
  for (int i = 0; i < n; ++i) {
    const float x = a[i], y = b[i], z = c[i];
    a[i] = clamped_scaled(m[0] * x + m[1] * y + (m[2] * z + m[3]), mean[0], scale[0]);
    b[i] = clamped_scaled(m[4] * x + m[5] * y + (m[6] * z + m[7]), mean[1], scale[1]);
    c[i] = clamped_scaled(m[8] * x + m[9] * y + (m[10] * z + m[11]), mean[2], scale[2]);
  }
}

PELTON_CLONES void clamp_round(float* a, int n) {
  for (int i = 0; i < n; ++i) {
    float v = a[i] < 0 ? 0 : a[i];
    v = v > 255 ? 255 : v;
    a[i] = static_cast<float>(static_cast<int>(v + 0.5f));
  }
}

template <class T>
T as(float v);
template <>
float as(float v) {
  return v;
}
template <>
uint8_t as(float v) {
  return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v + 0.5f);
}

template <>
Half as(float v) {
  return {f16_from_float(v)};
}

#if defined(__x86_64__)
// 16 rows of 16 or 32 neighbouring values, which lie as blocks of 16 columns. Past the caches the output is
// 16-byte aligned.
template <bool kPastCaches>
__attribute__((target("avx,f16c"))) void halves_f16c(const float* blocks, int columns, Half* out,
                                                     ptrdiff_t pitch) {
  for (int r = 0; r < kTileRows; ++r, blocks += kTileRows, out += pitch)
    for (int i = 0; i < columns; i += 8) {
      const float* in = blocks + i / kTileRows * kTileRows * kTileRows + i % kTileRows;
      const __m128i v = _mm256_cvtps_ph(_mm256_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT);
      auto* to = reinterpret_cast<__m128i*>(out + i);
      if constexpr (kPastCaches)
        _mm_stream_si128(to, v);
      else
        _mm_storeu_si128(to, v);
    }
}

// Every CPU with AVX2 has F16C, which not all compilers can ask for.
bool has_f16c() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#endif

// 16 columns of a tile (in[x][16]) as 16 rows of 16.
void transpose16(const float* in, float* rows) {
#if defined(__SSE2__)
  for (int x = 0; x < kTileRows; x += 4)
    for (int r = 0; r < kTileRows; r += 4) {
      const float* from = in + x * kTileRows + r;
      __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + kTileRows),
             c = _mm_loadu_ps(from + 2 * kTileRows), d = _mm_loadu_ps(from + 3 * kTileRows);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      float* to = rows + r * kTileRows + x;
      _mm_storeu_ps(to, a);
      _mm_storeu_ps(to + kTileRows, b);
      _mm_storeu_ps(to + 2 * kTileRows, c);
      _mm_storeu_ps(to + 3 * kTileRows, d);
    }
#else
  for (int r = 0; r < kTileRows; ++r)
    for (int x = 0; x < kTileRows; ++x) rows[r * kTileRows + x] = in[x * kTileRows + r];
#endif
}

#if defined(__x86_64__)
// The same straight to 16 rows of the output, a cache line each; past the caches, then 16-byte aligned.
template <bool kPastCaches>
void store16(const float* in, float* out, ptrdiff_t pitch) {
  for (int r = 0; r < kTileRows; r += 4) {
    __m128 v[4][4];
    for (int g = 0; g < 4; ++g) {
      const float* from = in + g * 4 * kTileRows + r;
      for (int k = 0; k < 4; ++k) v[g][k] = _mm_loadu_ps(from + k * kTileRows);
      _MM_TRANSPOSE4_PS(v[g][0], v[g][1], v[g][2], v[g][3]);
    }
    for (int k = 0; k < 4; ++k)
      for (int g = 0; g < 4; ++g) {
        float* to = out + (r + k) * pitch + 4 * g;
        if constexpr (kPastCaches)
          _mm_stream_ps(to, v[g][k]);
        else
          _mm_storeu_ps(to, v[g][k]);
      }
  }
}
#endif

// Rows of a tile to rows of the output, `step` elements apart in a row and `pitch` from row to row.
template <class T>
void store_rows(const float* in, int n, int rows, T* out, ptrdiff_t pitch, int step, bool past_caches) {
  float block[kTileRows * kTileRows];
  for (int x = 0; x < n; x += kTileRows) {
    const int width = std::min(kTileRows, n - x);
#if defined(__x86_64__)
    if constexpr (std::is_same_v<T, float>) {
      if (width == kTileRows && rows == kTileRows && step == 1) {
        if (past_caches && reinterpret_cast<uintptr_t>(out + x) % 16 == 0 && pitch % 4 == 0)
          store16<true>(in + x * kTileRows, out + x, pitch);
        else
          store16<false>(in + x * kTileRows, out + x, pitch);
        continue;
      }
    }
    if constexpr (std::is_same_v<T, Half>) {
      if (width == kTileRows && rows == kTileRows && step == 1 && has_f16c()) {
        const int columns =
            n - x >= 2 * kTileRows ? 2 * kTileRows : kTileRows;  // a cache line, if there are so many
        float blocks[2 * kTileRows * kTileRows];
        for (int k = 0; k < columns; k += kTileRows)
          transpose16(in + (x + k) * kTileRows, blocks + k * kTileRows);
        if (past_caches && reinterpret_cast<uintptr_t>(out + x) % 16 == 0 && pitch % 8 == 0)
          halves_f16c<true>(blocks, columns, out + x, pitch);
        else
          halves_f16c<false>(blocks, columns, out + x, pitch);
        x += columns - kTileRows;
        continue;
      }
    }
#endif
    if (width == kTileRows) {
      transpose16(in + x * kTileRows, block);
    } else {
      for (int r = 0; r < rows; ++r)
        for (int k = 0; k < width; ++k) block[r * kTileRows + k] = in[(x + k) * kTileRows + r];
    }
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < width; ++k)
        out[r * pitch + ptrdiff_t{x + k} * step] = as<T>(block[r * kTileRows + k]);
  }
}

}  // namespace

TileWriter::TileWriter(const PixelFormat& format, const Geometry& g, int channels, void* out)
    : format_(format),
      channels_(channels),
      n_(g.x.n),
      left_(g.left),
      top_(g.top),
      width_(g.out_width),
      height_(g.out_height),
      swap_(g.swap),
      out_(out) {}

void TileWriter::set_matrix(const ColourMatrix* m, bool to_rgb, bool round) {
  mix_ = m || to_rgb;
  round_ = round;
  if (m && to_rgb)
    matrix_ = multiply(*m, kToRgb);
  else if (mix_)
    matrix_ = m ? *m : kToRgb;
}

void TileWriter::fill(std::array<uint8_t, 3> fill) {
  const int64_t pixels = int64_t{width_} * height_;
  for (int64_t i = 0; i < pixels; ++i)
    for (int c = 0; c < channels_; ++c) {
      const size_t k = static_cast<size_t>(c);
      const float v = (static_cast<float>(fill[k]) - format_.mean[k]) * format_.scale[k];
      const int64_t at = format_.channels_first ? c * pixels + i : i * channels_ + c;
      if (format_.dtype == DType::f32)
        static_cast<float*>(out_)[at] = v;
      else if (format_.dtype == DType::f16)
        static_cast<Half*>(out_)[at] = as<Half>(v);
      else
        static_cast<uint8_t*>(out_)[at] = fill[k];
    }
}

template <class T>
void TileWriter::store(const float* tile, int y, int rows) {
  T* out = static_cast<T*>(out_);
  const ptrdiff_t pixels = ptrdiff_t{width_} * height_;
  for (int c = 0; c < channels_; ++c) {
    const float* in = tile + ptrdiff_t{c} * n_ * kTileRows;
    T* plane = out + (format_.channels_first ? c * pixels : c);
    const int step = format_.channels_first ? 1 : channels_;
    if (swap_) {  // tile rows are output columns
      for (int x = 0; x < n_; ++x) {
        T* o = plane + (ptrdiff_t{top_ + x} * width_ + left_ + y) * step;
        for (int r = 0; r < rows; ++r) o[r * step] = as<T>(in[x * kTileRows + r]);
      }
    } else {
      store_rows(in, n_, rows, plane + (ptrdiff_t{top_ + y} * width_ + left_) * step,
                 ptrdiff_t{width_} * step, step, format_.past_caches);
    }
  }
}

void TileWriter::write(float* tile, int y, int rows) {
  const int plane = n_ * kTileRows;
  const bool raw = format_.dtype == DType::u8, at_once = mix_ && channels_ == 3 && !round_ && !raw;
  if (at_once)
    mix_clamp_scale(tile, tile + plane, tile + 2 * plane, plane, matrix_, format_.mean, format_.scale);
  else if (mix_ && channels_ == 3)
    mix(tile, tile + plane, tile + 2 * plane, plane, matrix_);
  else if (mix_)
    for (int i = 0; i < plane; ++i) tile[i] = (matrix_[0] + matrix_[1] + matrix_[2]) * tile[i] + matrix_[3];
  for (int c = 0; c < channels_ && !at_once; ++c) {
    const size_t k = static_cast<size_t>(c);
    if (round_) clamp_round(tile + c * plane, plane);
    if (!raw) clamp_scale(tile + c * plane, plane, format_.mean[k], format_.scale[k]);
  }
  if (format_.dtype == DType::f32)
    store<float>(tile, y, rows);
  else if (format_.dtype == DType::f16)
    store<Half>(tile, y, rows);
  else
    store<uint8_t>(tile, y, rows);
#if defined(__x86_64__)
  if (format_.past_caches) _mm_sfence();  // before another thread is told
#endif
}

}  // namespace pelton::data
