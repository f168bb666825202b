// SPDX-License-Identifier: Apache-2.0
// The models by name: what each takes, which options it has and how it is built. A new model is a file in
// nn/models/ and a line in models.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/op.h"
#include "nn/net.h"

namespace pelton::nn {

struct ModelDef;

// Options of a model checked against its table, defaults filled in.
class ModelOptions {
 public:
  // usage errors name the option, the model and the nearest right name. Integers stand for reals.
  ModelOptions(const ModelDef& model, const Attrs& given);
  int64_t integer(std::string_view name) const { return std::get<int64_t>(at(name)); }
  double real(std::string_view name) const { return std::get<double>(at(name)); }
  bool flag(std::string_view name) const { return std::get<bool>(at(name)); }
  const std::string& text(std::string_view name) const { return std::get<std::string>(at(name)); }
  const Ints& ints(std::string_view name) const { return std::get<Ints>(at(name)); }
  const Attrs& all() const { return values_; }

 private:
  const ir::Attr& at(std::string_view name) const;
  Attrs values_;
};

struct ModelInput {
  std::string name;
  DType dtype = DType::f32;
  Dims sample;  // dims without the batch
};

struct ModelDef {
  std::string_view name, doc;
  std::vector<ir::AttrDef> options;
  std::vector<ModelInput> (*inputs)(const ModelOptions&);
  // Inputs have the batch as their first dim. The result is the model's one output.
  ValueId (*build)(Net&, const ModelOptions&, const std::vector<ValueId>& inputs);
  std::string_view output = "logits";
  // Axis of the classes in the output: 1 for [N, classes, S...], -1 for [N, L, classes].
  int64_t class_axis = 1;
};

const std::vector<ModelDef>& models();
const ModelDef& find_model(std::string_view name);  // bad_name, with the nearest and all names

// The graph of a model at batch `batch` ("N" for a symbol): inputs, state slots, one output.
struct BuiltModel {
  Graph graph;
  std::vector<ModelInput> inputs;
};
BuiltModel build_model(const ModelDef& model, const ModelOptions& options, const Dim& batch,
                       const NetOptions& net = {});

// Every slot becomes a constant of its initial value (or zeros) under the slot's name: the graph that
// inference compiles. Slots that a run changes are refused.
void freeze(Graph& graph);

}  // namespace pelton::nn
