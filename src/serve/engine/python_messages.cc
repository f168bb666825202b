// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/python_messages.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_number.h"
#include "serve/core/guarded_map.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

Json tensors_json(const std::vector<TensorValue>& tensors, std::vector<Blob>& blobs, size_t& offset) {
  Json list = Json::array();
  for (const TensorValue& t : tensors) {
    list.push_back({{"n", t.name},
                    {"t", std::string(wire_name(t.dtype))},
                    {"s", t.dims},
                    {"o", offset},
                    {"z", t.data.size}});
    blobs.push_back(stable(t.data));
    offset += (t.data.size + 63) / 64 * 64;
  }
  return list;
}

// Codes of TRITONSERVER errors, in their published order.
constexpr ErrorCode kCodes[] = {ErrorCode::internal,   ErrorCode::internal, ErrorCode::not_found,
                                ErrorCode::bad_format, ErrorCode::busy,     ErrorCode::unsupported_op,
                                ErrorCode::bad_name,   ErrorCode::cancelled};

int code_number(ErrorCode code) {
  switch (code) {
    case ErrorCode::internal:
      return 1;
    case ErrorCode::not_found:
      return 2;
    case ErrorCode::busy:
    case ErrorCode::deadline:
      return 4;
    case ErrorCode::unsupported_op:
      return 5;
    case ErrorCode::cancelled:
      return 7;
    default:
      return 3;
  }
}

}  // namespace

Blob stable(const Blob& b) {
  if (!GuardedMap::covers(b.data)) return b;
  auto memory = allocate_bytes(b.size);
  std::memcpy(memory.get(), b.data, b.size);
  char* data = memory.get();
  return {data, b.size, std::move(memory)};
}

Json parameters_json(const Parameters& parameters) {
  Json out = Json::object();
  for (const auto& [name, value] : parameters)
    std::visit([&, &key = name](const auto& v) { out[key] = v; }, value);
  return out;
}

Json response_json(const Response& r, std::vector<Blob>& blobs, size_t& offset) {
  if (r.error) return {{"error", r.error->what()}, {"code", code_number(r.error->code())}};
  return {{"outputs", tensors_json(r.outputs, blobs, offset)}, {"parameters", parameters_json(r.parameters)}};
}

void check_size(const TensorValue& t) {
  const auto count = checked_count(t.dims);
  bool fits = count.has_value();
  if (fits && t.dtype == DType::string)
    fits = bytes_elements(t.data.data, t.data.size) == count;
  else if (fits)
    fits = static_cast<uint64_t>(*count) * static_cast<uint64_t>(bits(t.dtype) / 8) == t.data.size;
  if (!fits)
    fail(ErrorCode::bad_shape,
         cat("tensor '", t.name, "' of shape ", t.dims, " has ", t.data.size, " bytes"));
}

std::vector<TensorValue> read_tensors(const Json& list, const Frame& frame) {
  std::vector<TensorValue> out;
  for (const Json& d : list) {
    TensorValue t;
    t.name = d.at("n").get<std::string>();
    const auto dtype = dtype_from_wire(d.at("t").get<std::string>());
    if (!dtype) fail(ErrorCode::bad_type, cat("tensor '", t.name, "' has an unknown type"));
    t.dtype = *dtype;
    t.dims = json_integers(d.at("s"));
    t.data = frame.blob(json_unsigned(d.at("o")), json_unsigned(d.at("z")));
    check_size(t);
    out.push_back(std::move(t));
  }
  return out;
}

Parameters read_parameters(const Json& object) {
  Parameters out;
  for (const auto& [name, v] : object.items()) {
    if (v.is_boolean())
      out[name] = v.get<bool>();
    else if (v.is_number_unsigned())
      out[name] = v.get<uint64_t>();
    else if (v.is_number_integer())
      out[name] = v.get<int64_t>();
    else if (v.is_number_float())
      out[name] = v.get<double>();
    else if (v.is_string())
      out[name] = v.get<std::string>();
    else
      fail(ErrorCode::bad_format, cat("parameter '", name, "' is neither a boolean, a number nor a string"));
  }
  return out;
}

Error read_error(const Json& j) {
  const int64_t code = j.contains("code") ? json_integer(j["code"]) : 1;
  const bool known = code >= 0 && code < std::ssize(kCodes);
  return Error(known ? kCodes[code] : ErrorCode::internal, j["error"].get<std::string>());
}

void check_types(Response& r, const ModelConfig& config) {
  auto check = [&](const TensorValue& t, const std::string& name, DType dtype) {
    if (t.name == name && t.dtype != dtype)
      r.error = Error(ErrorCode::plugin, cat("output '", name, "' is ", wire_name(t.dtype),
                                             ", the configuration says ", wire_name(dtype)));
  };
  for (const TensorValue& t : r.outputs) {
    for (const TensorSpec& spec : config.outputs) check(t, spec.name, spec.dtype);
    if (config.sequence)
      for (const StateSpec& s : config.sequence->states)
        if (!config.output(s.output)) check(t, s.output, s.dtype);
  }
  if (r.error) r.outputs.clear();
}

Response read_response(const Json& j, const Frame& frame, const ModelConfig& config) {
  Response r;
  if (j.contains("error")) {
    r.error = read_error(j);
    return r;
  }
  r.outputs = read_tensors(j.at("outputs"), frame);
  if (j.contains("parameters")) r.parameters = read_parameters(j["parameters"]);
  check_types(r, config);
  return r;
}

RequestPtr read_model_request(const Json& j, const Frame& frame) {
  auto r = std::make_unique<Request>();
  r->model = j.at("model").get<std::string>();
  const int64_t version = j.at("version").is_number() ? json_integer(j["version"]) : -1;
  if (version > 0) r->version = cat(version);
  r->id = j.at("request_id").get<std::string>();
  if (j.at("correlation").is_string())
    r->sequence.text = j["correlation"].get<std::string>();
  else
    r->sequence.number = json_unsigned(j["correlation"]);
  const int64_t flags = json_integer(j.at("flags"));
  r->sequence_start = flags & 1;
  r->sequence_end = flags & 2;
  r->timeout_us = json_unsigned(j.at("timeout"));
  r->parameters = read_parameters(j.at("parameters"));
  r->inputs = read_tensors(j.at("inputs"), frame);
  for (const Json& name : j.at("outputs")) {
    RequestedOutput o;
    o.name = name.get<std::string>();
    r->outputs.push_back(std::move(o));
  }
  r->streams = j.at("decoupled").get<bool>();
  return r;
}

}  // namespace pelton::serve
