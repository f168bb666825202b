// SPDX-License-Identifier: Apache-2.0
#include "tensor/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace pelton {
namespace {

using Json = nlohmann::json;

struct NamedType {
  const char* name;
  DType type;
};
constexpr NamedType kTypes[] = {{"F64", DType::f64},        {"F32", DType::f32},
                                {"F16", DType::f16},        {"BF16", DType::bf16},
                                {"I64", DType::i64},        {"I32", DType::i32},
                                {"I16", DType::i16},        {"I8", DType::i8},
                                {"U64", DType::u64},        {"U32", DType::u32},
                                {"U16", DType::u16},        {"U8", DType::u8},
                                {"BOOL", DType::boolean},   {"F8_E4M3", DType::f8e4m3fn},
                                {"F8_E5M2", DType::f8e5m2}, {"F8_E8M0", DType::f8e8m0}};

[[noreturn]] void bad(std::string what, std::string fix = {}) {
  fail(ErrorCode::bad_format, std::move(what), "safetensors header", std::move(fix));
}

struct Entry {
  std::string name;
  DType dtype;
  Dims dims;
  uint64_t begin, end;
};

uint64_t whole(const Json& j, const std::string& of) {
  if (!j.is_number_unsigned()) bad(cat(of, " is not a whole number of at least 0"));
  return j.get<uint64_t>();
}

Entry read_entry(const std::string& name, const Json& j) {
  const std::string of = cat("tensor '", name, "'");
  if (!j.is_object() || !j.contains("dtype") || !j.contains("shape") || !j.contains("data_offsets"))
    bad(cat(of, " lacks one of dtype, shape and data_offsets"));
  const Json &type = j["dtype"], &shape = j["shape"], &offsets = j["data_offsets"];
  if (!type.is_string()) bad(cat("the dtype of ", of, " is not text"));
  Entry e{name, DType::f32, {}, 0, 0};
  const NamedType* found = nullptr;
  for (const NamedType& t : kTypes)
    if (type.get_ref<const std::string&>() == t.name) found = &t;
  if (!found)
    fail(ErrorCode::bad_type, cat("the dtype '", type.get_ref<const std::string&>(), "' is not known"), of);
  e.dtype = found->type;
  if (!shape.is_array() || shape.size() > 64)
    bad(cat("the shape of ", of, " is not a list of at most 64 sizes"));
  for (const Json& d : shape) {
    uint64_t v = whole(d, cat("a size of ", of));
    if (v > uint64_t{INT64_MAX}) bad(cat("a size of ", of, " is too large"));
    e.dims.push_back(static_cast<int64_t>(v));
  }
  if (!offsets.is_array() || offsets.size() != 2) bad(cat("data_offsets of ", of, " are not two numbers"));
  e.begin = whole(offsets[0], cat("an offset of ", of));
  e.end = whole(offsets[1], cat("an offset of ", of));
  return e;
}

}  // namespace

Safetensors parse_safetensors(std::string_view bytes, std::shared_ptr<const void> owner) {
  uint64_t size = 0;
  if (bytes.size() < sizeof size) bad(cat("the file has ", bytes.size(), " bytes, too few for a header"));
  std::memcpy(&size, bytes.data(), sizeof size);
  if (size > kSafetensorsHeaderLimitBytes)
    bad(cat("it claims ", size, " bytes, more than the limit of ", kSafetensorsHeaderLimitBytes),
        "is this a safetensors file?");
  if (size > bytes.size() - sizeof size)
    bad(cat("it claims ", size, " bytes, but ", bytes.size() - sizeof size, " are left"),
        "the file may be cut short");
  std::string_view text = bytes.substr(sizeof size, size), data = bytes.substr(sizeof size + size);
  Json header = Json::parse(text, nullptr, false);
  if (!header.is_object()) bad("it is not a JSON object", "is this a safetensors file?");
  Safetensors out;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") {
      entries.push_back(read_entry(name, value));
      continue;
    }
    if (!value.is_object()) bad("__metadata__ is not an object");
    for (const auto& [key, v] : value.items()) {
      if (!v.is_string()) bad(cat("the metadata '", key, "' is not text"));
      out.metadata[key] = v.get<std::string>();
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const Entry& e : entries) {
    const std::string of = cat("tensor '", e.name, "'");
    if (e.begin != at || e.end < e.begin)
      bad(cat(of, " lies at bytes ", e.begin, " to ", e.end, ", expected to start at ", at));
    if (e.end > data.size())
      bad(cat(of, " ends at byte ", e.end, ", but the file has ", data.size(), " bytes of data"),
          "the file may be cut short");
    auto expected = static_cast<uint64_t>(byte_size(e.dtype, element_count(e.dims)));
    if (expected != e.end - e.begin)
      bad(cat(of, " of ", name(e.dtype), e.dims, " needs ", expected, " bytes, but has ", e.end - e.begin));
    at = e.end;
    Tensor borrowed = Tensor::borrow(e.dtype, e.dims, data.data() + e.begin, owner);
    out.tensors.emplace(e.name, owner ? std::move(borrowed) : borrowed.clone());
  }
  if (at != data.size()) bad(cat(data.size() - at, " bytes at the end belong to no tensor"));
  return out;
}

Safetensors load_safetensors(const std::string& path) {
  auto file = std::make_shared<MappedFile>(path);
  std::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  return with_place(path, [&] { return parse_safetensors(bytes, file); });
}

void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t at = 0;
  for (const auto& [tensor_name, t] : tensors) {
    const char* type = nullptr;
    for (const NamedType& n : kTypes)
      if (n.type == t.dtype()) type = n.name;
    if (!type)
      fail(ErrorCode::bad_type, cat("safetensors has no name for ", name(t.dtype())),
           cat("tensor '", tensor_name, "'"));
    header[tensor_name] = {{"dtype", type}, {"shape", t.dims()}, {"data_offsets", {at, at + t.bytes()}}};
    at += t.bytes();
  }
  std::string text = header.dump();
  while (text.size() % 8) text.push_back(' ');
  AtomicFile file(path);
  uint64_t size = text.size();
  file.write(std::string_view(reinterpret_cast<const char*>(&size), sizeof size));
  file.write(text);
  for (const auto& [tensor_name, t] : tensors)
    file.write(std::string_view(static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes())));
  file.commit();
}

}  // namespace pelton
