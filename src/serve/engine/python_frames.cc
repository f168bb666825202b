// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/python_frames.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/engine/python_messages.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

constexpr size_t padded(size_t n) {
  return (n + 7) & ~size_t{7};
}

template <class T>
void put(std::string& out, T v) {
  out.append(reinterpret_cast<const char*>(&v), sizeof v);
}

void put_text(std::string& out, std::string_view text) {
  out += text;
  out.append(padded(text.size()) - text.size(), '\0');
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  template <class T>
  T get() {
    T v;
    std::memcpy(&v, take(sizeof v).data(), sizeof v);
    return v;
  }
  std::string_view text(size_t size) {
    const std::string_view t = take(size);
    take(padded(size) - size);
    return t;
  }

 private:
  std::string_view take(size_t size) {
    if (size > left_.size())
      fail(ErrorCode::bad_format, "the model's process sends an answer that is cut off");
    const std::string_view t = left_.substr(0, size);
    left_.remove_prefix(size);
    return t;
  }
  std::string_view left_;
};

TensorValue read_tensor(Reader& in, const Frame& frame) {
  const auto type = in.get<uint8_t>();
  const auto rank = in.get<uint8_t>();
  const auto name = in.get<uint16_t>();
  in.get<uint32_t>();
  const auto offset = in.get<uint64_t>(), size = in.get<uint64_t>();
  TensorValue t;
  for (int i = 0; i < rank; ++i) t.dims.push_back(in.get<int64_t>());
  t.name = in.text(name);
  if (type >= kDTypeCount || wire_name(static_cast<DType>(type)).empty())
    fail(ErrorCode::bad_type, cat("tensor '", t.name, "' has an unknown type"));
  t.dtype = static_cast<DType>(type);
  t.data = frame.blob(offset, size);
  check_size(t);
  return t;
}

// What a request has beyond the fixed fields; empty where that is nothing.
std::string more_fields(const Request& r) {
  Json more = Json::object();
  if (!r.outputs.empty()) {
    more["outputs"] = Json::array();
    for (const RequestedOutput& o : r.outputs) more["outputs"].push_back(o.name);
  }
  if (!r.sequence.text.empty()) more["correlation"] = r.sequence.text;
  if (!r.parameters.empty()) more["parameters"] = parameters_json(r.parameters);
  return more.empty() ? std::string() : more.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string execute_head(uint64_t batch, std::span<const RequestPtr> requests, const ModelConfig& config,
                         uint64_t first_key, std::vector<Blob>& blobs) {
  std::string out;
  out.reserve(16 + requests.size() * (40 + 64 * config.inputs.size()));
  put(out, batch);
  put(out, static_cast<uint32_t>(requests.size()));
  put(out, uint32_t{0});
  uint64_t offset = 0;
  for (const RequestPtr& p : requests) {
    const Request& r = *p;
    const std::string more = more_fields(r);
    put(out, first_key++);
    put(out, r.timeout_us);
    put(out, r.sequence.number);
    put(out, static_cast<uint32_t>((r.sequence_start ? 1 : 0) | (r.sequence_end ? 2 : 0)));
    put(out, static_cast<uint32_t>(r.id.size()));
    put(out, static_cast<uint32_t>(more.size()));
    put(out, static_cast<uint32_t>(r.inputs.size()));
    put_text(out, r.id);
    put_text(out, more);
    for (const TensorValue& t : r.inputs) {
      put(out, static_cast<uint8_t>(t.dtype));
      put(out, static_cast<uint8_t>(t.dims.size()));
      put(out, static_cast<uint16_t>(t.name.size()));
      put(out, uint32_t{0});
      put(out, offset);
      put(out, static_cast<uint64_t>(t.data.size));
      for (int64_t d : t.dims) put(out, d);
      put_text(out, t.name);
      blobs.push_back(stable(t.data));
      offset += (t.data.size + 63) / 64 * 64;
    }
  }
  return out;
}

Clock::time_point process_time(uint64_t ns, Clock::time_point least, Clock::time_point most) {
  return std::clamp(Clock::time_point(std::chrono::nanoseconds(static_cast<int64_t>(ns))), least, most);
}

uint64_t executed_batch(const Frame& frame) {
  return Reader(frame.head).get<uint64_t>();
}

void read_executed(const Frame& frame, const ModelConfig& config, BatchRun& run) {
  Reader in(frame.head);
  in.get<uint64_t>();
  const auto count = in.get<uint32_t>();
  in.get<uint32_t>();
  const auto begin = in.get<uint64_t>(), end = in.get<uint64_t>();
  if (count != run.responses.size())
    fail(ErrorCode::bad_format,
         cat("the model's process answers ", count, " of ", run.responses.size(), " requests"));
  const auto now = Clock::now();
  run.input_end = process_time(begin, run.start, now);
  run.infer_end = process_time(end, run.input_end, now);
  for (size_t i = 0; i < count; ++i) {
    Response& r = run.responses[i];
    const auto flags = in.get<uint32_t>(), fields = in.get<uint32_t>(), outputs = in.get<uint32_t>();
    in.get<uint32_t>();
    const std::string_view more = in.text(fields);
    if (fields) {
      const Json j = Json::parse(more, nullptr, false);
      if (!j.is_object()) fail(ErrorCode::bad_format, "the model's process sends what is no JSON object");
      if (j.contains("error")) r.error = read_error(j);
      if (j.contains("parameters")) r.parameters = read_parameters(j["parameters"]);
    }
    for (uint32_t k = 0; k < outputs; ++k) r.outputs.push_back(read_tensor(in, frame));
    if (flags & 2) {
      run.again.resize(count);
      run.again[i] = 1;
    } else if ((flags & 1) && !config.decoupled) {
      r.error = Error(ErrorCode::internal, "the model returned no response", config.name);
    }
    check_types(r, config);
  }
}

}  // namespace pelton::serve
