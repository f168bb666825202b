// SPDX-License-Identifier: Apache-2.0
// Checkpoints: safetensors files that hold every state slot under its name, and as metadata what a run needs
// to go on (docs/formats.md). Written in the background from tensors that the run shares and no longer
// changes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace pelton::train {

struct Checkpoint {
  std::map<std::string, Tensor> state;  // by slot name
  // Where the run stands.
  int64_t updates = 0, epoch = 0, epoch_step = 0;
  std::string data_state;  // of the training pipeline
  std::string model;       // name of the model
  std::string recipe;      // TOML
  std::string version;     // of Pelton that wrote it
  double best = 0;         // best metric so far
  bool has_best = false;
  int64_t since_best = 0;                      // evaluations
  std::map<std::string, std::string> tactics;  // choices that kernels made by timing, by key
};

// Refuses (bad_format) what is damaged: the checksum covers every tensor and every field.
Checkpoint read_checkpoint(const std::string& path);
void write_checkpoint(const std::string& path, const Checkpoint& c);

std::string checkpoint_name(int64_t updates);  // step-000001200.safetensors
// Checkpoint files of a folder, newest first; best.safetensors is not among them.
std::vector<std::string> list_checkpoints(const std::string& folder);
// The newest that reads whole. Damaged ones are skipped with a warning; not_found if none is left.
Checkpoint newest_checkpoint(const std::string& folder);

// Writes in the background, one at a time. An error is thrown by the next call.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string folder, int64_t keep);
  ~CheckpointWriter();                  // waits; an error that nobody asked for is logged
  void write(Checkpoint c, bool best);  // waits for the one before
  void wait();

 private:
  void finish(const Checkpoint& c, bool best);
  std::string folder_;
  int64_t keep_;
  struct Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace pelton::train
