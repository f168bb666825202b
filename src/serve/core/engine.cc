// SPDX-License-Identifier: Apache-2.0
#include "serve/core/engine.h"

#include <cstring>

#include "base/error.h"

namespace pelton::serve {
namespace {

struct RefusedBackend {
  std::string_view name, fix;
};
constexpr RefusedBackend kRefused[] = {
    {"pytorch", "export the model to ONNX"},
    {"tensorflow", "export the model to ONNX"},
    {"openvino", "serve the ONNX model it was made from"},
    {"tensorrt", "serve the ONNX model it was made from"},
    {"dali", "put the preprocessing into the plan with compile --preprocess"},
    {"fil", "export the model to ONNX"},
    {"vllm", "text generation has its own engine"},
};

TensorValue join(std::span<const RequestPtr> requests, size_t input, int64_t rows) {
  const TensorValue& first = requests[0]->inputs[input];
  if (requests.size() == 1) return first;
  size_t size = 0;
  for (const RequestPtr& r : requests) size += r->input(first.name)->data.size;
  auto memory = allocate_bytes(size);
  size_t at = 0;
  for (const RequestPtr& r : requests) {
    const Blob& b = r->input(first.name)->data;
    if (b.size) std::memcpy(memory.get() + at, b.data, b.size);
    at += b.size;
  }
  TensorValue joined{first.name, first.dtype, first.dims, {memory.get(), size, memory}};
  joined.dims[0] = rows;
  return joined;
}

// The byte range of rows [begin, begin + rows) of a batched output.
Blob take_rows(const TensorValue& t, int64_t begin, int64_t rows) {
  if (t.dtype != DType::string) {
    const size_t row_bytes = t.dims[0] ? t.data.size / static_cast<size_t>(t.dims[0]) : 0;
    return t.data.slice(row_bytes * static_cast<size_t>(begin), row_bytes * static_cast<size_t>(rows));
  }
  auto elements = split_bytes(t.data.data, t.data.size);
  const size_t per_row = t.dims[0] ? elements.size() / static_cast<size_t>(t.dims[0]) : 0;
  auto offset = [&](size_t element) {
    return element < elements.size() ? static_cast<size_t>(elements[element].data() - 4 - t.data.data)
                                     : t.data.size;
  };
  const size_t from = offset(per_row * static_cast<size_t>(begin));
  return t.data.slice(from, offset(per_row * static_cast<size_t>(begin + rows)) - from);
}

}  // namespace

const Backend& BackendTable::get(const std::string& name) const {
  if (auto it = backends_.find(name); it != backends_.end()) return *it->second;
  for (const RefusedBackend& r : kRefused)
    if (r.name == name)
      fail(ErrorCode::unsupported_op, cat("backend '", name, "' is not supported"), "", std::string(r.fix));
  std::string known;
  for (const auto& [n, unused] : backends_) known += cat(known.empty() ? "" : ", ", n);
  fail(ErrorCode::not_found, cat("no backend named '", name, "'"), "", cat("this server has: ", known));
}

void TensorInstance::execute(BatchRun& batch) {
  std::vector<TensorValue> inputs;
  inputs.reserve(batch.requests[0]->inputs.size());
  for (size_t i = 0; i < batch.requests[0]->inputs.size(); ++i)
    inputs.push_back(join(batch.requests, i, batch.rows));
  batch.input_end = Clock::now();
  const CancelToken* token = batch.requests.size() == 1 ? batch.requests[0]->token.get() : nullptr;
  std::vector<TensorValue> outputs = run(inputs, token);
  batch.infer_end = Clock::now();
  if (batch.requests.size() == 1) {
    batch.responses[0].outputs = std::move(outputs);
    return;
  }
  for (const TensorValue& t : outputs)
    if (!batches_ || t.dims.empty() || t.dims[0] != batch.rows)
      fail(ErrorCode::bad_shape,
           cat("output '", t.name, "' has shape ", t.dims, " for a batch of ", batch.rows, " rows"), "",
           "set max_batch_size to 0 if the first dimension is not the batch");
  int64_t begin = 0;
  for (size_t r = 0; r < batch.requests.size(); ++r) {
    const int64_t rows = batch.requests[r]->rows;
    for (const TensorValue& t : outputs) {
      TensorValue part{t.name, t.dtype, t.dims, take_rows(t, begin, rows)};
      part.dims[0] = rows;
      batch.responses[r].outputs.push_back(std::move(part));
    }
    begin += rows;
  }
}

}  // namespace pelton::serve
