// SPDX-License-Identifier: Apache-2.0
#include "serve/core/join.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "tensor/float_types.h"

namespace pelton::serve {
namespace {

int64_t elements(const TensorValue& t) {
  int64_t n = 1;
  for (int64_t d : t.dims) n *= d;
  return n;
}

// One element of type `t` with the value v.
std::string element_bytes(DType t, double v) {
  switch (t) {
    case DType::boolean:
      return bytes_of(static_cast<uint8_t>(v != 0));
    case DType::u8:
      return bytes_of(static_cast<uint8_t>(v));
    case DType::u16:
      return bytes_of(static_cast<uint16_t>(v));
    case DType::u32:
      return bytes_of(static_cast<uint32_t>(v));
    case DType::u64:
      return bytes_of(static_cast<uint64_t>(v));
    case DType::i8:
      return bytes_of(static_cast<int8_t>(v));
    case DType::i16:
      return bytes_of(static_cast<int16_t>(v));
    case DType::i32:
      return bytes_of(static_cast<int32_t>(v));
    case DType::i64:
      return bytes_of(static_cast<int64_t>(v));
    case DType::f16:
      return bytes_of(f16_from_float(static_cast<float>(v)));
    case DType::bf16:
      return bytes_of(bf16_from_float(static_cast<float>(v)));
    case DType::f64:
      return bytes_of(v);
    default:
      return bytes_of(static_cast<float>(v));
  }
}

// Copies the block `from` of shape dims[k..] to the corner of a block of shape outer[k..].
void copy_corner(const char* from, const Dims& dims, char* to, const Dims& outer, size_t k, size_t width) {
  if (k + 1 >= dims.size()) {
    std::memcpy(to, from, static_cast<size_t>(k < dims.size() ? dims[k] : 1) * width);
    return;
  }
  size_t step = width, outer_step = width;
  for (size_t i = k + 1; i < dims.size(); ++i)
    step *= static_cast<size_t>(dims[i]), outer_step *= static_cast<size_t>(outer[i]);
  for (int64_t i = 0; i < dims[k]; ++i)
    copy_corner(from + static_cast<size_t>(i) * step, dims, to + static_cast<size_t>(i) * outer_step, outer,
                k + 1, width);
}

const TensorValue& input_of(const RequestPtr& r, const std::string& name) {
  const TensorValue* t = r->input(name);
  if (!t) fail(ErrorCode::bad_name, cat("input '", name, "' is missing in a request of the batch"), r->model);
  return *t;
}

// Of several requests with as many dimensions each: the largest of each.
Dims outer_dims(std::span<const RequestPtr> requests, const std::string& name) {
  Dims outer = input_of(requests[0], name).dims;
  for (const RequestPtr& r : requests) {
    const Dims& d = input_of(r, name).dims;
    for (size_t i = 1; i < d.size(); ++i) outer[i] = std::max(outer[i], d[i]);
  }
  return outer;
}

}  // namespace

bool can_share(const ModelConfig& config, const Request& a, const Request& b) {
  if (a.inputs.size() != b.inputs.size()) return false;
  for (const TensorValue& t : a.inputs) {
    const TensorValue* u = b.input(t.name);
    if (!u || t.dtype != u->dtype || t.dims.size() != u->dims.size()) return false;
    if (t.dims.empty() || std::equal(t.dims.begin() + 1, t.dims.end(), u->dims.begin() + 1)) continue;
    const TensorSpec* spec = config.input(t.name);
    if (!spec || !spec->ragged) return false;
  }
  return true;
}

TensorValue join_rows(std::span<const RequestPtr> requests, const std::string& name, int64_t rows) {
  const TensorValue& first = input_of(requests[0], name);
  if (requests.size() == 1) return first;
  size_t size = 0;
  for (const RequestPtr& r : requests) size += input_of(r, name).data.size;
  auto memory = allocate_bytes(size);
  size_t at = 0;
  for (const RequestPtr& r : requests) {
    const Blob& b = r->input(name)->data;
    if (b.size) std::memcpy(memory.get() + at, b.data, b.size);
    at += b.size;
  }
  TensorValue joined{first.name, first.dtype, first.dims, {memory.get(), size, memory}};
  joined.dims[0] = rows;
  return joined;
}

TensorValue join_flat(std::span<const RequestPtr> requests, const std::string& name) {
  int64_t total = 0;
  for (const RequestPtr& r : requests) total += elements(input_of(r, name));
  TensorValue t = join_rows(requests, name, 1);
  t.dims = {total};
  return t;
}

std::optional<size_t> padded_bytes(std::span<const RequestPtr> requests, const std::string& name,
                                   int64_t rows) {
  const TensorValue& first = input_of(requests[0], name);
  Dims outer = outer_dims(requests, name);
  outer[0] = rows;
  size_t size = static_cast<size_t>(bits(first.dtype) / 8);
  for (int64_t d : outer)
    if (__builtin_mul_overflow(size, static_cast<size_t>(d), &size)) return std::nullopt;
  return size;
}

TensorValue join_padded(std::span<const RequestPtr> requests, const std::string& name, int64_t rows,
                        double padding) {
  const TensorValue& first = input_of(requests[0], name);
  Dims outer = outer_dims(requests, name);
  const bool same = std::all_of(requests.begin(), requests.end(), [&](const RequestPtr& r) {
    const Dims& d = input_of(r, name).dims;
    return std::equal(d.begin() + 1, d.end(), outer.begin() + 1);
  });
  if (same) return join_rows(requests, name, rows);
  const auto padded = padded_bytes(requests, name, rows);
  if (!padded)
    fail(ErrorCode::limit, cat("the padded batch of input '", name, "' is too large"), requests[0]->model);
  outer[0] = rows;
  const std::string fill = element_bytes(first.dtype, padding);
  const size_t size = *padded;
  auto memory = allocate_bytes(size);
  for (size_t at = 0; at < size; at += fill.size()) std::memcpy(memory.get() + at, fill.data(), fill.size());
  size_t row_bytes = fill.size();
  for (size_t i = 1; i < outer.size(); ++i) row_bytes *= static_cast<size_t>(outer[i]);
  size_t at = 0;
  for (const RequestPtr& r : requests) {
    const TensorValue& t = *r->input(name);
    if (t.data.size) copy_corner(t.data.data, t.dims, memory.get() + at, outer, 0, fill.size());
    at += row_bytes * static_cast<size_t>(t.dims[0]);
  }
  return {first.name, first.dtype, outer, {memory.get(), size, memory}};
}

TensorValue make_batch_input(const BatchInput& b, std::span<const RequestPtr> requests) {
  using K = BatchInput::Kind;
  std::vector<int64_t> values;
  int64_t sum = 0, largest = 0;
  if (b.kind == K::accumulated_element_count_with_zero) values.push_back(0);
  size_t rank = 0;
  for (const RequestPtr& r : requests) {
    const TensorValue& t = input_of(r, b.source);
    const int64_t n = elements(t);
    sum += n;
    largest = std::max(largest, n);
    rank = t.dims.size() - 1;
    switch (b.kind) {
      case K::element_count:
        values.push_back(n);
        break;
      case K::accumulated_element_count:
      case K::accumulated_element_count_with_zero:
        values.push_back(sum);
        break;
      case K::max_element_count_as_shape:  // a tensor of that many elements, whose values are of no account
        break;
      case K::item_shape:
      case K::item_shape_flatten:
        values.insert(values.end(), t.dims.begin() + 1, t.dims.end());
        break;
    }
  }
  if (b.kind == K::max_element_count_as_shape) {
    const size_t size = static_cast<size_t>(largest) * static_cast<size_t>(bits(b.dtype)) / 8;
    auto memory = allocate_bytes(size);
    std::memset(memory.get(), 0, size);
    return {b.target, b.dtype, {largest}, {memory.get(), size, memory}};
  }
  TensorValue out{b.target, b.dtype, {static_cast<int64_t>(values.size())}, {}};
  if (b.kind == K::item_shape) out.dims = {static_cast<int64_t>(requests.size()), static_cast<int64_t>(rank)};
  std::string bytes;
  for (int64_t v : values) bytes += element_bytes(b.dtype, static_cast<double>(v));
  auto memory = allocate_bytes(bytes.size());
  if (!bytes.empty()) std::memcpy(memory.get(), bytes.data(), bytes.size());
  out.data = {memory.get(), bytes.size(), memory};
  return out;
}

void scatter_output(const BatchOutput& b, BatchRun& batch, std::vector<TensorValue>& outputs) {
  const auto it =
      std::find_if(outputs.begin(), outputs.end(), [&](const TensorValue& t) { return t.name == b.target; });
  if (it == outputs.end()) return;
  const size_t width = static_cast<size_t>(bits(it->dtype)) / 8;
  int64_t total = 0;
  for (const RequestPtr& r : batch.requests) total += elements(input_of(r, b.source));
  if (elements(*it) != total || it->dtype == DType::string)
    fail(ErrorCode::bad_shape, cat("output '", b.target, "' has ", elements(*it), " elements, input '",
                                   b.source, "' of the batch has ", total));
  size_t at = 0;
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    const TensorValue& source = *batch.requests[i]->input(b.source);
    const size_t n = static_cast<size_t>(elements(source)) * width;
    batch.responses[i].outputs.push_back({b.target, it->dtype, source.dims, it->data.slice(at, n)});
    at += n;
  }
  outputs.erase(it);
}

}  // namespace pelton::serve
