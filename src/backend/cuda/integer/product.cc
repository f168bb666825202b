// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/integer/product.h"

#include <algorithm>

#include "backend/cuda/aligned.h"
#include "base/log.h"

namespace pelton::backend::cuda {
namespace {

constexpr int64_t kMostRowBytes = 64 << 20;  // of windows at a time

int64_t in_fours(int64_t v) {
  return (v + 3) / 4 * 4;
}

// The data as they lie are the rows of the product.
bool is_rows(const IntegerConv& f) {
  if (!f.x.has_sign || !f.x_last || f.taps() != 1 || f.c % 16 != 0) return false;
  for (int a = 0; a < 3; ++a)
    if (f.in[a] != f.out[a] || f.stride[a] != 1 || f.low[a] != 0) return false;
  return true;
}

// Weights less their zero point as rows of `width` bytes, taps outside and channels inside; `sums`: of each
// row. False: some are no signed byte.
bool pack(const IntegerConv& f, const Tensor& w, bool columns, int64_t zero, int width,
          std::vector<int8_t>& rows, std::vector<int64_t>& sums) {
  const int taps = f.taps();
  rows.assign(static_cast<size_t>(f.k) * static_cast<size_t>(width), 0);
  sums.assign(static_cast<size_t>(f.k), 0);
  for (int64_t k = 0; k < f.k; ++k)
    for (int64_t c = 0; c < f.c; ++c)
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t v = w.get_int(columns ? c * f.k + k : (k * f.c + c) * taps + tap) - zero;
        if (v < INT8_MIN || v > INT8_MAX) return false;
        rows[static_cast<size_t>(k * width + tap * f.c + c)] = static_cast<int8_t>(v);
        sums[static_cast<size_t>(k)] += v;
      }
  return true;
}

}  // namespace

std::unique_ptr<IntegerProduct> IntegerProduct::make(const IntegerConv& form, const Tensor& weights,
                                                     bool columns, int64_t x_zero, int64_t w_zero,
                                                     const Tensor& bias) {
  const int64_t places = form.places();
  // The library wants sizes of multiples of four; only rows of channels-last data are filled up.
  if (form.k % 4 != 0 || (!form.y_last && places % 4 != 0) || form.n * places > INT32_MAX - 4) return nullptr;
  std::unique_ptr<IntegerProduct> p(new IntegerProduct);
  p->form_ = form;
  p->windows_ = !is_rows(form) || (form.y_last && form.n * places % 4 != 0);
  const int64_t depth = int64_t{1} * form.c * form.taps();
  if (depth > INT32_MAX / 2) return nullptr;
  p->width_ = static_cast<int>((depth + 15) / 16 * 16);
  p->pad_ = static_cast<int8_t>(x_zero - (form.x.has_sign ? 0 : 128));
  std::vector<int8_t> rows;
  std::vector<int64_t> sums;
  if (!pack(form, weights, columns, w_zero, p->width_, rows, sums)) return nullptr;

  p->images_ = form.n;
  if (p->windows_)
    while (p->images_ > 1 && (p->images_ * places * p->width_ > kMostRowBytes || form.n % p->images_ != 0))
      --p->images_;
  p->apart_ = form.y_last && p->images_ * places % 4 != 0;
  MatmulProblem m;
  m.in = DType::i8;
  m.out = DType::i32;
  m.k = p->width_;
  m.transpose_b = true;
  if (form.y_last) {
    m.m = p->rows();
    m.n = form.k;
  } else {
    m.m = form.k;
    m.n = places;
    m.batch = p->images_;
    m.stride_b = places * p->width_;
    m.stride_d = form.k * places;
  }
  try {
    p->call_ = MatmulCall::make(m);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::driver) throw;
    log_debug(cat("no integer product: ", e.message()));
  }
  if (!p->call_) return nullptr;

  p->weights_ =
      shared_packed(weights, cat("integer rows ", p->width_, " ", form.taps(), columns, w_zero),
                    [&] { return upload(rows.data(), static_cast<int64_t>(rows.size()), "weights"); });
  std::vector<int32_t> add;
  bool adds = false;
  for (int64_t k = 0; k < form.k; ++k) {
    const int64_t b = bias.defined() ? bias.get_int(k) : 0;
    add.push_back(static_cast<int32_t>(b - p->pad_ * sums[static_cast<size_t>(k)]));
    adds |= add.back() != 0;
  }
  if (adds)
    p->add_ = std::make_shared<DeviceBuffer>(
        upload(add.data(), static_cast<int64_t>(add.size() * sizeof(int32_t)), "sums of weights"));
  return p;
}

int64_t IntegerProduct::rows() const {
  return form_.y_last ? in_fours(images_ * form_.places()) : images_ * form_.places();
}
int64_t IntegerProduct::workspace_bytes() const {
  return aligned(call_->workspace_bytes());
}
int64_t IntegerProduct::row_bytes() const {
  return windows_ ? aligned(rows() * width_) : 0;
}
int64_t IntegerProduct::sum_bytes() const {
  return apart_ ? aligned(rows() * form_.k * static_cast<int64_t>(sizeof(int32_t))) : 0;
}

std::vector<Packed> IntegerProduct::packed() const {
  std::vector<Packed> out{weights_};
  if (add_) out.push_back(add_);
  return out;
}

void IntegerProduct::run(const void* x, int32_t* y, void* scratch, cudaStream_t stream) const {
  IntegerConv f = form_;
  f.x.data = x;
  const int64_t places = f.places();
  auto* const rows = static_cast<int8_t*>(scratch) + workspace_bytes();
  auto* const sums = reinterpret_cast<int32_t*>(rows + row_bytes());
  for (int first = 0; first < f.n; first += images_) {
    const void* data = rows;
    if (windows_)
      PELTON_CUDA(integer_windows(f, first, images_, width_, pad_, rows, stream));
    else
      data = static_cast<const int8_t*>(x) + first * places * width_;
    int32_t* const result = y + first * places * f.k;
    int32_t* const to = apart_ ? sums : result;
    if (f.y_last)
      call_->run(data, weights_->get(), nullptr, to, nullptr, scratch, stream);
    else
      call_->run(weights_->get(), data, nullptr, to, nullptr, scratch, stream);
    if (add_ || apart_)
      PELTON_CUDA(integer_add(result, to, add_ ? add_->as<int32_t>() : nullptr, images_, f.k, places,
                              f.y_last, stream));
  }
}

}  // namespace pelton::backend::cuda
