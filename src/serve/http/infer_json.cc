// SPDX-License-Identifier: Apache-2.0
#include "serve/http/infer_json.h"

#include <simdjson.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "tensor/float_types.h"

namespace pelton::serve {
namespace {

namespace dom = simdjson::dom;

// One parser a thread; one that grew with a large body is dropped after it.
struct Parser {
  std::unique_ptr<dom::parser> parser;
  dom::element parse(const char* json, size_t size) {
    if (!parser) {
      parser = std::make_unique<dom::parser>();
      if (parser->allocate(64 << 10, kMaxJsonDepth) != simdjson::SUCCESS) throw std::bad_alloc();
    }
    if (parser->capacity() < size && parser->allocate(size, kMaxJsonDepth) != simdjson::SUCCESS)
      throw std::bad_alloc();
    dom::element root;
    const auto error = parser->parse(json, size, false).get(root);
    if (error == simdjson::DEPTH_ERROR)
      fail(ErrorCode::limit, cat("the JSON body is nested deeper than ", kMaxJsonDepth));
    if (error) fail(ErrorCode::bad_format, cat("the body is not JSON: ", simdjson::error_message(error)));
    return root;
  }
  ~Parser() = default;
};
struct ParserLease {
  static Parser& local() {
    thread_local Parser parser;
    return parser;
  }
  ~ParserLease() {
    Parser& p = local();
    if (p.parser && p.parser->capacity() > (1 << 20)) p.parser.reset();
  }
  dom::element parse(const char* json, size_t size) { return local().parse(json, size); }
};

std::string_view text_of(dom::element e, std::string_view what) {
  std::string_view s;
  if (e.get(s)) fail(ErrorCode::bad_format, cat(what, " is not a string"));
  return s;
}

dom::object object_of(dom::element e, std::string_view what) {
  dom::object o;
  if (e.get(o)) fail(ErrorCode::bad_format, cat(what, " is not an object"));
  return o;
}

dom::array array_of(dom::element e, std::string_view what) {
  dom::array a;
  if (e.get(a)) fail(ErrorCode::bad_format, cat(what, " is not a list"));
  return a;
}

Parameter parameter_of(std::string_view name, dom::element e) {
  switch (e.type()) {
    case dom::element_type::BOOL:
      return bool(e);
    case dom::element_type::INT64:
      return int64_t(e);
    case dom::element_type::UINT64:
      return uint64_t(e);
    case dom::element_type::DOUBLE:
      return double(e);
    case dom::element_type::STRING:
      return std::string(std::string_view(e));
    default:
      fail(ErrorCode::bad_format, cat("parameter '", name, "' is neither a boolean, a number nor a string"));
  }
}

uint64_t size_of(std::string_view name, dom::element e) {
  uint64_t n;
  if (e.get(n)) fail(ErrorCode::bad_format, cat("parameter '", name, "' expects a non-negative integer"));
  return n;
}

bool flag_of(std::string_view name, dom::element e) {
  bool b;
  if (e.get(b)) fail(ErrorCode::bad_format, cat("parameter '", name, "' expects true or false"));
  return b;
}

// Numbers of (nested) JSON lists, appended as elements of one type.
class Flattener {
 public:
  Flattener(const TensorValue& tensor, std::string& out) : t_(tensor), out_(out) {}

  void add(dom::element e) {
    if (e.type() == dom::element_type::ARRAY) {
      for (dom::element x : dom::array(e)) add(x);
      return;
    }
    ++count_;
    switch (t_.dtype) {
      case DType::boolean:
        return put<uint8_t>(boolean(e));
      case DType::u8:
        return integer<uint8_t>(e);
      case DType::u16:
        return integer<uint16_t>(e);
      case DType::u32:
        return integer<uint32_t>(e);
      case DType::u64:
        return integer<uint64_t>(e);
      case DType::i8:
        return integer<int8_t>(e);
      case DType::i16:
        return integer<int16_t>(e);
      case DType::i32:
        return integer<int32_t>(e);
      case DType::i64:
        return integer<int64_t>(e);
      case DType::f16:
        return put<uint16_t>(f16_from_float(static_cast<float>(number(e, 65520))));
      case DType::bf16:
        return put<uint16_t>(bf16_from_float(static_cast<float>(number(e, 0x1.ffp127))));
      case DType::f32:
        return put<float>(static_cast<float>(number(e, 0x1.ffffffp127)));
      case DType::f64:
        return put<double>(number(e, std::numeric_limits<double>::infinity()));
      case DType::string: {
        std::string_view s;
        if (e.get(s)) wrong("strings");
        return append_bytes_element(out_, s);
      }
      default:
        wrong("a known type");
    }
  }
  int64_t count() const { return count_; }

 private:
  [[noreturn]] void wrong(std::string_view expected) const {
    fail(ErrorCode::bad_type, cat("data of input '", t_.name, "' of type ", wire_name(t_.dtype), " expects ",
                                  expected, " at element ", count_ - 1));
  }
  template <class T>
  void put(T v) {
    char bytes[sizeof v];
    std::memcpy(bytes, &v, sizeof v);
    out_.append(bytes, sizeof v);
  }
  bool boolean(dom::element e) const {
    bool b;
    if (!e.get(b)) return b;
    int64_t n;
    if (!e.get(n) && (n == 0 || n == 1)) return n == 1;
    wrong("booleans");
  }
  // `beyond`: the smallest size that the type rounds to infinity.
  double number(dom::element e, double beyond) const {
    double d;
    if (e.get(d)) wrong("numbers");
    if (d >= beyond || d <= -beyond) wrong("numbers in range");
    return d;
  }
  template <class T>
  void integer(dom::element e) {
    int64_t s;
    uint64_t u;
    if (!e.get(s)) {
      if constexpr (std::is_unsigned_v<T>) {
        if (s < 0 || static_cast<uint64_t>(s) > std::numeric_limits<T>::max()) wrong("integers in range");
      } else {
        if (s < std::numeric_limits<T>::min() || s > std::numeric_limits<T>::max())
          wrong("integers in range");
      }
      return put<T>(static_cast<T>(s));
    }
    if (std::is_same_v<T, uint64_t> && !e.get(u)) return put<T>(static_cast<T>(u));
    wrong(e.is<uint64_t>() ? "integers in range" : "integers");
  }

  const TensorValue& t_;
  std::string& out_;
  int64_t count_ = 0;
};

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
  Flattener flat(t, bytes);
  if (data->type() != dom::element_type::ARRAY)
    fail(ErrorCode::bad_format, cat("data of input '", t.name, "' is not a list"));
  flat.add(*data);
  if (auto count = checked_count(t.dims); !count || *count != flat.count())
    fail(ErrorCode::bad_shape, cat("input '", t.name, "' has ", flat.count(), " elements, its shape ", t.dims,
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

void append_escaped(std::string& out, std::string_view s) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (u < 32)
      out += "\\u00", out += kHex[u >> 4], out += kHex[u & 15];
    else
      out += c;
  }
  out += '"';
}

template <class T>
T load(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

void append_real(std::string& out, double v, bool single, const TensorValue& t) {
  if (!std::isfinite(v))
    fail(ErrorCode::numeric, cat("output '", t.name, "' holds ", v, ", which JSON cannot carry"), "",
         "ask for the output as binary data");
  if (single)
    append(out, static_cast<float>(v));
  else
    append(out, v);
}

void append_data(std::string& out, const TensorValue& t) {
  out += '[';
  if (t.dtype == DType::string) {
    bool first = true;
    for (std::string_view s : split_bytes(t.data.data, t.data.size)) {
      if (!first) out += ',';
      first = false;
      if (!simdjson::validate_utf8(s.data(), s.size()))
        fail(ErrorCode::bad_format,
             cat("output '", t.name, "' holds bytes that are not UTF-8, which JSON cannot carry"), "",
             "ask for the output as binary data");
      append_escaped(out, s);
    }
    out += ']';
    return;
  }
  const size_t width = static_cast<size_t>(bits(t.dtype)) / 8;
  const size_t n = width ? t.data.size / width : 0;
  for (size_t i = 0; i < n; ++i) {
    if (i) out += ',';
    const char* p = t.data.data + i * width;
    switch (t.dtype) {
      case DType::boolean:
        append(out, *p != 0);
        break;
      case DType::u8:
        append(out, load<uint8_t>(p));
        break;
      case DType::u16:
        append(out, load<uint16_t>(p));
        break;
      case DType::u32:
        append(out, load<uint32_t>(p));
        break;
      case DType::u64:
        append(out, load<uint64_t>(p));
        break;
      case DType::i8:
        append(out, static_cast<int>(load<int8_t>(p)));
        break;
      case DType::i16:
        append(out, load<int16_t>(p));
        break;
      case DType::i32:
        append(out, load<int32_t>(p));
        break;
      case DType::i64:
        append(out, load<int64_t>(p));
        break;
      case DType::f16:
        append_real(out, f16_to_float(load<uint16_t>(p)), true, t);
        break;
      case DType::bf16:
        append_real(out, bf16_to_float(load<uint16_t>(p)), true, t);
        break;
      case DType::f32:
        append_real(out, load<float>(p), true, t);
        break;
      case DType::f64:
        append_real(out, load<double>(p), false, t);
        break;
      default:
        fail(ErrorCode::bad_type,
             cat("output '", t.name, "' has type ", name(t.dtype), ", which the protocol lacks"));
    }
  }
  out += ']';
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
      append_data(out, t);
      out += '}';
    }
  }
  out += "]}";
  body.json_size = out.size();
  body.parts.push_back(Blob::from(std::move(out)));
  for (Blob& b : tail) body.parts.push_back(std::move(b));
  return body;
}

Parameters read_parameters(const Blob& body) {
  Parameters out;
  if (body.size == 0) return out;
  ParserLease parser;
  for (auto [key, value] : object_of(parser.parse(body.data, body.size), "the body")) {
    if (key != "parameters") continue;
    for (auto [name, v] : object_of(value, "parameters")) {
      if (v.type() == dom::element_type::OBJECT)
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
