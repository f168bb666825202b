// SPDX-License-Identifier: Apache-2.0
#include "serve/http/generate.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/http/json_reader.h"
#include "serve/http/json_tensor.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::ordered_json;

// Shape of nested lists, {} of what is none; bad_shape where their lengths differ.
Dims shape_of(simdjson::dom::element e, std::string_view name) {
  simdjson::dom::array list;
  if (e.get(list)) return {};
  Dims dims{0};
  std::optional<Dims> inner;
  for (const simdjson::dom::element x : list) {
    ++dims[0];
    Dims d = shape_of(x, name);
    if (inner && *inner != d)
      fail(ErrorCode::bad_shape, cat("the lists of input '", name, "' differ in length"));
    inner = std::move(d);
  }
  if (inner) dims.insert(dims.end(), inner->begin(), inner->end());
  return dims;
}

// Text that is no UTF-8 is replaced where it is written: a stream may end within a character.
Json values_json(const TensorValue& t) {
  if (t.dtype == DType::string) {
    Json list = Json::array();
    for (std::string_view s : split_bytes(t.data.data, t.data.size)) list.push_back(std::string(s));
    return list;
  }
  std::string numbers;
  append_elements(numbers, t);  // as inference writes them: f32 0.1 is 0.1
  return Json::parse(numbers);
}

// Refuses a key that the body has had before it takes any room.
void once(bool there, std::string_view key) {
  if (there) fail(ErrorCode::bad_format, cat("'", key, "' is in the body twice"), "", "give it once");
}

void set_parameter(Request& r, std::string_view name, simdjson::dom::element v) {
  once(!r.parameters.emplace(std::string(name), parameter_of(name, v)).second, name);
}

}  // namespace

void read_generate_request(Request& r, const Blob& body, const ModelConfig& config, MemoryGate& gate) {
  ParserLease parser;
  for (const auto [key, value] : object_of(parser.parse(body.data, body.size), "the body")) {
    if (const TensorSpec* spec = config.input(key)) {
      once(r.input(key) != nullptr, key);
      TensorValue t{std::string(key), spec->dtype, shape_of(value, key), {}};
      if (t.dims.empty() && !spec->dims.empty()) t.dims.assign(spec->dims.size(), 1);
      if (config.max_batch > 0) t.dims.insert(t.dims.begin(), 1);
      std::string bytes;
      read_elements(t, value, bytes);
      t.data = counted(gate, Blob::from(std::move(bytes)));
      r.inputs.push_back(std::move(t));
    } else if (key == "id" && value.is_string()) {
      once(!r.id.empty(), key);
      r.id = text_of(value, "id");
    } else if (key == "parameters" && value.is_object()) {
      for (const auto [name, v] : object_of(value, "parameters")) set_parameter(r, name, v);
    } else if (value.is_array() || value.is_object() || value.is_null()) {
      fail(ErrorCode::bad_format, cat("'", key, "' is no input of model '", config.name, "'"));
    } else {
      set_parameter(r, key, value);
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
