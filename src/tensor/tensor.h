// SPDX-License-Identifier: Apache-2.0
// Host tensors. A Tensor is a cheap handle: copies share storage, and whoever holds the only handle may
// write. Storage is either owned (64-byte aligned) or borrowed from something kept alive (a mapped file, a
// caller). Elements are dense in row-major order; sub-byte elements are packed from the low bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/dim.h"
#include "tensor/dtype.h"

namespace pelton {

class Tensor {
 public:
  Tensor() = default;              // "no tensor"; defined() is false
  Tensor(DType dtype, Dims dims);  // uninitialised; strings start empty
  static Tensor zeros(DType dtype, Dims dims);
  // Borrows `bytes` (byte_size(dtype, count) of them, any alignment); `keep_alive` owns them.
  static Tensor borrow(DType dtype, Dims dims, const void* bytes, std::shared_ptr<const void> keep_alive);
  static Tensor of_strings(Dims dims, std::vector<std::string> values);
  // Copies of C++ values: Tensor::from<float>({2, 2}, {1, 2, 3, 4}).
  template <class T>
  static Tensor from(Dims dims, const std::vector<T>& values);
  template <class T>
  static Tensor scalar(T value) {
    return from<T>({}, {value});
  }
  static Tensor full(DType dtype, Dims dims, double value);  // by set_double

  bool defined() const { return defined_; }
  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  int64_t count() const { return count_; }  // elements
  int64_t bytes() const { return byte_size(dtype_, count_); }
  const void* data() const { return data_; }
  void* mutable_data();  // copies first unless the only, owning handle
  template <class T>
  const T* as() const;  // checks the dtype
  template <class T>
  T* as_mutable();
  const std::vector<std::string>& strings() const;
  std::vector<std::string>& mutable_strings();

  // Element access for tests, reference code and small tensors; any dtype but string.
  double get_double(int64_t index) const;
  int64_t get_int(int64_t index) const;      // integers and bool; u64 keeps its bits
  void set_double(int64_t index, double v);  // rounds; integers truncate and saturate; NaN is 0
  void set_int(int64_t index, int64_t v);    // wraps to the width

  Tensor reshaped(Dims dims) const;  // same elements, shared storage
  Tensor clone() const;
  bool same_bytes(const Tensor& other) const;  // dtype, dims and every bit
  std::string str() const;                     // "f32[2,3]"

 private:
  std::shared_ptr<const void> storage_;
  std::shared_ptr<std::vector<std::string>> strings_;
  const void* data_ = nullptr;
  Dims dims_;
  int64_t count_ = 0;
  DType dtype_ = DType::f32;
  bool owned_ = false;
  bool defined_ = false;
};

// C++ type of a dtype: float, double, int64_t, ... bool; f16 and bf16 by tag structs holding bits.
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};
template <class T>
inline constexpr DType kDTypeOf = DType::string;
template <>
inline constexpr DType kDTypeOf<double> = DType::f64;
template <>
inline constexpr DType kDTypeOf<float> = DType::f32;
template <>
inline constexpr DType kDTypeOf<Half> = DType::f16;
template <>
inline constexpr DType kDTypeOf<Bfloat> = DType::bf16;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::i64;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::i32;
template <>
inline constexpr DType kDTypeOf<int16_t> = DType::i16;
template <>
inline constexpr DType kDTypeOf<int8_t> = DType::i8;
template <>
inline constexpr DType kDTypeOf<uint64_t> = DType::u64;
template <>
inline constexpr DType kDTypeOf<uint32_t> = DType::u32;
template <>
inline constexpr DType kDTypeOf<uint16_t> = DType::u16;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::u8;
template <>
inline constexpr DType kDTypeOf<bool> = DType::boolean;

template <class T>
const T* Tensor::as() const {
  PELTON_CHECK(dtype_ == kDTypeOf<T>, str(), " read as ", name(kDTypeOf<T>));
  return static_cast<const T*>(data_);
}
template <class T>
T* Tensor::as_mutable() {
  PELTON_CHECK(dtype_ == kDTypeOf<T>, str(), " written as ", name(kDTypeOf<T>));
  return static_cast<T*>(mutable_data());
}
template <class T>
Tensor Tensor::from(Dims dims, const std::vector<T>& values) {
  Tensor t(kDTypeOf<T>, std::move(dims));
  PELTON_CHECK(static_cast<int64_t>(values.size()) == t.count_, values.size(), " values for ", t.str());
  T* out = static_cast<T*>(t.mutable_data());
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return t;
}

// Whole-tensor conversions through one wide type (exact for every dtype they are used with).
std::vector<double> to_doubles(const Tensor& t);
std::vector<int64_t> to_ints(const Tensor& t);
Tensor from_doubles(DType dtype, Dims dims, const std::vector<double>& values);
Tensor from_ints(DType dtype, Dims dims, const std::vector<int64_t>& values);
Dims row_major_strides(const Dims& dims);  // in elements

}  // namespace pelton
