// SPDX-License-Identifier: Apache-2.0
#include "serve/http/generate.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/http/infer_json.h"
#include "tensor/tensor.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::ordered_json;
using Parsed = nlohmann::json;

// Shape of nested lists; `values` receives the elements in order.
Dims flatten(const Parsed& v, const std::string& name, std::vector<const Parsed*>& values) {
  if (!v.is_array()) {
    values.push_back(&v);
    return {};
  }
  Dims dims{static_cast<int64_t>(v.size())};
  std::optional<Dims> inner;
  for (const Parsed& e : v) {
    Dims d = flatten(e, name, values);
    if (inner && *inner != d)
      fail(ErrorCode::bad_shape, cat("the lists of input '", name, "' differ in length"));
    inner = std::move(d);
  }
  if (inner) dims.insert(dims.end(), inner->begin(), inner->end());
  return dims;
}

template <class T>
void put(std::string& out, T v) {
  out.append(reinterpret_cast<const char*>(&v), sizeof v);
}

void put_number(std::string& out, const TensorSpec& spec, const Parsed& v) {
  auto wrong = [&](const char* expected) {
    fail(ErrorCode::bad_type,
         cat("input '", spec.name, "' of type ", wire_name(spec.dtype), " expects ", expected));
  };
  if (spec.dtype == DType::string) {
    if (!v.is_string()) wrong("strings");
    return append_bytes_element(out, v.get_ref<const std::string&>());
  }
  if (spec.dtype == DType::boolean) {
    if (!v.is_boolean()) wrong("booleans");
    return put<uint8_t>(out, v.get<bool>());
  }
  if (is_float(spec.dtype)) {
    if (!v.is_number()) wrong("numbers");
    const Tensor one = from_doubles(spec.dtype, {1}, {v.get<double>()});
    if (!std::isfinite(to_doubles(one)[0])) wrong("numbers in range");
    out.append(static_cast<const char*>(one.data()), static_cast<size_t>(one.bytes()));
    return;
  }
  if (!v.is_number_integer()) wrong("integers");
  auto integer = [&]<class T>(T) {
    bool fits =
        v.is_number_unsigned() && v.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<T>::max());
    if constexpr (std::is_signed_v<T>)
      fits = fits || (!v.is_number_unsigned() && v.get<int64_t>() >= std::numeric_limits<T>::min());
    if (!fits) wrong("integers in range");
    put<T>(out,
           v.is_number_unsigned() ? static_cast<T>(v.get<uint64_t>()) : static_cast<T>(v.get<int64_t>()));
  };
  switch (spec.dtype) {
    case DType::u8:
      return integer(uint8_t{});
    case DType::u16:
      return integer(uint16_t{});
    case DType::u32:
      return integer(uint32_t{});
    case DType::u64:
      return integer(uint64_t{});
    case DType::i8:
      return integer(int8_t{});
    case DType::i16:
      return integer(int16_t{});
    case DType::i32:
      return integer(int32_t{});
    default:
      return integer(int64_t{});
  }
}

std::optional<Parameter> parameter_of(const Parsed& v) {
  if (v.is_boolean()) return v.get<bool>();
  if (v.is_number_unsigned()) return v.get<uint64_t>();
  if (v.is_number_integer()) return v.get<int64_t>();
  if (v.is_number_float()) return v.get<double>();
  if (v.is_string()) return v.get<std::string>();
  return std::nullopt;
}

Json number_json(double v, const TensorValue& t) {
  if (!std::isfinite(v))
    fail(ErrorCode::numeric, cat("output '", t.name, "' holds ", v, ", which JSON cannot carry"), "",
         "ask for it with infer as binary data");
  return v;
}

Json values_json(const TensorValue& t) {
  Json list = Json::array();
  if (t.dtype == DType::string) {
    for (std::string_view s : split_bytes(t.data.data, t.data.size)) list.push_back(std::string(s));
    return list;
  }
  const Tensor values = Tensor::borrow(t.dtype, t.dims, t.data.data, t.data.owner);
  if (is_float(t.dtype)) {
    for (double v : to_doubles(values)) list.push_back(number_json(v, t));
  } else if (t.dtype == DType::boolean) {
    for (int64_t v : to_ints(values)) list.push_back(v != 0);
  } else if (t.dtype == DType::u64) {
    for (int64_t v : to_ints(values)) list.push_back(static_cast<uint64_t>(v));
  } else {
    for (int64_t v : to_ints(values)) list.push_back(v);
  }
  return list;
}

}  // namespace

void read_generate_request(Request& r, const Blob& body, const ModelConfig& config, MemoryGate& gate) {
  const std::string_view text = checked_json_object(body);  // bounds the depth
  // Not ordered: looking for a key among n would take n steps, for each of a client's keys.
  const Parsed j = Parsed::parse(text, nullptr, false);
  if (!j.is_object()) fail(ErrorCode::bad_format, "the body is not a JSON object");
  for (const auto& [key, value] : j.items()) {
    if (const TensorSpec* spec = config.input(key)) {
      TensorValue t{key, spec->dtype, {}, {}};
      std::vector<const Parsed*> values;
      t.dims = flatten(value, key, values);
      if (t.dims.empty() && !spec->dims.empty()) t.dims.assign(spec->dims.size(), 1);
      if (config.max_batch > 0) t.dims.insert(t.dims.begin(), 1);
      std::string bytes;
      for (const Parsed* v : values) put_number(bytes, *spec, *v);
      t.data = counted(gate, Blob::from(std::move(bytes)));
      r.inputs.push_back(std::move(t));
    } else if (key == "id" && value.is_string()) {
      r.id = value.get<std::string>();
    } else if (key == "parameters" && value.is_object()) {
      for (const auto& [name, v] : value.items()) {
        auto p = parameter_of(v);
        if (!p)
          fail(ErrorCode::bad_format,
               cat("parameter '", name, "' is neither a boolean, a number nor a string"));
        r.parameters.insert_or_assign(name, std::move(*p));
      }
    } else if (auto p = parameter_of(value)) {
      r.parameters.emplace(key, std::move(*p));
    } else {
      fail(ErrorCode::bad_format, cat("'", key, "' is no input of model '", config.name, "'"));
    }
  }
}

std::string write_generate_response(const Response& r) {
  Json j;
  if (!r.id.empty()) j["id"] = r.id;
  j["model_name"] = r.model;
  j["model_version"] = r.version;
  for (const auto& [name, value] : r.parameters)
    std::visit([&, &key = name](const auto& v) { j["parameters"][key] = v; }, value);
  for (const TensorValue& t : r.outputs) {
    Json values = values_json(t);
    j[t.name] = values.size() == 1 ? Json(values[0]) : std::move(values);
  }
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pelton::serve
