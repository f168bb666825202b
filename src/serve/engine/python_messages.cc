// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/python_messages.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/core/guarded_map.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

// Memory that others may shorten cannot be handed to the kernel: it would end the message in its middle.
Blob stable(const Blob& b) {
  if (!GuardedMap::covers(b.data)) return b;
  auto memory = allocate_bytes(b.size);
  std::memcpy(memory.get(), b.data, b.size);
  char* data = memory.get();
  return {data, b.size, std::move(memory)};
}

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

Json parameters_json(const Parameters& parameters) {
  Json out = Json::object();
  for (const auto& [name, value] : parameters)
    std::visit([&, &key = name](const auto& v) { out[key] = v; }, value);
  return out;
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

Json request_json(const Request& r, const ModelConfig& config, uint64_t key, std::vector<Blob>& blobs,
                  size_t& offset) {
  Json outputs = Json::array();
  if (r.outputs.empty())
    for (const TensorSpec& t : config.outputs) outputs.push_back(t.name);
  for (const RequestedOutput& o : r.outputs) outputs.push_back(o.name);
  Json j = {{"key", key},
            {"id", r.id},
            {"model", config.name},
            {"version", r.version},
            {"flags", (r.sequence_start ? 1 : 0) | (r.sequence_end ? 2 : 0)},
            {"timeout", r.timeout_us},
            {"outputs", std::move(outputs)},
            {"parameters", parameters_json(r.parameters)},
            {"inputs", tensors_json(r.inputs, blobs, offset)}};
  if (r.sequence.text.empty())
    j["correlation"] = r.sequence.number;
  else
    j["correlation"] = r.sequence.text;
  return j;
}

Json response_json(const Response& r, std::vector<Blob>& blobs, size_t& offset) {
  if (r.error) return {{"error", r.error->what()}, {"code", code_number(r.error->code())}};
  return {{"outputs", tensors_json(r.outputs, blobs, offset)}, {"parameters", parameters_json(r.parameters)}};
}

std::vector<TensorValue> read_tensors(const Json& list, const Frame& frame) {
  std::vector<TensorValue> out;
  for (const Json& d : list) {
    TensorValue t;
    t.name = d.at("n").get<std::string>();
    const auto dtype = dtype_from_wire(d.at("t").get<std::string>());
    if (!dtype) fail(ErrorCode::bad_type, cat("tensor '", t.name, "' has an unknown type"));
    t.dtype = *dtype;
    t.dims = d.at("s").get<Dims>();
    t.data = frame.blob(d.at("o").get<size_t>(), d.at("z").get<size_t>());
    const auto count = checked_count(t.dims);
    bool fits = count.has_value();
    if (fits && t.dtype == DType::string)
      fits = bytes_elements(t.data.data, t.data.size) == count;
    else if (fits)
      fits = static_cast<uint64_t>(*count) * static_cast<uint64_t>(bits(t.dtype) / 8) == t.data.size;
    if (!fits)
      fail(ErrorCode::bad_shape,
           cat("tensor '", t.name, "' of shape ", t.dims, " has ", t.data.size, " bytes"));
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

Response read_response(const Json& j, const Frame& frame, const ModelConfig& config) {
  Response r;
  if (j.contains("error")) {
    const auto code = j.value("code", 1);
    const bool known = code >= 0 && code < static_cast<int>(std::size(kCodes));
    r.error = Error(known ? kCodes[code] : ErrorCode::internal, j["error"].get<std::string>());
    return r;
  }
  r.outputs = read_tensors(j.at("outputs"), frame);
  if (j.contains("parameters")) r.parameters = read_parameters(j["parameters"]);
  for (const TensorValue& t : r.outputs) {
    const auto all = config.engine_outputs();
    const auto it =
        std::find_if(all.begin(), all.end(), [&](const auto& o) { return o.spec.name == t.name; });
    if (it != all.end() && it->spec.dtype != t.dtype) {
      r.error = Error(ErrorCode::bad_type, cat("output '", t.name, "' is ", wire_name(t.dtype),
                                               ", the configuration says ", wire_name(it->spec.dtype)));
      r.outputs.clear();
      return r;
    }
  }
  return r;
}

RequestPtr read_model_request(const Frame& frame) {
  const Json& j = *frame.head;
  auto r = std::make_unique<Request>();
  r->model = j.at("model").get<std::string>();
  const int64_t version = j.at("version").is_number() ? j["version"].get<int64_t>() : -1;
  if (version > 0) r->version = cat(version);
  r->id = j.at("request_id").get<std::string>();
  if (j.at("correlation").is_string())
    r->sequence.text = j["correlation"].get<std::string>();
  else
    r->sequence.number = j["correlation"].get<uint64_t>();
  const int flags = j.at("flags").get<int>();
  r->sequence_start = flags & 1;
  r->sequence_end = flags & 2;
  r->timeout_us = j.at("timeout").get<uint64_t>();
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
