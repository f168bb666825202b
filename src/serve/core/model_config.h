// SPDX-License-Identifier: Apache-2.0
// The typed view of a model's configuration that the server works with. The tree is kept beside it for the
// config endpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/core/config_node.h"
#include "serve/core/priority.h"
#include "serve/core/wire_type.h"

namespace pelton::serve {

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Dims dims;                    // without the batch dimension; -1 is any
  std::optional<Dims> reshape;  // what the engine sees instead of dims
  bool optional = false;
  bool ragged = false;  // inputs: requests of one batch may differ in shape
  std::optional<double>
      padding;             // ragged inputs: padded to the largest shape with this value, else joined flat
  std::string label_file;  // outputs
};

struct QueuePolicy {
  bool delay_on_timeout = false;  // else reject
  uint64_t default_timeout_us = 0;
  bool allow_override = false;
  uint32_t max_queue_size = 0;  // 0: the server's own bound
};

struct BatchingConfig {
  std::vector<int64_t> preferred;  // ascending
  uint64_t max_delay_us = 0;
  bool preserve_ordering = false;
  uint64_t priority_levels = 0, default_priority = 0;
  QueuePolicy default_policy;
  std::map<uint64_t, QueuePolicy> priority_policies;
};

// A tensor by which the sequence batcher tells the engine about a request's place in its sequence.
struct ControlInput {
  enum class Kind : uint8_t { start, ready, end, correlation } kind = Kind::start;
  std::string name;
  DType dtype = DType::i32;
  double off = 0, on = 1;  // values of the flags
};

// A tensor that the server keeps between the requests of a sequence.
struct StateSpec {
  std::string input, output;
  DType dtype = DType::f32;
  Dims dims;              // without the batch dimension; -1 is any
  Dims initial_dims;      // all known
  std::string data_file;  // of the initial value, below initial_state/; empty: zeros
};

struct SequenceConfig {
  bool oldest = false;  // else direct
  bool iterative = false;
  uint64_t idle_us = 1'000'000;
  std::vector<ControlInput> controls;
  std::vector<StateSpec> states;
  uint64_t max_delay_us = 0;
  double minimum_utilization = 0;  // direct
  uint32_t max_candidates = 0;     // oldest: sequences of one instance
  std::vector<int64_t> preferred;  // oldest, ascending
  bool preserve_ordering = false;  // oldest
  // Iterative: a request runs again until this output holds a non-zero element, at most max_steps times.
  std::string done_output;
  uint32_t max_steps = 1024;

  const ControlInput* control(ControlInput::Kind kind) const;
};

// Tensors that the batcher makes for the engine from the shapes of ragged inputs.
struct BatchInput {
  enum class Kind : uint8_t {
    element_count,
    accumulated_element_count,
    accumulated_element_count_with_zero,
    max_element_count_as_shape,
    item_shape,
    item_shape_flatten,
  } kind = Kind::element_count;
  std::string target, source;
  DType dtype = DType::i32;
};
struct BatchOutput {  // scattered by the shape of an input
  std::string target, source;
};

struct RateResource {
  std::string name;
  bool global = false;
  uint32_t count = 0;
};
struct RateNeed {  // of one instance
  std::vector<RateResource> resources;
  uint32_t priority = 1;  // larger: less often
};

inline constexpr int kMaxInstances = 256;  // of one model

// Where an instance runs.
struct InstancePlace {
  enum class Kind : uint8_t { automatic, gpu, cpu, model } kind = Kind::automatic;
  int gpu = -1;       // -1: not said, or the CPU
  std::string group;  // name of its instance_group; empty: none was given
};

struct EnsembleStep {
  std::string model;
  int64_t version = -1;                        // -1: newest
  std::map<std::string, std::string> inputs;   // step input -> ensemble tensor
  std::map<std::string, std::string> outputs;  // step output -> ensemble tensor
};

// Bytes that a tensor named by a configuration, a warm-up sample or an initial state, may have.
inline constexpr int64_t kMaxConfigTensor = int64_t{1} << 30;
inline int64_t element_bytes(DType t) {  // at least, for BYTES
  return t == DType::string ? 4 : bits(t) / 8;
}

struct WarmupInput {
  std::string name;
  DType dtype = DType::f32;
  Dims dims;
  enum class Source { zero, random, file } source = Source::zero;
  std::string file;
};
struct WarmupSample {
  std::string name;
  int64_t batch = 0;  // 0: the model does not batch
  uint32_t count = 1;
  std::vector<WarmupInput> inputs;
};

struct Optimization {
  Priority priority = Priority::normal;  // of the instances' threads
  int64_t graph_level = 0;               // of ONNX Runtime: 0 everything, 1 extended, -1 basic, 2 nothing
};

struct VersionPolicy {
  enum class Kind { latest, all, specific } kind = Kind::latest;
  uint32_t latest = 1;
  std::vector<int64_t> specific;
};

struct ModelConfig {
  std::string name, platform, backend, default_file;
  int64_t max_batch = 0;  // 0: requests have no batch dimension
  std::vector<TensorSpec> inputs, outputs;
  VersionPolicy versions;
  int instances = 1;
  std::vector<InstancePlace> places = {{}};  // by instance
  std::vector<RateNeed> rate_needs;          // by instance; empty: none
  std::optional<BatchingConfig> batching;
  std::optional<SequenceConfig> sequence;
  Optimization optimization;
  std::vector<BatchInput> batch_inputs;
  std::vector<BatchOutput> batch_outputs;
  bool cached = false;
  std::vector<EnsembleStep> steps;  // an ensemble when not empty
  uint32_t max_inflight = 0;        // whole-ensemble admission; 0: the server's bound
  std::vector<WarmupSample> warmups;
  std::map<std::string, std::string> parameters, metric_tags;
  bool decoupled = false;
  std::vector<double>
      first_response_buckets_ms;  // of the histogram of decoupled models; empty: the usual ones
  std::shared_ptr<const Node> tree;
  std::string model_file;  // that was found where the tree names none
  std::vector<int> gpus;   // that the engine can use

  const TensorSpec* input(std::string_view name) const;
  const TensorSpec* output(std::string_view name) const;
  // What the engine sees: the clients' tensors, those of the sequence batcher and those made for ragged
  // batches. Dimensions are without the batch; `flat` ones have no batch dimension at all.
  struct EngineTensor {
    TensorSpec spec;
    bool flat = false;
  };
  std::vector<EngineTensor> engine_inputs() const;
  std::vector<EngineTensor> engine_outputs() const;
};

// Typed view of a tree. Everything that this server does not do is refused by the field's name
// (unsupported_op), everything inconsistent with bad_format.
ModelConfig read_model_config(std::shared_ptr<const Node> tree);
// The tree with what is in force where it says nothing: instance groups, version policy, file, platform.
std::unique_ptr<Node> config_in_force(const ModelConfig& config);
std::string platform_in_force(const ModelConfig& config);  // empty: the backend has no name of that kind
// Refuses (unsupported_op) the fields that are the engine's to honour where `honours` says no to their paths.
void check_engine_fields(const ModelConfig& config, const std::function<bool(std::string_view)>& honours);

// Parts of the reading.
SequenceConfig read_sequence_config(const Node& node, const std::map<std::string, std::string>& parameters,
                                    int64_t max_batch);
void read_ragged_config(const Node& tree, ModelConfig& config);
std::vector<RateNeed> read_rate_needs(const Node& tree);

// Settles `places` for an engine that can use these GPUs: automatic ones and those of kind GPU that name none
// get an instance on each, or on the CPU where there is none. no_device if a group wants a GPU that is not
// there.
void place_instances(ModelConfig& config, const std::vector<int>& gpus);

// Names of the tensors that the server adds by itself; a configuration is not completed with them.
bool is_added_tensor(const Node& tree, std::string_view name);

// A map field of text values ("parameters"); bad_format if a key appears twice.
std::map<std::string, std::string> read_config_map(const Node& node, std::string_view field);

}  // namespace pelton::serve
