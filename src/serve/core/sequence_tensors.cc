// SPDX-License-Identifier: Apache-2.0
// The tensors that the sequence batcher adds to a request and takes from its response: controls and states.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "serve/core/sequence.h"

namespace pelton::serve {
namespace {

std::string flag_bytes(const ControlInput& c, bool on) {
  const double v = on ? c.on : c.off;
  if (c.dtype == DType::boolean) return std::string(1, v != 0 ? '\1' : '\0');
  if (c.dtype == DType::f32) return bytes_of(static_cast<float>(v));
  return bytes_of(static_cast<int32_t>(v));
}

std::string id_bytes(const ControlInput& c, const SequenceId& id) {
  if (c.dtype == DType::string) {
    std::string out;
    append_bytes_element(out, id.text.empty() ? cat(id.number) : id.text);
    return out;
  }
  if (c.dtype == DType::u32 || c.dtype == DType::i32) return bytes_of(static_cast<uint32_t>(id.number));
  return bytes_of(id.number);
}

bool any_nonzero(const TensorValue& t) {
  return std::any_of(t.data.data, t.data.data + t.data.size, [](char c) { return c != 0; });
}

// A tensor of zeros in 64-byte aligned memory.
Blob zeros(const TensorValue& like) {
  if (like.dtype == DType::string) {
    std::string empty;
    for (size_t i = 0, n = split_bytes(like.data.data, like.data.size).size(); i < n; ++i)
      append_bytes_element(empty, "");
    return Blob::from(std::move(empty));
  }
  auto memory = allocate_bytes(like.data.size);
  std::memset(memory.get(), 0, like.data.size);
  return {memory.get(), like.data.size, memory};
}

}  // namespace

void SequenceScheduler::read_initial_states(const ModelDir& dir) {
  for (const StateSpec& s : sequence_.states) {
    TensorValue t{s.input, s.dtype, s.initial_dims, {}};
    if (config_.max_batch > 0) t.dims.insert(t.dims.begin(), 1);
    const auto count = checked_count(t.dims);
    if (!count || *count > kMaxConfigTensor / element_bytes(s.dtype))
      fail(ErrorCode::limit, cat("the initial state '", s.input, "' of shape ", t.dims, " has more than ",
                                 kMaxConfigTensor, " bytes"));
    if (!s.data_file.empty()) {
      t.data = Blob::from(dir.read("initial_state/" + s.data_file, kMaxConfigTensor));
    } else if (s.dtype == DType::string) {
      std::string empty;
      for (int64_t i = 0; i < *count; ++i) append_bytes_element(empty, "");
      t.data = Blob::from(std::move(empty));
    } else {
      const size_t size = static_cast<size_t>(byte_size(s.dtype, *count));
      auto memory = allocate_bytes(size);
      std::memset(memory.get(), 0, size);
      t.data = {memory.get(), size, memory};
    }
    if (s.dtype != DType::string && t.data.size != static_cast<size_t>(byte_size(s.dtype, *count)))
      fail(ErrorCode::bad_shape, cat("initial_state/", s.data_file, " has ", t.data.size,
                                     " bytes, the state '", s.input, "' needs ", byte_size(s.dtype, *count)));
    initial_[s.input] = std::move(t);
  }
}

void SequenceScheduler::add_controls(Request& r, const SequenceId& id, bool start, bool end,
                                     bool ready) const {
  Dims one{1};
  if (config_.max_batch > 0) one.insert(one.begin(), 1);
  for (const ControlInput& c : sequence_.controls) {
    std::string bytes;
    switch (c.kind) {
      case ControlInput::Kind::start:
        bytes = flag_bytes(c, start);
        break;
      case ControlInput::Kind::end:
        bytes = flag_bytes(c, end);
        break;
      case ControlInput::Kind::ready:
        bytes = flag_bytes(c, ready);
        break;
      case ControlInput::Kind::correlation:
        bytes = id_bytes(c, id);
        break;
    }
    r.inputs.push_back({c.name, c.dtype, one, Blob::from(std::move(bytes))});
  }
}

// A slot without a request: zeros in the shapes of another request of the batch, READY off.
RequestPtr SequenceScheduler::make_filler(const Request& like) const {
  auto r = std::make_unique<Request>();
  r->model = like.model;
  r->version = like.version;
  r->counted = false;
  const size_t own = like.inputs.size() - sequence_.controls.size() - sequence_.states.size();
  for (size_t i = 0; i < like.inputs.size(); ++i) {
    const TensorValue& t = like.inputs[i];
    if (i == own) add_controls(*r, SequenceId(), false, false, false);
    if (i >= own && i < own + sequence_.controls.size()) continue;
    r->inputs.push_back({t.name, t.dtype, t.dims, zeros(t)});
  }
  return r;
}

void SequenceScheduler::keep_states(BatchRun& run, Turn& turn) {
  for (size_t i = 0; i < turn.sequences.size(); ++i) {
    Response& response = run.responses[i];
    if (!turn.sequences[i] || response.error) continue;
    for (const StateSpec& spec : sequence_.states) {
      if (!run.requests[i]) continue;  // taken over by the engine, which keeps its own state
      const auto it = std::find_if(response.outputs.begin(), response.outputs.end(),
                                   [&](const TensorValue& t) { return t.name == spec.output; });
      if (it == response.outputs.end() || it->dtype != spec.dtype) {
        response.error =
            Error(ErrorCode::internal,
                  cat("the engine did not return state '", spec.output, "' of type ", wire_name(spec.dtype)),
                  config_.name);
        response.outputs.clear();
        break;
      }
      TensorValue state = *it;
      state.name = spec.input;
      // The rows of a batch share its memory: a state that outlives the batch gets its own.
      if (turn.sequences.size() > 1 && state.data.size) {
        auto memory = allocate_bytes(state.data.size);
        std::memcpy(memory.get(), state.data.data, state.data.size);
        state.data = {memory.get(), state.data.size, memory};
      }
      turn.sequences[i]->states[spec.input] = std::move(state);
      if (!config_.output(spec.output)) response.outputs.erase(it);
    }
  }
}

bool SequenceScheduler::is_done(const BatchRun& run, size_t i, const Sequence& s) const {
  if (s.steps + 1 >= sequence_.max_steps) return true;
  if (!sequence_.done_output.empty()) {
    for (const TensorValue& t : run.responses[i].outputs)
      if (t.name == sequence_.done_output) return any_nonzero(t);
    return true;
  }
  return i >= run.again.size() || !run.again[i];
}

}  // namespace pelton::serve
