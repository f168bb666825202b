// SPDX-License-Identifier: Apache-2.0
// A running pipeline: batches in order, made ahead of their use by the process's thread pool.
//
//   data::Pipeline train(data::load_pipeline("flowers.toml"), {.batch = 128});
//   for (data::Batch b; train.next(b);) step(b.at("image"), b.at("label"));
#pragma once

#include <memory>

#include "data/batch.h"
#include "data/order.h"
#include "data/sample.h"
#include "data/source/source.h"
#include "data/spec.h"

namespace pelton::data {

struct RunOptions {
  int64_t batch = 32;
  int64_t shards = 1, shard = 0;
  LastBatch last = LastBatch::partial;
  bool stick_to_shard = false;
  bool evaluation = false;  // the evaluation form of the stages (data/evaluation.h): nothing random
  // The training form without its last stages, which a graph does: Pipeline::graph_part(). Samples whose
  // boxes, masks or key points follow the picture stay whole.
  bool for_graph = false;
  int prefetch = 0;  // batches made ahead; 0: as many as measured rates ask for (data/pace.h)
  int64_t memory_budget_bytes = int64_t{4}
                                << 30;  // of batches in flight; fewer are made ahead when it is short
  // That consumes the batches: their buffers are pinned host memory that it copies from directly, and it
  // decodes for a decode stage with device = "gpu", which needs one.
  std::shared_ptr<device::Device> device;
  // The consumer takes pictures that the device has decoded where they are (Batch::on_device). They come to
  // the host all the same in batches of several sizes, with left-out samples, or with stages on batches.
  bool on_device = false;
};

// Where a pipeline stands: enough to go on from the same sample on any machine. About 60 bytes as text.
struct PipelineState {
  int64_t epoch = 0, step = 0;
  std::string fingerprint;  // of description, source and order options
  std::string str() const;
  static PipelineState parse(const std::string& text);
};

struct PipelineReport {
  int64_t samples = 0, batches = 0;
  int64_t bad = 0;
  std::vector<std::pair<std::string, int64_t>> bad_by_reason;  // "op: reason", most frequent first
  double read_seconds = 0;                                     // thread time
  std::vector<std::pair<std::string, double>> stage_seconds;  // thread time; pictures are decoded in "finish"
  double wait_seconds = 0;                                    // the consumer's, in next()
  int64_t batch_bytes = 0, in_flight = 0;                     // of one batch; batches in flight at most
  // What the number of threads and of batches in flight was last chosen by (data/pace.h).
  int threads = 0, readers = 0;  // of the pool, and those that beside them wait for reads
  double waiting = 0;            // share of a sample's thread time
  double slowest_batch_seconds = 0, period_seconds = 0;  // to make one; between two that are taken
  int64_t cached_samples = 0, cached_bytes = 0;          // kept by cache stages
  int64_t decoded_on_device = 0, left_to_host = 0;  // pictures; left: what the device's decoder did not take
};

class Pipeline {
 public:
  explicit Pipeline(PipelineSpec spec, RunOptions options = {});
  // A source of the caller's own instead of the description's.
  Pipeline(PipelineSpec spec, std::shared_ptr<const Source> source, RunOptions options);
  ~Pipeline();  // at any moment; waits for samples being worked on only, not for servers
  Pipeline(const Pipeline&) = delete;

  // The next batch of the epoch; false at its end (the call after that starts the next epoch). One caller at
  // a time. Errors leave the pipeline where it stood before the batch.
  bool next(Batch& batch);
  PipelineState state() const;               // of the batch that next() gives next
  void restore(const PipelineState& state);  // usage error when the pipeline is another one

  int64_t steps() const;  // an epoch
  const Order& order() const;
  const Source& source() const;
  const PipelineSpec& spec() const;
  // With for_graph, what lower_training (data/lower.h) appends to the graph that takes the batches' field
  // graph_field(): u8 pictures [N, H, W, C] or f32 sounds; no stages when nothing can move.
  const PipelineSpec& graph_part() const;
  const std::string& graph_field() const;
  PipelineReport report() const;
  // One sample with all stages done, outside any batch; its picture not finished.
  Sample make_sample(int64_t index, int64_t epoch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pelton::data
