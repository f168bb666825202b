// SPDX-License-Identifier: Apache-2.0
// The typed view of a model's configuration that the server works with. The tree is kept beside it for the
// config endpoints.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/core/config_node.h"
#include "serve/core/wire_type.h"

namespace pelton::serve {

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Dims dims;                    // without the batch dimension; -1 is any
  std::optional<Dims> reshape;  // what the engine sees instead of dims
  bool optional = false;
  bool ragged = false;
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

struct EnsembleStep {
  std::string model;
  int64_t version = -1;                        // -1: newest
  std::map<std::string, std::string> inputs;   // step input -> ensemble tensor
  std::map<std::string, std::string> outputs;  // step output -> ensemble tensor
};

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
  std::optional<BatchingConfig> batching;
  std::vector<EnsembleStep> steps;  // an ensemble when not empty
  uint32_t max_inflight = 0;        // whole-ensemble admission; 0: the server's bound
  std::vector<WarmupSample> warmups;
  std::map<std::string, std::string> parameters, metric_tags;
  bool decoupled = false;
  std::shared_ptr<const Node> tree;

  const TensorSpec* input(std::string_view name) const;
  const TensorSpec* output(std::string_view name) const;
};

// Typed view of a tree. Everything that this server does not do is refused by the field's name
// (unsupported_op), everything inconsistent with bad_format; `notes` gains one line for each accepted field
// that has no effect here.
ModelConfig read_model_config(std::shared_ptr<const Node> tree, std::vector<std::string>* notes = nullptr);

// A map field of text values ("parameters"); bad_format if a key appears twice.
std::map<std::string, std::string> read_config_map(const Node& node, std::string_view field);

}  // namespace pelton::serve
