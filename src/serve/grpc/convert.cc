// SPDX-License-Identifier: Apache-2.0
#include "serve/grpc/convert.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "serve/core/core.h"

namespace pelton::serve {
namespace {

Parameter parameter_of(const std::string& name, const inference::InferParameter& p) {
  switch (p.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return p.bool_param();
    case inference::InferParameter::kInt64Param:
      return p.int64_param();
    case inference::InferParameter::kStringParam:
      return p.string_param();
    case inference::InferParameter::kDoubleParam:
      return p.double_param();
    case inference::InferParameter::kUint64Param:
      return p.uint64_param();
    default:
      fail(ErrorCode::bad_format, cat("parameter '", name, "' has no value"));
  }
}

void write_parameter(const Parameter& v, inference::InferParameter& p) {
  if (const auto* s = std::get_if<std::string>(&v))
    p.set_string_param(*s);
  else if (const auto* b = std::get_if<bool>(&v))
    p.set_bool_param(*b);
  else if (const auto* i = std::get_if<int64_t>(&v))
    p.set_int64_param(*i);
  else if (const auto* u = std::get_if<uint64_t>(&v))
    p.set_uint64_param(*u);
  else
    p.set_double_param(std::get<double>(v));
}

// The parameters that place a tensor in shared memory.
struct Place {
  std::string region;
  uint64_t offset = 0, size = 0;
  void read(const std::string& name, const inference::InferParameter& p) {
    if (name == "shared_memory_region") {
      if (p.parameter_choice_case() != inference::InferParameter::kStringParam)
        fail(ErrorCode::bad_format, cat("parameter '", name, "' expects a string"));
      region = p.string_param();
    }
    if (name != "shared_memory_offset" && name != "shared_memory_byte_size") return;
    const bool is_unsigned = p.parameter_choice_case() == inference::InferParameter::kUint64Param;
    if (!is_unsigned &&
        (p.parameter_choice_case() != inference::InferParameter::kInt64Param || p.int64_param() < 0))
      fail(ErrorCode::bad_format, cat("parameter '", name, "' expects a non-negative integer"));
    (name == "shared_memory_offset" ? offset : size) =
        is_unsigned ? p.uint64_param() : static_cast<uint64_t>(p.int64_param());
  }
};

template <class T, class List>
void narrow(const List& list, const TensorValue& t, std::string& out) {
  out.reserve(static_cast<size_t>(list.size()) * sizeof(T));
  for (auto v : list) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      if (v < static_cast<decltype(v)>(std::numeric_limits<T>::min()) ||
          v > static_cast<decltype(v)>(std::numeric_limits<T>::max()))
        fail(ErrorCode::bad_type, cat("input '", t.name, "' of type ", wire_name(t.dtype), " holds ", v,
                                      ", which is out of range"));
    const T x = static_cast<T>(v);
    char bytes[sizeof x];
    std::memcpy(bytes, &x, sizeof x);
    out.append(bytes, sizeof x);
  }
}

Blob typed_contents(const inference::InferTensorContents& c, const TensorValue& t) {
  std::string out;
  switch (t.dtype) {
    case DType::boolean:
      narrow<bool>(c.bool_contents(), t, out);
      break;
    case DType::i8:
      narrow<int8_t>(c.int_contents(), t, out);
      break;
    case DType::i16:
      narrow<int16_t>(c.int_contents(), t, out);
      break;
    case DType::i32:
      narrow<int32_t>(c.int_contents(), t, out);
      break;
    case DType::i64:
      narrow<int64_t>(c.int64_contents(), t, out);
      break;
    case DType::u8:
      narrow<uint8_t>(c.uint_contents(), t, out);
      break;
    case DType::u16:
      narrow<uint16_t>(c.uint_contents(), t, out);
      break;
    case DType::u32:
      narrow<uint32_t>(c.uint_contents(), t, out);
      break;
    case DType::u64:
      narrow<uint64_t>(c.uint64_contents(), t, out);
      break;
    case DType::f32:
      narrow<float>(c.fp32_contents(), t, out);
      break;
    case DType::f64:
      narrow<double>(c.fp64_contents(), t, out);
      break;
    case DType::string:
      for (const std::string& s : c.bytes_contents()) append_bytes_element(out, s);
      break;
    default:
      fail(ErrorCode::bad_type,
           cat("input '", t.name, "' of type ", wire_name(t.dtype), " has no typed contents"), "",
           "send it in raw_input_contents");
  }
  return Blob::from(std::move(out));
}

}  // namespace

inference::ModelInferRequest parse_infer_message(grpc::ByteBuffer& bytes) {
  inference::ModelInferRequest m;
  if (!grpc::SerializationTraits<inference::ModelInferRequest>::Deserialize(&bytes, &m).ok())
    fail(ErrorCode::bad_format, "the message is no ModelInferRequest");
  return m;
}

void read_infer_message(inference::ModelInferRequest& m, Request& r, const SharedMemory& memory) {
  r.model = m.model_name();
  r.version = m.model_version();
  r.id = m.id();
  for (const auto& [name, p] : m.parameters()) r.parameters.emplace(name, parameter_of(name, p));
  const int raw = m.raw_input_contents_size();
  int used = 0;
  for (auto& in : *m.mutable_inputs()) {
    TensorValue t;
    t.name = in.name();
    const auto dtype = dtype_from_wire(in.datatype());
    if (!dtype)
      fail(ErrorCode::bad_type, cat("unknown datatype '", in.datatype(), "' of input '", t.name, "'"));
    t.dtype = *dtype;
    for (int64_t d : in.shape()) {
      if (d < 0) fail(ErrorCode::bad_shape, cat("input '", t.name, "' has the negative dimension ", d));
      t.dims.push_back(d);
    }
    Place place;
    for (const auto& [name, p] : in.parameters()) place.read(name, p);
    if (!place.region.empty()) {
      t.data = memory.read(place.region, place.offset, place.size, t.dtype);
    } else if (raw > 0) {
      if (in.has_contents())
        fail(ErrorCode::bad_format,
             cat("input '", t.name, "' has contents although raw_input_contents is used"));
      if (used >= raw)
        fail(ErrorCode::bad_format,
             cat("raw_input_contents has ", raw, " entries for ", m.inputs_size(), " inputs"));
      t.data = Blob::from(std::move(*m.mutable_raw_input_contents(used++)));
    } else {
      t.data = counted(memory.gate(), typed_contents(in.contents(), t));
      in.clear_contents();  // small numbers take many times their size of the message
    }
    r.inputs.push_back(std::move(t));
  }
  if (used != raw)
    fail(ErrorCode::bad_format,
         cat("raw_input_contents has ", raw, " entries for ", m.inputs_size(), " inputs"));
  for (const auto& out : m.outputs()) {
    RequestedOutput o;
    o.name = out.name();
    Place place;
    for (const auto& [name, p] : out.parameters()) {
      if (name == "classification") {
        if (p.parameter_choice_case() != inference::InferParameter::kInt64Param)
          fail(ErrorCode::bad_format, "parameter 'classification' expects an integer");
        o.classes = p.int64_param();
      } else {
        place.read(name, p);
      }
    }
    o.region = std::move(place.region);
    o.region_offset = place.offset;
    o.region_size = place.size;
    r.outputs.push_back(std::move(o));
  }
}

void write_infer_head(const Response& r, const std::vector<RequestedOutput>& outputs,
                      inference::ModelInferResponse& m) {
  m.set_model_name(r.model);
  m.set_model_version(r.version);
  m.set_id(r.id);
  for (const auto& [name, value] : r.parameters) write_parameter(value, (*m.mutable_parameters())[name]);
  for (size_t i = 0; i < r.outputs.size(); ++i) {
    const TensorValue& t = r.outputs[i];
    auto& o = *m.add_outputs();
    o.set_name(t.name);
    const std::string_view type = wire_name(t.dtype);
    o.set_datatype(type.data(), type.size());
    for (int64_t d : t.dims) o.add_shape(d);
    if (i >= outputs.size() || outputs[i].region.empty()) continue;
    auto& p = *o.mutable_parameters();
    p["shared_memory_region"].set_string_param(outputs[i].region);
    p["shared_memory_byte_size"].set_int64_param(static_cast<int64_t>(t.stored_bytes));
    if (outputs[i].region_offset)
      p["shared_memory_offset"].set_int64_param(static_cast<int64_t>(outputs[i].region_offset));
  }
}

void forward_metadata(const grpc::CallbackServerContext& context, const HeaderPattern& pattern, bool tracing,
                      Request& request) {
  if (tracing)
    if (auto it = context.client_metadata().find("traceparent"); it != context.client_metadata().end())
      request.traceparent.assign(it->second.data(), it->second.size());
  if (!pattern) return;
  for (const auto& [key, value] : context.client_metadata()) {
    const std::string name(key.data(), key.size());
    if (!is_reserved_parameter(name) && pattern.matches(name))
      request.parameters.emplace(name, std::string(value.data(), value.size()));
  }
}

grpc::Status grpc_status(const Error& e) {
  using grpc::StatusCode;
  StatusCode code = StatusCode::INVALID_ARGUMENT;
  switch (e.code()) {
    case ErrorCode::not_found:
      code = StatusCode::NOT_FOUND;
      break;
    case ErrorCode::busy:
      code = StatusCode::UNAVAILABLE;
      break;
    case ErrorCode::out_of_memory:
      code = StatusCode::RESOURCE_EXHAUSTED;
      break;
    case ErrorCode::deadline:
      code = StatusCode::DEADLINE_EXCEEDED;
      break;
    case ErrorCode::cancelled:
      code = StatusCode::CANCELLED;
      break;
    case ErrorCode::unsupported_op:
    case ErrorCode::unsupported_version:
      code = StatusCode::UNIMPLEMENTED;
      break;
    case ErrorCode::internal:
    case ErrorCode::device_lost:
    case ErrorCode::driver:
    case ErrorCode::io:
    case ErrorCode::disk_full:
    case ErrorCode::no_device:
    case ErrorCode::plugin:
      code = StatusCode::INTERNAL;
      break;
    default:
      break;
  }
  return {code, e.what()};
}

}  // namespace pelton::serve
