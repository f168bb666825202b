// SPDX-License-Identifier: Apache-2.0
// Every node of the training steps of the standard models is taken by an implementation of the GPU: nothing
// falls back to the host, which would copy values over and cut the recorded step in two. Needs no GPU.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "compiler/compile.h"
#include "data/lower.h"
#include "ir/text.h"
#include "register/registry.h"
#include "support/skip.h"
#include "train/step.h"

using namespace pelton;
using namespace pelton::train;

namespace {

struct Case {
  const char* model;
  ir::Attrs options;
  const char* optimizer = "sgd";
  const char* loss = "cross_entropy";
  double smoothing = 0, clip = 0;
};

std::vector<Case> cases() {
  const ir::Attrs picture{{"size", int64_t{64}}, {"classes", int64_t{10}}};
  const ir::Attrs tokens{{"vocabulary", int64_t{99}}, {"length", int64_t{16}}, {"positions", int64_t{32}},
                         {"width", int64_t{64}},      {"layers", int64_t{2}},  {"heads", int64_t{4}}};
  ir::Attrs bert = tokens;
  bert["inner"] = int64_t{96};
  ir::Attrs whole = tokens;  // attention is one op where nothing of it is dropped
  whole["dropout"] = 0.0;
  ir::Attrs classify = bert;
  classify["head"] = std::string("classify");
  classify["classes"] = int64_t{3};
  const ir::Attrs vit{{"size", int64_t{32}},  {"patch", int64_t{8}}, {"width", int64_t{64}},
                      {"layers", int64_t{2}}, {"heads", int64_t{4}}, {"classes", int64_t{10}}};
  return {
      {"mlp", {{"features", int64_t{16}}, {"hidden", ir::Ints{16, 8}}, {"classes", int64_t{3}}}, "adam"},
      {"small_cnn", {{"size", int64_t{8}}, {"widths", ir::Ints{8, 16}}, {"hidden", int64_t{32}}}, "rmsprop"},
      {"resnet18", picture, "sgd", "cross_entropy", 0.1},
      {"resnet50", picture, "lars"},
      {"mobilenet_v2", picture, "sgd"},
      {"efficientnet_b0", picture, "rmsprop", "cross_entropy", 0.1},
      {"vit", vit, "adamw", "cross_entropy", 0.1, 1},
      {"bert", bert, "adamw", "cross_entropy", 0, 1},
      {"bert", classify, "lamb"},
      {"gpt2", tokens, "adamw", "cross_entropy", 0, 1},
      {"gpt2", whole, "adamw", "cross_entropy", 0, 1},
      {"unet", {}, "adam"},
      {"autoencoder", {}, "adam", "mse"},
  };
}

// How often each node is not taken, by op, types and reason.
std::map<std::string, int> on_host(const Case& c, const std::string& precision,
                                   const std::optional<InputForm>& form = {}) {
  StepOptions o;
  if (form) o.forms = {form};
  o.batch = 4;
  o.draw = false;
  o.optimizer = c.optimizer;
  o.loss.kind = c.loss;
  o.loss.label_smoothing = c.smoothing;
  o.clip_norm = c.clip;
  o.accuracy = has_classes(o.loss);
  StepGraph step = build_train_step(*named_model(c.model, c.options), o);
  compiler::Options how;
  how.precision = precision;
  how.full_precision = {kUpdate, kStages};
  const device::Target target = device::cuda_target(90);
  const runtime::Plan plan = compiler::compile(std::move(step.graph), target, how, registry());
  std::map<std::string, int> out;
  size_t at = 0;
  for (ir::NodeId id : plan.graph.order()) {
    const runtime::Choice& choice = plan.choices[at++];
    const ir::Node& n = plan.graph[id];
    const backend::Implementation* chosen = registry().find(choice.implementation);
    if (choice.implementation == runtime::kNothing || (chosen && chosen->device == target.kind)) continue;
    std::string text(n.op->name), why;
    for (ir::ValueId v : n.inputs) append(text, cat(" ", v ? plan.graph.type(v).str() : "-"));
    for (const backend::Implementation* i : registry().candidates(n.op->name, target.kind))
      append(why, cat("; ", i->name, " ", i->refuse(plan.graph, id, target)));
    if (n.is("fused")) text = cat(text, " ", n.get_text("kind"));
    ++out[cat(text, why)];
  }
  if (const char* file = std::getenv("PELTON_PRINT_STEP"); file && std::string(file) == c.model)
    std::printf("%s\n", ir::print(plan.graph, {.max_elements = 4}).c_str());
  return out;
}

}  // namespace

TEST_CASE("every node of a training step runs on the GPU") {
  if (registry().candidates("matmul", device::Kind::cuda).empty()) PELTON_SKIP("this build has no CUDA");
  for (const Case& c : cases())
    for (const char* precision : {"fp32", "bf16", "fp16"}) {
      CAPTURE(c.model);
      CAPTURE(precision);
      std::string all;
      for (const auto& [node, count] : on_host(c, precision)) append(all, cat("\n", count, " x ", node));
      CHECK(all == "");
    }
}

TEST_CASE("a step writes its state in few launches, and takes norms in few") {
  if (registry().candidates("matmul", device::Kind::cuda).empty()) PELTON_SKIP("this build has no CUDA");
  for (const Case& c : cases()) {
    const std::string name = c.model, optimizer = c.optimizer;
    if (name != "mobilenet_v2" && name != "resnet50" && name != "vit" && optimizer != "lamb") continue;
    CAPTURE(name);
    StepOptions o;
    o.batch = 4;
    o.draw = false;
    o.optimizer = optimizer;
    o.clip_norm = c.clip;
    for (bool merged : {true, false}) {
      compiler::Options how;
      how.precision = "bf16";
      how.full_precision = {kUpdate, kStages};
      if (!merged) how.disabled = {"merge_updates"};
      const runtime::Plan plan =
          compiler::compile(build_train_step(*named_model(c.model, c.options), o).graph,
                            device::cuda_target(90), how, registry());
      const ir::Graph& g = plan.graph;
      std::set<uint32_t> writers;
      for (const ir::Slot& s : g.slots)
        if (s.next && s.next != s.old_value && g.type(s.next).rank() > 0)
          writers.insert(g[s.next].producer.index);
      int64_t sums = 0;  // of whole tensors
      for (ir::NodeId id : g.order())
        for (ir::ValueId v : g[id].is("fused") ? g[id].outputs : std::vector<ir::ValueId>{})
          if (g.type(v).rank() == 0 && g[id].get_text("kind") != "pointwise") {
            ++sums;
            break;
          }
      CAPTURE(writers.size());
      CAPTURE(sums);
      if (merged)
        CHECK((writers.size() <= 16 && sums <= 12));
      else
        CHECK(writers.size() >= 30);
    }
  }
}

TEST_CASE("every node of a pipeline's stages runs on the GPU") {
  if (registry().candidates("matmul", device::Kind::cuda).empty()) PELTON_SKIP("this build has no CUDA");
  auto between = [](double low, double high) {
    data::Param p;
    p.kind = data::Param::Kind::uniform;
    p.numbers = {low, high};
    return p;
  };
  const data::Param sometimes = [] {
    data::Param p;
    p.kind = data::Param::Kind::coin;
    p.numbers = {0.5};
    return p;
  }();
  data::PipelineSpec pictures;
  pictures.stages = {{"decode", {}, ""},
                     {"random_resized_crop", {{"size", 72}}, ""},
                     {"rotate", {{"angle", between(-10, 10)}}, ""},
                     {"crop", {{"size", 64}, {"x", between(0, 1)}, {"y", between(0, 1)}}, ""},
                     {"flip", {}, ""},
                     {"brightness", {{"factor", between(0.6, 1.4)}}, ""},
                     {"contrast", {{"factor", between(0.6, 1.4)}}, ""},
                     {"saturation", {{"factor", between(0.6, 1.4)}}, ""},
                     {"hue", {{"degrees", between(-20, 20)}}, ""},
                     {"grayscale", {{"probability", sometimes}}, ""},
                     {"posterize", {{"probability", sometimes}}, ""},
                     {"solarize", {{"probability", sometimes}}, ""},
                     {"erase", {}, ""},
                     {"normalize", {}, ""}};
  data::PipelineSpec sounds;
  sounds.stages = {{"decode_audio", {}, ""},
                   {"fit_audio", {{"samples", 8000}}, ""},
                   {"preemphasis", {}, ""},
                   {"mel_spectrogram", {{"mels", 40}}, ""},
                   {"to_decibels", {{"top_db", 80}}, ""},
                   {"spec_augment", {}, ""}};
  const Case of_pictures = {"mobilenet_v2", {{"size", int64_t{64}}, {"classes", int64_t{10}}}},
             of_sounds = {"mlp", {{"features", int64_t{40 * 51}}, {"classes", int64_t{10}}}};
  for (const auto& [spec, model, moved, form] :
       {std::tuple{pictures, of_pictures, size_t{12}, InputForm{DType::u8, {72, 72, 3}, {}, {}, {}}},
        std::tuple{sounds, of_sounds, size_t{4}, InputForm{DType::f32, {8000}, {}, {}, {}}}}) {
    InputForm staged = form;
    staged.stages = data::split_training(spec).graph;
    CHECK(staged.stages->stages.size() == moved);
    for (const char* precision : {"fp32", "bf16"}) {
      CAPTURE(precision);
      std::string all;
      for (const auto& [node, count] : on_host(model, precision, staged))
        append(all, cat("\n", count, " x ", node));
      CHECK(all == "");
    }
  }
}
