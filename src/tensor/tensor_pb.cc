// SPDX-License-Identifier: Apache-2.0
// TensorProto: its fields, its elements, and back.
#include "tensor/tensor_pb.h"

#include <algorithm>
#include <cstring>

#include "tensor/tensor_pb_messages.h"

namespace pelton {

namespace {

using wire::Reader;
using wire::Span;

size_t total_size(const std::vector<std::string_view>& pieces) {
  size_t n = 0;
  for (std::string_view p : pieces) n += p.size();
  return n;
}

// Elements of float_data or double_data: fixed width, little endian.
Tensor from_fixed(DType dtype, const Dims& dims, const std::vector<std::string_view>& pieces,
                  const std::shared_ptr<const void>& owner) {
  auto need = static_cast<size_t>(byte_size(dtype, element_count(dims)));
  if (total_size(pieces) != need)
    fail(ErrorCode::bad_format,
         cat("holds ", total_size(pieces), " bytes of numbers where its shape ", dims, " needs ", need));
  size_t align = static_cast<size_t>(bits(dtype)) / 8;
  if (owner && pieces.size() == 1 && reinterpret_cast<uintptr_t>(pieces[0].data()) % align == 0)
    return Tensor::borrow(dtype, dims, pieces[0].data(), owner);
  Tensor t(dtype, dims);
  char* out = static_cast<char*>(t.mutable_data());
  for (std::string_view p : pieces) {
    if (!p.empty()) std::memcpy(out, p.data(), p.size());
    out += p.size();
  }
  return t;
}

// Elements of int32_data, int64_data or uint64_data. Types below 32 bits are stored by bit pattern, sub-byte
// types one packed byte an element.
Tensor from_varints(DType dtype, const Dims& dims, const std::vector<std::string_view>& pieces) {
  std::vector<int64_t> v;
  for (std::string_view p : pieces) wire::append_varints(p, v);
  int64_t need = is_sub_byte(dtype) ? byte_size(dtype, element_count(dims)) : element_count(dims);
  if (static_cast<int64_t>(v.size()) != need)
    fail(ErrorCode::bad_format, cat("holds ", v.size(), " numbers where its shape ", dims, " needs ", need));
  Tensor t(dtype, dims);
  auto* out = static_cast<char*>(t.mutable_data());
  size_t width = is_sub_byte(dtype) ? 1 : static_cast<size_t>(bits(dtype)) / 8;
  for (size_t i = 0; i < v.size(); ++i) {
    int64_t x = dtype == DType::boolean ? v[i] != 0 : v[i];
    std::memcpy(out + i * width, &x, width);
  }
  return t;
}

// Misaligned tensors up to this size are copied; larger ones stay in the file, so that reading a model takes
// little memory whatever its size.
constexpr int64_t kCopyLimitBytes = 1 << 20;

// The format has five keys; an entry takes 16 times the bytes that it has in the file.
constexpr size_t kMaxExternal = 16;

Tensor from_raw(DType dtype, const Dims& dims, std::string_view raw,
                const std::shared_ptr<const void>& owner) {
  int64_t need = byte_size(dtype, element_count(dims));
  if (static_cast<int64_t>(raw.size()) != need)
    fail(ErrorCode::bad_format,
         cat("holds ", raw.size(), " bytes where ", name(dtype), dims, " needs ", need));
  size_t align = std::max<size_t>(1, static_cast<size_t>(bits(dtype)) / 8);
  bool aligned = reinterpret_cast<uintptr_t>(raw.data()) % align == 0;
  if (owner && (aligned || need > kCopyLimitBytes)) return Tensor::borrow(dtype, dims, raw.data(), owner);
  Tensor t(dtype, dims);
  if (!raw.empty()) std::memcpy(t.mutable_data(), raw.data(), raw.size());
  return t;
}

Tensor decode(const TensorView& view, const std::shared_ptr<const void>& owner, ExternalSource* external) {
  auto dtype = dtype_from_onnx(view.data_type);
  if (!dtype)
    fail(ErrorCode::bad_type, cat("element type ", onnx_type_name(view.data_type), " is not supported"));
  Dims dims = view.dims;
  for (int64_t d : dims)
    if (d < 0) fail(ErrorCode::bad_shape, cat("has a negative size in its shape ", dims));
  if (onnx_is_complex(view.data_type)) dims.push_back(2);
  if (*dtype == DType::string) {
    if (static_cast<int64_t>(view.strings.size()) != element_count(dims))
      fail(ErrorCode::bad_format, cat("holds ", view.strings.size(), " strings where its shape is ", dims));
    return Tensor::of_strings(dims, {view.strings.begin(), view.strings.end()});
  }
  if (view.external) {
    if (!external) fail(ErrorCode::not_found, "keeps its data in another file, which is not allowed here");
    ExternalBytes found = external->open(view);
    return from_raw(*dtype, dims, found.bytes, found.owner);
  }
  if (view.has_raw) return from_raw(*dtype, dims, view.raw, owner);
  if (*dtype == DType::f32) return from_fixed(*dtype, dims, view.floats, owner);
  if (*dtype == DType::f64) return from_fixed(*dtype, dims, view.doubles, owner);
  return from_varints(*dtype, dims, view.ints);
}

}  // namespace

TensorView parse_tensor_proto(Span message) {
  TensorView t;
  t.offset = message.offset();
  Reader r(message, pb::tensor_proto());
  while (uint32_t field = r.next()) switch (field) {
      case pb::TensorProto::dims:
        r.append_to(t.dims);
        break;
      case pb::TensorProto::data_type:
        t.data_type = r.integer();
        break;
      case pb::TensorProto::segment:
        r.refuse(ErrorCode::bad_format, "tensors in segments are not supported");
      case pb::TensorProto::float_data:
        t.floats.push_back(r.text());
        break;
      case pb::TensorProto::double_data:
        t.doubles.push_back(r.text());
        break;
      case pb::TensorProto::int32_data:
      case pb::TensorProto::int64_data:
      case pb::TensorProto::uint64_data:
        t.ints.push_back(r.text());
        break;
      case pb::TensorProto::string_data:
        t.strings.push_back(r.text());
        break;
      case pb::TensorProto::name:
        t.name = r.text();
        break;
      case pb::TensorProto::raw_data:
        t.has_raw = true;
        t.raw = r.text();
        break;
      case pb::TensorProto::external_data:
        if (t.external_data.size() == kMaxExternal)
          r.refuse(ErrorCode::limit,
                   cat("a tensor has more than ", kMaxExternal, " entries of external data"));
        t.external_data.push_back(pb::parse_entry(r.message()));
        break;
      case pb::TensorProto::data_location:
        if (r.integer() != 0 && r.integer() != 1)
          r.refuse(ErrorCode::bad_format, cat("data location ", r.integer(), " is neither 0 nor 1"));
        t.external = r.integer() == 1;
        break;
    }
  return t;
}

Tensor to_tensor(const TensorView& view, std::shared_ptr<const void> owner, ExternalSource* external) {
  return with_place(cat("tensor '", view.name, "' at byte ", view.offset),
                    [&] { return decode(view, owner, external); });
}

std::string write_tensor_proto(const Tensor& tensor, std::string_view name) {
  wire::Writer w;
  w.ints(pb::TensorProto::dims, tensor.dims());
  w.integer(pb::TensorProto::data_type, onnx_from_dtype(tensor.dtype()));
  if (tensor.dtype() == DType::string) {
    for (const std::string& s : tensor.strings()) w.bytes(pb::TensorProto::string_data, s);
  }
  if (!name.empty()) w.bytes(pb::TensorProto::name, name);
  if (tensor.dtype() != DType::string)
    w.bytes(pb::TensorProto::raw_data,
            {static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes())});
  return w.take();
}

}  // namespace pelton
