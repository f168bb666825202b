// SPDX-License-Identifier: Apache-2.0
// Batches as a training step takes them, from a data pipeline.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/pipeline.h"
#include "train/recipe.h"

namespace pelton::train {

struct TrainBatch {
  // One a model input, `rows` rows each; then, where the step holds stages of the pipeline, the epoch i64 []
  // and the samples' indices i64 [rows].
  std::vector<Tensor> inputs;                     // undefined where the input is on the device
  std::map<size_t, data::DeviceField> on_device;  // inputs that the pipeline has left there, by their place
  Tensor target;
  int64_t valid = 0;  // rows that count; the rest is padding
};

// What the model needs: its inputs, and the type of its target for one row.
struct Wanted {
  std::vector<nn::ModelInput> inputs;
  std::string target;  // "label" or "target"
  Dims target_sample;
  int64_t classes = 0;  // labels must be below; 0: not checked
  int64_t ignore = -100;
  bool soft = false;  // labels may also be f32 [classes], shares of them (one_hot, mixup, cutmix)
};

class Loader {
 public:
  // `rows`: of a batch; short ones are padded with zeros to it. Stages that the pipeline leaves to a graph
  // (data::RunOptions::for_graph) become part of the step, by the forms of the inputs.
  Loader(std::unique_ptr<data::Pipeline> pipeline, Wanted wanted, int64_t rows);
  // False at the end of an epoch; the next call starts the next one.
  bool next(TrainBatch& batch);
  int64_t steps() const { return pipeline_->steps(); }
  int64_t samples() const { return pipeline_->source().size(); }
  std::vector<std::string> classes() const { return pipeline_->source().classes(); }
  // Forms of the inputs as the data gives them, found from its first sample; none where they fit already.
  std::vector<std::optional<InputForm>> forms(const std::vector<double>& mean,
                                              const std::vector<double>& std) const;
  // Samples are their own target, so the pipeline has to finish them.
  bool needs_whole() const { return in_step_ && target_field_.empty(); }
  // Targets are shares of classes, f32 [rows, classes].
  bool soft() const { return soft_; }
  std::string state() const { return pipeline_->state().str(); }
  void restore(const std::string& state) { pipeline_->restore(data::PipelineState::parse(state)); }

 private:
  Dims finished(const std::string& field, const Tensor& t) const;
  bool shares_of_classes(const Tensor& labels) const;
  Tensor label_rows(const data::Batch& batch, const Tensor& t) const;
  std::unique_ptr<data::Pipeline> pipeline_;
  Wanted wanted_;
  int64_t rows_;
  std::vector<std::string> fields_;  // one a model input
  std::string target_field_;         // empty: the first input is its own target
  bool in_step_ = false;             // the step holds stages of the pipeline
  bool soft_ = false;
};

struct Loaders {
  std::unique_ptr<Loader> train, eval;  // eval may be null
};
// `device`: that the steps run on; null on the CPU.
Loaders make_loaders(const Recipe& recipe, const Wanted& wanted,
                     const std::shared_ptr<device::Device>& device = nullptr);

// Windows of `length` + 1 tokens, one every `stride` tokens: fields "tokens" and "label", moved by one. With
// a stride of `length` the last token of a window is the first of the next.
std::shared_ptr<const data::Source> token_source(const std::vector<std::string>& files,
                                                 const std::string& type, int64_t length, int64_t stride);
// The samples of `source` at these indices.
std::shared_ptr<const data::Source> subset(std::shared_ptr<const data::Source> source,
                                           std::vector<int64_t> indices, std::string identity);

}  // namespace pelton::train
