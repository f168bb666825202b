// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tensor/float_types.h"

namespace pelton {
namespace {

constexpr size_t kAlignment = 64;

std::shared_ptr<void> allocate(int64_t bytes) {
  size_t rounded = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  void* p = std::aligned_alloc(kAlignment, rounded ? rounded : kAlignment);
  if (!p) fail(ErrorCode::out_of_memory, cat("cannot allocate ", bytes, " bytes for a tensor"));
  return {p, std::free};
}

uint32_t load_bits(const void* data, int width, int64_t i) {
  auto bytes = static_cast<const uint8_t*>(data);
  if (width == 8) return bytes[i];
  if (width == 16) {
    uint16_t v;
    std::memcpy(&v, bytes + 2 * i, 2);
    return v;
  }
  int64_t bit = i * width;
  return (bytes[bit / 8] >> (bit % 8)) & ((1u << width) - 1);
}
void store_bits(void* data, int width, int64_t i, uint32_t v) {
  auto bytes = static_cast<uint8_t*>(data);
  if (width == 8) {
    bytes[i] = static_cast<uint8_t>(v);
    return;
  }
  if (width == 16) {
    auto h = static_cast<uint16_t>(v);
    std::memcpy(bytes + 2 * i, &h, 2);
    return;
  }
  int64_t bit = i * width;
  uint32_t mask = ((1u << width) - 1) << (bit % 8);
  bytes[bit / 8] = static_cast<uint8_t>((bytes[bit / 8] & ~mask) | ((v << (bit % 8)) & mask));
}
template <class T>
T load(const void* data, int64_t i) {
  T v;
  std::memcpy(&v, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}
template <class T>
void store(void* data, int64_t i, T v) {
  std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
}
int64_t sign_extend(uint32_t v, int width) {
  return static_cast<int64_t>(static_cast<int32_t>(v << (32 - width)) >> (32 - width));
}
// Truncates towards zero and saturates; NaN becomes 0.
int64_t int_from_double(DType t, double v) {
  if (std::isnan(v)) return 0;
  if (t == DType::boolean) return v != 0;
  v = std::trunc(v);
  if (t == DType::u64) {
    if (v <= 0) return 0;
    if (v >= 18446744073709551616.0) return -1;
    return static_cast<int64_t>(static_cast<uint64_t>(v));
  }
  if (t == DType::i64) {
    if (v >= 9223372036854775808.0) return INT64_MAX;
    if (v <= -9223372036854775808.0) return INT64_MIN;
    return static_cast<int64_t>(v);
  }
  return static_cast<int64_t>(std::min(std::max(v, lowest(t)), highest(t)));
}

}  // namespace

Tensor::Tensor(DType dtype, Dims dims)
    : dims_(std::move(dims)), count_(element_count(dims_)), dtype_(dtype), owned_(true), defined_(true) {
  if (dtype == DType::string) {
    strings_ = std::make_shared<std::vector<std::string>>(static_cast<size_t>(count_));
    storage_ = strings_;
    return;
  }
  storage_ = allocate(byte_size(dtype, count_));
  data_ = storage_.get();
}

Tensor Tensor::zeros(DType dtype, Dims dims) {
  Tensor t(dtype, std::move(dims));
  if (dtype != DType::string) std::memset(const_cast<void*>(t.data_), 0, static_cast<size_t>(t.bytes()));
  return t;
}

Tensor Tensor::borrow(DType dtype, Dims dims, const void* bytes, std::shared_ptr<const void> keep_alive) {
  PELTON_CHECK(dtype != DType::string);
  Tensor t;
  t.dims_ = std::move(dims);
  t.count_ = element_count(t.dims_);
  t.dtype_ = dtype;
  t.data_ = bytes;
  t.storage_ = keep_alive ? std::move(keep_alive) : std::shared_ptr<const void>(bytes, [](const void*) {});
  t.defined_ = true;
  return t;
}

Tensor Tensor::of_strings(Dims dims, std::vector<std::string> values) {
  Tensor t(DType::string, std::move(dims));
  PELTON_CHECK(static_cast<int64_t>(values.size()) == t.count_);
  *t.strings_ = std::move(values);
  return t;
}

Tensor Tensor::full(DType dtype, Dims dims, double value) {
  Tensor t(dtype, std::move(dims));
  for (int64_t i = 0; i < t.count_; ++i) t.set_double(i, value);
  return t;
}

void* Tensor::mutable_data() {
  PELTON_CHECK(defined_ && dtype_ != DType::string);
  if (!owned_ || storage_.use_count() != 1) *this = clone();
  return const_cast<void*>(data_);
}

const std::vector<std::string>& Tensor::strings() const {
  PELTON_CHECK(strings_, str());
  return *strings_;
}
std::vector<std::string>& Tensor::mutable_strings() {
  PELTON_CHECK(strings_, str());
  if (storage_.use_count() > 2) *this = clone();  // strings_ and storage_ are two handles on one vector
  return *strings_;
}

Tensor Tensor::clone() const {
  Tensor t(dtype_, dims_);
  if (dtype_ == DType::string)
    *t.strings_ = *strings_;
  else if (count_)
    std::memcpy(const_cast<void*>(t.data_), data_, static_cast<size_t>(bytes()));
  return t;
}

Tensor Tensor::reshaped(Dims dims) const {
  PELTON_CHECK(element_count(dims) == count_, str(), " reshaped to ", dims);
  Tensor t = *this;
  t.dims_ = std::move(dims);
  return t;
}

bool Tensor::same_bytes(const Tensor& o) const {
  if (defined_ != o.defined_ || dtype_ != o.dtype_ || dims_ != o.dims_) return false;
  if (!defined_ || count_ == 0) return true;
  if (dtype_ == DType::string) return *strings_ == *o.strings_;
  if (!is_sub_byte(dtype_)) return std::memcmp(data_, o.data_, static_cast<size_t>(bytes())) == 0;
  for (int64_t i = 0; i < count_; ++i)
    if (load_bits(data_, bits(dtype_), i) != load_bits(o.data_, bits(dtype_), i)) return false;
  return true;
}

std::string Tensor::str() const {
  return cat(name(dtype_), dims_);
}

double Tensor::get_double(int64_t i) const {
  switch (dtype_) {
    case DType::f64:
      return load<double>(data_, i);
    case DType::f32:
      return static_cast<double>(load<float>(data_, i));
    case DType::bf16:
      return static_cast<double>(bf16_to_float(load<uint16_t>(data_, i)));
    case DType::u64:
      return static_cast<double>(load<uint64_t>(data_, i));
    default:
      break;
  }
  if (is_float(dtype_)) return small_float_to_double(dtype_, load_bits(data_, bits(dtype_), i));
  return static_cast<double>(get_int(i));
}

int64_t Tensor::get_int(int64_t i) const {
  switch (dtype_) {
    case DType::i64:
    case DType::u64:
      return load<int64_t>(data_, i);
    case DType::i32:
      return load<int32_t>(data_, i);
    case DType::u32:
      return load<uint32_t>(data_, i);
    case DType::i16:
      return load<int16_t>(data_, i);
    case DType::u16:
      return load<uint16_t>(data_, i);
    case DType::i8:
      return load<int8_t>(data_, i);
    case DType::u8:
      return load<uint8_t>(data_, i);
    case DType::boolean:
      return load<uint8_t>(data_, i) != 0;
    case DType::i4:
    case DType::i2:
      return sign_extend(load_bits(data_, bits(dtype_), i), bits(dtype_));
    case DType::u4:
    case DType::u2:
      return load_bits(data_, bits(dtype_), i);
    default:
      fail(ErrorCode::internal, cat(str(), " read as integers"));
  }
}

void Tensor::set_double(int64_t i, double v) {
  void* data = mutable_data();
  switch (dtype_) {
    case DType::f64:
      return store(data, i, v);
    case DType::f32:
      return store(data, i, static_cast<float>(v));
    default:
      break;
  }
  if (is_float(dtype_)) return store_bits(data, bits(dtype_), i, small_float_from_double(dtype_, v, false));
  set_int(i, int_from_double(dtype_, v));
}

void Tensor::set_int(int64_t i, int64_t v) {
  void* data = mutable_data();
  switch (bits(dtype_)) {
    case 64:
      return store(data, i, v);
    case 32:
      return store(data, i, static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(v))));
    default:
      if (dtype_ == DType::boolean) v = v != 0;
      return store_bits(data, bits(dtype_), i, static_cast<uint32_t>(static_cast<uint64_t>(v)));
  }
}

std::vector<double> to_doubles(const Tensor& t) {
  std::vector<double> out(static_cast<size_t>(t.count()));
  if (t.dtype() == DType::f32) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = load<float>(t.data(), static_cast<int64_t>(i));
    return out;
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = t.get_double(static_cast<int64_t>(i));
  return out;
}
std::vector<int64_t> to_ints(const Tensor& t) {
  std::vector<int64_t> out(static_cast<size_t>(t.count()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = t.get_int(static_cast<int64_t>(i));
  return out;
}
Tensor from_doubles(DType dtype, Dims dims, const std::vector<double>& values) {
  Tensor t = Tensor::zeros(dtype, std::move(dims));
  PELTON_CHECK(static_cast<int64_t>(values.size()) == t.count());
  for (size_t i = 0; i < values.size(); ++i) t.set_double(static_cast<int64_t>(i), values[i]);
  return t;
}
Tensor from_ints(DType dtype, Dims dims, const std::vector<int64_t>& values) {
  Tensor t = Tensor::zeros(dtype, std::move(dims));
  PELTON_CHECK(static_cast<int64_t>(values.size()) == t.count());
  for (size_t i = 0; i < values.size(); ++i) t.set_int(static_cast<int64_t>(i), values[i]);
  return t;
}

Dims row_major_strides(const Dims& dims) {
  Dims s(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    s[i] = step;
    step *= dims[i] > 0 ? dims[i] : 1;
  }
  return s;
}

}  // namespace pelton
