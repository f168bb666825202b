// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "serve/core/model.h"

namespace pelton::serve {
namespace {

TensorValue make_input(const WarmupInput& w, int64_t batch, const ModelDir& dir) {
  TensorValue t{w.name, w.dtype, w.dims, {}};
  if (batch > 0) t.dims.insert(t.dims.begin(), batch);
  const auto count = checked_count(t.dims);
  if (!count || *count > kMaxConfigTensor / element_bytes(w.dtype))
    fail(ErrorCode::limit, cat("warm-up input '", w.name, "' of shape ", t.dims, " has more than ",
                               kMaxConfigTensor, " bytes"));
  if (w.source == WarmupInput::Source::file) {
    t.data = Blob::from(dir.read("warmup/" + w.file, kMaxConfigTensor));
    if (batch > 1) {  // the file holds one row
      std::string all;
      for (int64_t i = 0; i < batch; ++i) all.append(t.data.data, t.data.size);
      t.data = Blob::from(std::move(all));
    }
    return t;
  }
  if (w.dtype == DType::string) {
    std::string empty;
    for (int64_t i = 0; i < *count; ++i) append_bytes_element(empty, "");
    t.data = Blob::from(std::move(empty));
    return t;
  }
  std::string bytes(static_cast<size_t>(byte_size(w.dtype, *count)), '\0');
  if (w.source == WarmupInput::Source::random && w.dtype != DType::boolean)
    for (size_t i = 0; i < bytes.size(); ++i)  // small positive values in every type: the top byte stays 0
      bytes[i] = (i + 1) % static_cast<size_t>(bits(w.dtype) / 8) == 0
                     ? '\0'
                     : static_cast<char>((i * 2654435761u) >> 13 & 0x3f);
  t.data = Blob::from(std::move(bytes));
  return t;
}

}  // namespace

void Model::warm_up(const ModelDir& dir) const {
  for (const WarmupSample& sample : config_.warmups) {
    for (uint32_t run = 0; run < sample.count; ++run) {
      struct State {
        std::mutex mutex;
        std::condition_variable done;
        std::optional<Response> response;
      };
      auto state = std::make_shared<State>();
      auto request = std::make_unique<Request>();
      request->counted = false;
      if (config_.sequence && !config_.sequence->iterative) {  // one of a single request
        request->sequence.number = 1;
        request->sequence_start = request->sequence_end = true;
      }
      for (const WarmupInput& w : sample.inputs)
        if (!is_added_tensor(*config_.tree, w.name))  // controls and states come from the scheduler
          request->inputs.push_back(
              make_input(w, config_.max_batch > 0 ? std::max<int64_t>(1, sample.batch) : 0, dir));
      request->set_callback([state](Response&& r, bool final) {
        if (!final) return;
        std::lock_guard lock(state->mutex);
        state->response = std::move(r);
        state->done.notify_one();
      });
      infer(std::move(request));
      std::unique_lock lock(state->mutex);
      state->done.wait(lock, [&] { return state->response.has_value(); });
      if (state->response->error)
        throw state->response->error->within(cat("model_warmup '", sample.name, "'"));
    }
  }
}

}  // namespace pelton::serve
