// SPDX-License-Identifier: Apache-2.0
#include "serve/http/management_json.h"

#include <algorithm>

#include "serve/http/json_reader.h"

namespace pelton::serve {

Parameters read_parameters(const Blob& body) {
  Parameters out;
  if (body.size == 0) return out;
  ParserLease parser;
  for (auto [key, value] : object_of(parser.parse(body.data, body.size), "the body")) {
    if (key != "parameters") continue;
    for (auto [name, v] : object_of(value, "parameters")) {
      if (v.type() == simdjson::dom::element_type::OBJECT)
        out.insert_or_assign(std::string(name), simdjson::minify(v));
      else
        out.insert_or_assign(std::string(name), parameter_of(name, v));
    }
  }
  return out;
}

RegionRequest read_region_request(const Blob& body) {
  RegionRequest r;
  ParserLease parser;
  for (auto [key, value] : object_of(parser.parse(body.data, body.size), "the body")) {
    if (key == "key")
      r.key = text_of(value, "key");
    else if (key == "offset")
      r.offset = size_of(key, value);
    else if (key == "byte_size")
      r.size = size_of(key, value);
    else if (key == "device_id")
      r.device = static_cast<int64_t>(std::min<uint64_t>(size_of(key, value), 1 << 20));
    else if (key == "raw_handle")
      for (auto [form, text] : object_of(value, "raw_handle"))
        if (form == "b64") r.raw_handle = text_of(text, "raw_handle.b64");
  }
  return r;
}

bool read_ready_flag(const Blob& body) {
  if (body.size == 0) return false;
  ParserLease parser;
  for (auto [key, value] : object_of(parser.parse(body.data, body.size), "the body"))
    if (key == "ready") return flag_of(key, value);
  return false;
}

std::string_view checked_json_object(const Blob& body) {
  ParserLease parser;
  object_of(parser.parse(body.data, body.size), "the body");
  return {body.data, body.size};
}

}  // namespace pelton::serve
