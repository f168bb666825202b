// SPDX-License-Identifier: Apache-2.0
#include "train/model.h"

#include <filesystem>

#include "nn/layers.h"
#include "onnx/import/import.h"
#include "passes/specialise.h"

namespace pelton::train {

using namespace ir;
using nn::Net;

namespace {

class NamedModel : public Trainable {
 public:
  NamedModel(const std::string& name, const Attrs& options)
      : def_(nn::find_model(name)), options_(def_, options) {}
  std::string name() const override { return std::string(def_.name); }
  std::vector<nn::ModelInput> inputs() const override { return def_.inputs(options_); }
  ValueId build(Net& net, const std::vector<ValueId>& inputs) const override {
    return def_.build(net, options_, inputs);
  }
  std::string output() const override { return std::string(def_.output); }
  int64_t class_axis() const override { return def_.class_axis; }

 private:
  const nn::ModelDef& def_;
  nn::ModelOptions options_;
};

class OnnxModel : public Trainable {
 public:
  OnnxModel(const std::string& path, const Attrs& samples)
      : name_(std::filesystem::path(path).stem().string()), graph_(onnx::import_file(path).graph) {
    fix_samples(samples, path);
    if (graph_.inputs.empty() || graph_.outputs.empty())
      fail(ErrorCode::bad_format, "the model has no input or no output", path);
    for (ValueId v : graph_.inputs) {
      const Type& t = graph_.type(v);
      const std::string where = cat(path, ": input '", graph_[v].name, "'");
      if (!t.is_tensor() || !t.ranked || t.rank() < 1)
        fail(ErrorCode::bad_shape, cat("expected a batch of samples, got ", t.str()), where);
      auto symbol = t.shape[0].as_symbol();
      if (!symbol || (!batch_.empty() && batch_ != *symbol))
        fail(ErrorCode::bad_shape,
             cat("the first size of ", t.str(), " must be the batch, one symbol for all inputs"), where,
             "export the model with a dynamic batch axis");
      batch_ = *symbol;
      nn::ModelInput input{graph_[v].name, t.dtype, {}};
      for (size_t i = 1; i < t.shape.size(); ++i) {
        if (!t.shape[i].is_const())
          fail(ErrorCode::bad_shape, cat("only the batch may be open, but the input is ", t.str()), where,
               cat("name the sizes of a sample in the recipe: model = { onnx = ..., ", input.name,
                   " = [3, 32, 32] }"));
        input.sample.push_back(t.shape[i].value());
      }
      inputs_.push_back(std::move(input));
    }
    output_ = graph_.output_name(0);
    own_statistics(path);
  }

  std::string name() const override { return name_; }
  std::vector<nn::ModelInput> inputs() const override { return inputs_; }
  std::string output() const override { return output_; }

  ValueId build(Net& net, const std::vector<ValueId>& inputs) const override {
    Builder& b = net.builder();
    std::map<std::string, Dim, std::less<>> sizes{{batch_, b.shape(inputs[0])[0]}};
    std::vector<ValueId> map(graph_.value_count());
    for (size_t i = 0; i < inputs.size(); ++i) map[graph_.inputs[i].index] = inputs[i];
    for (NodeId id : graph_.order()) {
      const Node& n = graph_[id];
      b.set_name(n.name);
      if (n.is("constant")) {
        map[n.outputs[0].index] = weight(net, id);
        continue;
      }
      std::vector<ValueId> operands;
      for (ValueId v : n.inputs) operands.push_back(v ? map[v.index] : ValueId{});
      if (n.is("batch_norm") && net.training() && statistics(id)) {
        map[n.outputs[0].index] = nn::batch_norm(
            net, operands[0], {operands[1], operands[2], graph_[n.inputs[3]].name, graph_[n.inputs[4]].name},
            {.eps = n.get_real("eps")});
        continue;
      }
      Attrs attrs = n.attrs;
      for (auto& [key, value] : attrs)
        if (Shape* dims = std::get_if<Shape>(&value))
          for (Dim& d : *dims) d = d.substitute(sizes);
      std::vector<ValueId> results =
          b.ops(n.op->name, std::move(operands), std::move(attrs), n.outputs.size());
      for (size_t i = 0; i < results.size(); ++i) map[n.outputs[i].index] = results[i];
    }
    return map[graph_.outputs[0].index];
  }

 private:
  // Gives inputs the sizes of a sample that the recipe names.
  void fix_samples(const Attrs& samples, const std::string& path) {
    constexpr int64_t kMostSamples = 1 << 20;
    if (samples.empty()) return;
    passes::InputShapes shapes;
    for (const auto& [input, value] : samples) {
      const Ints* sizes = std::get_if<Ints>(&value);
      if (!sizes)
        fail(ErrorCode::usage, cat("the sizes of a sample of '", input, "' are a list of integers"), path);
      std::vector<passes::DimRange> dims{{1, 1, kMostSamples}};
      for (int64_t size : *sizes) dims.push_back({size, size, size});
      shapes[input] = std::move(dims);
    }
    passes::specialise(graph_, shapes, nullptr, {});
  }
  // Two batch norms that update one mean would each undo what the other keeps.
  void own_statistics(const std::string& path) const {
    for (NodeId id : graph_.order()) {
      if (!graph_[id].is("constant")) continue;
      const ValueId v = graph_[id].outputs[0];
      int64_t norms = 0;
      for (const Use& u : graph_[v].uses) norms += graph_[u.user].is("batch_norm") && u.input >= 3;
      if (norms > 1)
        fail(ErrorCode::bad_format,
             cat(norms, " batch norms keep their statistics in one initialiser, '", graph_[v].name, "'"),
             path,
             "export each with its own: exporters merge equal ones, as those of batch norms that have seen "
             "no data are");
    }
  }
  // Whether a batch norm's mean and variance are named constants.
  bool statistics(NodeId id) const {
    const Node& n = graph_[id];
    for (size_t i : {3, 4})
      if (!graph_.constant(n.inputs[i]) || graph_[n.inputs[i]].name.empty()) return false;
    return true;
  }
  bool is_statistic(ValueId v) const {
    for (const Use& u : graph_[v].uses)
      if (graph_[u.user].is("batch_norm") && u.input >= 3) return true;
    return false;
  }
  ValueId weight(Net& net, NodeId id) const {
    ValueId v = graph_[id].outputs[0];
    const Tensor& t = graph_[id].get_tensor("value");
    bool trainable = is_float(t.dtype()) && t.rank() >= 1 && t.count() > 1 && !graph_[v].name.empty();
    if (!trainable) return net.builder().constant(t);
    return net.adopt(graph_[v].name, is_statistic(v) ? SlotKind::statistic : SlotKind::parameter, t);
  }

  std::string name_, output_, batch_;
  Graph graph_;
  std::vector<nn::ModelInput> inputs_;
};

}  // namespace

std::unique_ptr<Trainable> named_model(const std::string& name, const Attrs& options) {
  return std::make_unique<NamedModel>(name, options);
}
std::unique_ptr<Trainable> onnx_model(const std::string& path, const Attrs& samples) {
  return std::make_unique<OnnxModel>(path, samples);
}

}  // namespace pelton::train
