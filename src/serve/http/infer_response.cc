// SPDX-License-Identifier: Apache-2.0
#include "serve/http/infer_json.h"
#include "serve/http/json_tensor.h"

namespace pelton::serve {

InferBody write_infer_response(const Response& r, const std::vector<RequestedOutput>& requested,
                               bool binary_default) {
  InferBody body;
  std::string out = "{";
  if (!r.id.empty()) {
    out += "\"id\":";
    append_escaped(out, r.id);
    out += ',';
  }
  out += "\"model_name\":";
  append_escaped(out, r.model);
  out += ",\"model_version\":";
  append_escaped(out, r.version);
  if (!r.parameters.empty()) {
    out += ",\"parameters\":{";
    bool first = true;
    for (const auto& [name, value] : r.parameters) {
      if (!first) out += ',';
      first = false;
      append_escaped(out, name);
      out += ':';
      if (const auto* s = std::get_if<std::string>(&value))
        append_escaped(out, *s);
      else if (const auto* b = std::get_if<bool>(&value))
        append(out, *b);
      else if (const auto* i = std::get_if<int64_t>(&value))
        append(out, *i);
      else if (const auto* u = std::get_if<uint64_t>(&value))
        append(out, *u);
      else
        append(out, std::get<double>(value));
    }
    out += '}';
  }
  out += ",\"outputs\":[";
  std::vector<Blob> tail;
  for (size_t i = 0; i < r.outputs.size(); ++i) {
    const TensorValue& t = r.outputs[i];
    bool binary = binary_default;
    if (i < requested.size() && requested[i].name == t.name && requested[i].binary)
      binary = *requested[i].binary;
    if (i) out += ',';
    out += "{\"name\":";
    append_escaped(out, t.name);
    out += cat(",\"datatype\":\"", wire_name(t.dtype), "\",\"shape\":", t.dims);
    if (i < requested.size() && !requested[i].region.empty()) {
      out += '}';  // no parameters: a client that finds some looks for the size of binary data among them
    } else if (binary) {
      out += cat(",\"parameters\":{\"binary_data_size\":", t.data.size, "}}");
      if (t.data.size) tail.push_back(t.data);
      body.binary = true;
    } else {
      out += ",\"data\":";
      append_elements(out, t);
      out += '}';
    }
  }
  out += "]}";
  body.json_size = out.size();
  body.parts.push_back(Blob::from(std::move(out)));
  for (Blob& b : tail) body.parts.push_back(std::move(b));
  return body;
}

}  // namespace pelton::serve
