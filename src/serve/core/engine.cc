// SPDX-License-Identifier: Apache-2.0
#include "serve/core/engine.h"

#include <algorithm>

#include "base/error.h"
#include "serve/core/batch_runner.h"
#include "serve/core/join.h"

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

TensorInstance::TensorInstance(const ModelConfig& config)
    : batches_(config.max_batch > 0),
      batch_inputs_(config.batch_inputs),
      batch_outputs_(config.batch_outputs) {
  for (const TensorSpec& t : config.inputs)
    if (t.ragged) ragged_.push_back({t.name, t.padding});
}

bool TensorInstance::pads_too_much(const BatchRun& batch) const {
  return std::any_of(ragged_.begin(), ragged_.end(), [&](const Ragged& r) {
    if (!r.padding || !batch.requests[0]->input(r.name)) return false;
    const auto bytes = padded_bytes(batch.requests, r.name, batch.rows);
    return !bytes || *bytes > kMaxPaddedBytes;
  });
}

// Each request by itself.
void TensorInstance::execute_apart(BatchRun& batch) {
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    BatchRun one;
    one.requests = batch.requests.subspan(i, 1);
    one.responses.resize(1);
    one.rows = batch.requests[i]->rows;
    one.responder = batch.responder;
    try {
      execute(one);
      batch.responses[i] = std::move(one.responses[0]);
    } catch (...) {
      batch.responses[i].error = error_from_current_exception(batch.requests[i]->model);
    }
    if (i == 0) batch.input_end = one.input_end;
    batch.infer_end = one.infer_end;
  }
}

void TensorInstance::execute(BatchRun& batch) {
  // Requests of odd shapes may need far more memory together than they brought: not at others' expense.
  if (batch.requests.size() > 1 && pads_too_much(batch)) return execute_apart(batch);
  std::vector<TensorValue> inputs;
  inputs.reserve(batch.requests[0]->inputs.size());
  for (size_t i = 0; i < batch.requests[0]->inputs.size(); ++i) {
    const std::string& name = batch.requests[0]->inputs[i].name;
    const auto ragged =
        std::find_if(ragged_.begin(), ragged_.end(), [&](const Ragged& r) { return r.name == name; });
    if (ragged == ragged_.end())
      inputs.push_back(join_rows(batch.requests, name, batch.rows));
    else if (ragged->padding)
      inputs.push_back(join_padded(batch.requests, name, batch.rows, *ragged->padding));
    else
      inputs.push_back(join_flat(batch.requests, name));
  }
  for (const BatchInput& b : batch_inputs_) inputs.push_back(make_batch_input(b, batch.requests));
  batch.input_end = Clock::now();
  const CancelToken* token = batch.requests.size() == 1 ? batch.requests[0]->token.get() : nullptr;
  std::vector<TensorValue> outputs;
  try {
    outputs = run(inputs, token);
  } catch (const std::exception&) {
    if (batch.requests.size() == 1) throw;
    inputs.clear();
    return execute_apart(batch);  // what is wrong with one request is no fault of the others
  }
  batch.infer_end = Clock::now();
  for (const BatchOutput& b : batch_outputs_) scatter_output(b, batch, outputs);
  if (batch.requests.size() == 1) {
    for (TensorValue& t : outputs) batch.responses[0].outputs.push_back(std::move(t));
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
