// SPDX-License-Identifier: Apache-2.0
// Executions and their answers as they go between the server and a model's process: fixed little-endian
// fields and texts padded to 8 bytes, so that either side reads a request in a handful of steps.
// python/worker.py has the same layouts.
//
//   execute   u64 batch, u32 requests, u32 0; then each request:
//             u64 key, u64 timeout_us, u64 correlation id, u32 flags (1 START, 2 END), u32 bytes of the id,
//             u32 bytes of further fields (JSON, 0: none), u32 inputs; id; fields; inputs
//   executed  u64 batch, u32 responses, u32 0, u64 begin, u64 end (ns of the monotonic clock); then each
//   response:
//             u32 flags (1 no response, 2 to be run again), u32 bytes of further fields, u32 outputs, u32 0;
//             fields; outputs
//   tensor    u8 type (DType), u8 rank, u16 bytes of the name, u32 0, u64 offset and u64 size in the frame's
//   data,
//             i64 dims; name
#pragma once

#include <string>
#include <vector>

#include "serve/core/engine.h"
#include "serve/engine/worker_process.h"

namespace pelton::serve {

// Head of an execution; tensor data is added to `blobs`. Requests get the keys from `first_key` on.
std::string execute_head(uint64_t batch, std::span<const RequestPtr> requests, const ModelConfig& config,
                         uint64_t first_key, std::vector<Blob>& blobs);

uint64_t executed_batch(const Frame& frame);
// Fills in the responses and times of `run`. bad_format, bad_type or bad_shape if the frame does not add up.
void read_executed(const Frame& frame, const ModelConfig& config, BatchRun& run);

// A time of the process, which reads the same clock, kept between the two: a model may send what it likes.
Clock::time_point process_time(uint64_t ns, Clock::time_point least, Clock::time_point most);

}  // namespace pelton::serve
