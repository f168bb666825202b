// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "serve/http/infer_json.h"
#include "serve/http/json_reader.h"
#include "serve/http/json_tensor.h"

namespace pelton::serve {
namespace {

namespace dom = simdjson::dom;

// Consumes binary data in the order of the inputs.
struct Tail {
  const Blob& body;
  size_t at;
  Blob take(size_t n, std::string_view input) {
    if (n > body.size - at)
      fail(ErrorCode::bad_format, cat("input '", input, "' has binary_data_size ", n, ", but only ",
                                      body.size - at, " bytes are left in the body"));
    Blob b = body.slice(at, n);
    at += n;
    return b;
  }
};

// The parameters that place a tensor in shared memory.
struct Place {
  std::string region;
  uint64_t offset = 0, size = 0;
  void read(std::string_view name, dom::element v) {
    if (name == "shared_memory_region")
      region = text_of(v, "parameter 'shared_memory_region'");
    else if (name == "shared_memory_offset")
      offset = size_of(name, v);
    else if (name == "shared_memory_byte_size")
      size = size_of(name, v);
  }
};

TensorValue read_input(dom::element e, Tail& tail, const SharedMemory& memory) {
  TensorValue t;
  std::optional<dom::element> data;
  std::optional<uint64_t> binary;
  Place place;
  bool typed = false, shaped = false;
  for (auto [key, value] : object_of(e, "an input")) {
    if (key == "name") {
      t.name = text_of(value, "an input's name");
    } else if (key == "datatype") {
      const std::string_view name = text_of(value, "an input's datatype");
      auto dtype = dtype_from_wire(name);
      if (!dtype) fail(ErrorCode::bad_type, cat("unknown datatype '", name, "'"));
      t.dtype = *dtype;
      typed = true;
    } else if (key == "shape") {
      t.dims.clear();  // of keys that repeat the last one counts
      for (dom::element d : array_of(value, "an input's shape")) {
        int64_t n;
        if (d.get(n) || n < 0)
          fail(ErrorCode::bad_shape, "a shape holds something else than non-negative integers");
        t.dims.push_back(n);
      }
      shaped = true;
    } else if (key == "data") {
      data = value;
    } else if (key == "parameters") {
      for (auto [name, v] : object_of(value, "an input's parameters")) {
        if (name == "binary_data_size")
          binary = size_of(name, v);
        else
          place.read(name, v);
      }
    }
  }
  if (t.name.empty()) fail(ErrorCode::bad_format, "an input has no name");
  if (!typed) fail(ErrorCode::bad_format, cat("input '", t.name, "' has no datatype"));
  if (!shaped) fail(ErrorCode::bad_format, cat("input '", t.name, "' has no shape"));
  if (!place.region.empty()) {
    if (binary || data)
      fail(ErrorCode::bad_format, cat("input '", t.name, "' has data although it lies in shared memory"));
    t.data = memory.read(place.region, place.offset, place.size, t.dtype);
    return t;
  }
  if (binary && data)
    fail(ErrorCode::bad_format, cat("input '", t.name, "' has both data and binary_data_size"));
  if (binary) {
    t.data = tail.take(*binary, t.name);
    return t;
  }
  if (!data) fail(ErrorCode::bad_format, cat("input '", t.name, "' has no data"));
  std::string bytes;
  if (auto count = checked_count(t.dims); count && t.dtype != DType::string)
    bytes.reserve(std::min<size_t>(static_cast<size_t>(*count) * 8, 64 << 20));
  if (data->type() != dom::element_type::ARRAY)
    fail(ErrorCode::bad_format, cat("data of input '", t.name, "' is not a list"));
  const int64_t given = read_elements(t, *data, bytes);
  if (auto count = checked_count(t.dims); !count || *count != given)
    fail(ErrorCode::bad_shape, cat("input '", t.name, "' has ", given, " elements, its shape ", t.dims,
                                   " needs ", count ? cat(*count) : "more than 2^63"));
  t.data = counted(memory.gate(), Blob::from(std::move(bytes)));
  return t;
}

RequestedOutput read_output(dom::element e) {
  RequestedOutput o;
  Place place;
  for (auto [key, value] : object_of(e, "an output")) {
    if (key == "name") {
      o.name = text_of(value, "an output's name");
    } else if (key == "parameters") {
      for (auto [name, v] : object_of(value, "an output's parameters")) {
        if (name == "binary_data")
          o.binary = flag_of(name, v);
        else if (name == "classification")
          o.classes = static_cast<int64_t>(std::min<uint64_t>(size_of(name, v), INT64_MAX));
        else
          place.read(name, v);
      }
    }
  }
  if (o.name.empty()) fail(ErrorCode::bad_format, "an output has no name");
  o.region = std::move(place.region);
  o.region_offset = place.offset;
  o.region_size = place.size;
  return o;
}

}  // namespace

void read_infer_request(Request& request, const Blob& body, size_t json_size, bool& binary_default,
                        const SharedMemory& memory) {
  if (json_size > body.size)
    fail(ErrorCode::bad_format,
         cat("Inference-Header-Content-Length is ", json_size, ", the body has only ", body.size, " bytes"));
  if (json_size == 0) fail(ErrorCode::bad_format, "the body holds no JSON");
  ParserLease parser;
  Tail tail{body, json_size};
  binary_default = false;
  bool any_input = false;
  for (auto [key, value] : object_of(parser.parse(body.data, json_size), "the body")) {
    if (key == "id") {
      request.id = text_of(value, "id");
    } else if (key == "inputs") {
      any_input = true;
      for (dom::element e : array_of(value, "inputs")) request.inputs.push_back(read_input(e, tail, memory));
    } else if (key == "outputs") {
      for (dom::element e : array_of(value, "outputs")) request.outputs.push_back(read_output(e));
    } else if (key == "parameters") {
      for (auto [name, v] : object_of(value, "parameters")) {
        if (name == "binary_data_output")
          binary_default = flag_of(name, v);
        else
          request.parameters.insert_or_assign(std::string(name), parameter_of(name, v));
      }
    }
  }
  if (!any_input) fail(ErrorCode::bad_format, "the request has no 'inputs'");
  if (tail.at != body.size)
    fail(ErrorCode::bad_format, cat(body.size - tail.at, " bytes of binary data belong to no input"));
}

}  // namespace pelton::serve
