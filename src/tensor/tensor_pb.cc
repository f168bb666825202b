// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor_pb.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/file.h"
#include "tensor/tensor_pb_messages.h"

namespace pelton {
namespace {

using wire::Reader;
using wire::Span;

struct OnnxType {
  int64_t number;
  std::string_view name;
  std::optional<DType> dtype;
};
constexpr std::array<OnnxType, 29> kTypes = {{
    {0, "undefined", {}},
    {1, "float32", DType::f32},
    {2, "uint8", DType::u8},
    {3, "int8", DType::i8},
    {4, "uint16", DType::u16},
    {5, "int16", DType::i16},
    {6, "int32", DType::i32},
    {7, "int64", DType::i64},
    {8, "string", DType::string},
    {9, "bool", DType::boolean},
    {10, "float16", DType::f16},
    {11, "float64", DType::f64},
    {12, "uint32", DType::u32},
    {13, "uint64", DType::u64},
    {14, "complex64", DType::f32},
    {15, "complex128", DType::f64},
    {16, "bfloat16", DType::bf16},
    {17, "float8e4m3fn", DType::f8e4m3fn},
    {18, "float8e4m3fnuz", DType::f8e4m3fnuz},
    {19, "float8e5m2", DType::f8e5m2},
    {20, "float8e5m2fnuz", DType::f8e5m2fnuz},
    {21, "uint4", DType::u4},
    {22, "int4", DType::i4},
    {23, "float4e2m1", DType::f4e2m1},
    {24, "float8e8m0", DType::f8e8m0},
    {25, "uint2", DType::u2},
    {26, "int2", DType::i2},
    {27, "float6e2m3", {}},
    {28, "float6e3m2", {}},
}};

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

PbValue parse_value(Span message, PbValue::Kind kind, const std::shared_ptr<const void>& owner);

PbValue tensor_value(Span message, const std::shared_ptr<const void>& owner) {
  TensorView view = parse_tensor_proto(message);
  return {PbValue::Kind::tensor, std::string(view.name), to_tensor(view, owner), {}};
}
PbValue sparse_value(Span message, const std::shared_ptr<const void>& owner) {
  PbValue v;
  v.tensor = sparse_to_tensor(message, owner);
  return v;
}

PbValue sequence_value(Span message, const std::shared_ptr<const void>& owner) {
  PbValue out{PbValue::Kind::sequence, {}, {}, {}};
  Reader r(message, pb::sequence_proto());
  while (uint32_t field = r.next()) switch (field) {
      case pb::SequenceProto::name:
        out.name = r.text();
        break;
      case pb::SequenceProto::tensor_values:
        out.items.push_back(tensor_value(r.message(), owner));
        break;
      case pb::SequenceProto::sparse_tensor_values:
        out.items.push_back(sparse_value(r.message(), owner));
        break;
      case pb::SequenceProto::sequence_values:
        out.items.push_back(parse_value(r.message(), PbValue::Kind::sequence, owner));
        break;
      case pb::SequenceProto::map_values:
        out.items.push_back(parse_value(r.message(), PbValue::Kind::map, owner));
        break;
      case pb::SequenceProto::optional_values:
        out.items.push_back(parse_value(r.message(), PbValue::Kind::optional, owner));
        break;
    }
  return out;
}

PbValue optional_value(Span message, const std::shared_ptr<const void>& owner) {
  PbValue out{PbValue::Kind::optional, {}, {}, {}};
  Reader r(message, pb::optional_proto());
  while (uint32_t field = r.next()) switch (field) {
      case pb::OptionalProto::name:
        out.name = r.text();
        break;
      case pb::OptionalProto::tensor_value:
        out.items = {tensor_value(r.message(), owner)};
        break;
      case pb::OptionalProto::sparse_tensor_value:
        out.items = {sparse_value(r.message(), owner)};
        break;
      case pb::OptionalProto::sequence_value:
        out.items = {parse_value(r.message(), PbValue::Kind::sequence, owner)};
        break;
      case pb::OptionalProto::map_value:
        out.items = {parse_value(r.message(), PbValue::Kind::map, owner)};
        break;
      case pb::OptionalProto::optional_value:
        out.items = {parse_value(r.message(), PbValue::Kind::optional, owner)};
        break;
    }
  return out;
}

PbValue map_value(Span message, const std::shared_ptr<const void>& owner) {
  PbValue out{PbValue::Kind::map, {}, {}, {}};
  std::vector<int64_t> keys;
  std::vector<std::string> string_keys;
  Reader r(message, pb::map_proto());
  while (uint32_t field = r.next()) switch (field) {
      case pb::MapProto::name:
        out.name = r.text();
        break;
      case pb::MapProto::keys:
        r.append_to(keys);
        break;
      case pb::MapProto::string_keys:
        string_keys.emplace_back(r.text());
        break;
      case pb::MapProto::values:
        out.items = sequence_value(r.message(), owner).items;
        break;
    }
  size_t count = std::max(keys.size(), string_keys.size());
  if (count != out.items.size() || (!keys.empty() && !string_keys.empty()))
    fail(ErrorCode::bad_format, cat("a map of ", count, " keys and ", out.items.size(), " values"),
         cat("MapProto at byte ", message.offset()));
  auto n = static_cast<int64_t>(count);
  out.tensor =
      keys.empty() ? Tensor::of_strings({n}, std::move(string_keys)) : Tensor::from<int64_t>({n}, keys);
  return out;
}

PbValue parse_value(Span message, PbValue::Kind kind, const std::shared_ptr<const void>& owner) {
  switch (kind) {
    case PbValue::Kind::tensor:
      return tensor_value(message, owner);
    case PbValue::Kind::sequence:
      return sequence_value(message, owner);
    case PbValue::Kind::optional:
      return optional_value(message, owner);
    case PbValue::Kind::map:
      return map_value(message, owner);
  }
  return {};
}

}  // namespace

std::optional<DType> dtype_from_onnx(int64_t data_type) {
  if (data_type < 0 || data_type >= static_cast<int64_t>(kTypes.size())) return {};
  return kTypes[static_cast<size_t>(data_type)].dtype;
}
int onnx_from_dtype(DType t) {
  for (const OnnxType& row : kTypes)
    if (row.dtype == t) return static_cast<int>(row.number);
  PELTON_CHECK(false, name(t));
  return 0;
}
bool onnx_is_complex(int64_t data_type) {
  return data_type == 14 || data_type == 15;
}
std::string onnx_type_name(int64_t data_type) {
  if (data_type < 0 || data_type >= static_cast<int64_t>(kTypes.size())) return cat("type ", data_type);
  return std::string(kTypes[static_cast<size_t>(data_type)].name);
}

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

Tensor sparse_to_tensor(Span message, std::shared_ptr<const void> owner, std::string_view* name_out) {
  TensorView values, indices;
  Dims dims;
  Reader r(message, pb::sparse_tensor_proto());
  while (uint32_t field = r.next()) switch (field) {
      case pb::SparseTensorProto::values:
        values = parse_tensor_proto(r.message());
        break;
      case pb::SparseTensorProto::indices:
        indices = parse_tensor_proto(r.message());
        break;
      case pb::SparseTensorProto::dims:
        r.append_to(dims);
        break;
    }
  if (name_out) *name_out = values.name;
  return with_place(cat("sparse tensor '", values.name, "'"), [&] {
    Tensor v = to_tensor(values, owner), at = to_tensor(indices, owner);
    if (v.dtype() == DType::string || is_sub_byte(v.dtype()))
      fail(ErrorCode::bad_type, cat("a sparse tensor of ", name(v.dtype()), " is not supported"));
    auto rank = static_cast<int64_t>(dims.size());
    bool linear = at.rank() == 1;
    if (at.dtype() != DType::i64 || v.rank() != 1 || at.rank() < 1 || at.rank() > 2 ||
        at.dims()[0] != v.count() || (!linear && at.dims()[1] != rank))
      fail(ErrorCode::bad_format, cat("values ", v.str(), " with indices ", at.str(), " for shape ", dims));
    int64_t count = element_count(dims);
    if (byte_size(v.dtype(), count) > (int64_t{1} << 30))
      fail(ErrorCode::limit, cat("dense form of shape ", dims, " is over 1 GiB"));
    Tensor out = Tensor::zeros(v.dtype(), dims);
    auto* to = static_cast<char*>(out.mutable_data());
    auto width = static_cast<int64_t>(bits(v.dtype()) / 8);
    for (int64_t i = 0; i < v.count(); ++i) {
      int64_t flat = linear ? at.get_int(i) : 0;
      for (int64_t d = 0; !linear && d < rank; ++d) {
        int64_t k = at.get_int(i * rank + d), size = dims[static_cast<size_t>(d)];
        if (k < 0 || k >= size)
          fail(ErrorCode::bad_format, cat("index ", k, " outside a dimension of ", size));
        flat = flat * size + k;
      }
      if (flat < 0 || flat >= count)
        fail(ErrorCode::bad_format, cat("index ", flat, " outside ", count, " elements"));
      std::memcpy(to + flat * width, static_cast<const char*>(v.data()) + i * width,
                  static_cast<size_t>(width));
    }
    return out;
  });
}

PbValue parse_pb_value(std::string_view file, PbValue::Kind kind, std::shared_ptr<const void> owner) {
  return parse_value(wire::whole(file), kind, owner);
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

Tensor load_pb_tensor(const std::string& path) {
  return with_place(path, [&] {
    auto bytes = std::make_shared<std::string>(read_file(path));
    return parse_pb_value(*bytes, PbValue::Kind::tensor, bytes).tensor;
  });
}
void save_pb_tensor(const std::string& path, const Tensor& tensor, std::string_view name) {
  write_file(path, write_tensor_proto(tensor, name));
}

}  // namespace pelton
