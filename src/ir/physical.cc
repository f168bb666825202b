// SPDX-License-Identifier: Apache-2.0
#include "ir/physical.h"

#include <cstring>
#include <memory>

namespace pelton::ir {
namespace {

// f(logical element, physical element) for every element of [N, C, spatial...].
template <class F>
void each(const Dims& dims, const Layout& layout, F&& f) {
  int64_t n = dims[0], c = dims[1], spatial = 1;
  for (size_t i = 2; i < dims.size(); ++i) spatial *= dims[i];
  int64_t block = layout.kind == Layout::Kind::blocked ? layout.block : c;
  int64_t blocks = block > 0 ? (c + block - 1) / block : 0;
  for (int64_t in = 0; in < n; ++in)
    for (int64_t ic = 0; ic < c; ++ic)
      for (int64_t s = 0; s < spatial; ++s)
        f((in * c + ic) * spatial + s, ((in * blocks + ic / block) * spatial + s) * block + ic % block);
}

}  // namespace

Tensor to_physical(const Tensor& plain, const Layout& layout) {
  if (layout.is_plain()) return plain;
  Type type = Type::tensor(plain.dtype(), to_shape(plain.dims()));
  type.layout = layout;
  auto bytes = std::make_shared<Tensor>(Tensor::zeros(DType::u8, {physical_bytes(type, plain.dims())}));
  auto to = static_cast<char*>(bytes->mutable_data());
  auto from = static_cast<const char*>(plain.data());
  auto size = static_cast<int64_t>(bits(plain.dtype()) / 8);
  PELTON_CHECK(size > 0, plain.str());
  each(plain.dims(), layout, [&](int64_t logical, int64_t physical) {
    std::memcpy(to + physical * size, from + logical * size, static_cast<size_t>(size));
  });
  return Tensor::borrow(plain.dtype(), plain.dims(), bytes->data(), bytes);
}

Tensor from_physical(const Tensor& physical, DType dtype, const Dims& dims, const Layout& layout) {
  if (layout.is_plain()) return physical;
  Tensor out(dtype, dims);
  auto to = static_cast<char*>(out.mutable_data());
  auto from = static_cast<const char*>(physical.data());
  auto size = static_cast<int64_t>(bits(dtype) / 8);
  PELTON_CHECK(size > 0, out.str());
  each(dims, layout, [&](int64_t logical, int64_t place) {
    std::memcpy(to + logical * size, from + place * size, static_cast<size_t>(size));
  });
  return out;
}

}  // namespace pelton::ir
