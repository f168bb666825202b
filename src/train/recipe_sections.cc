// SPDX-License-Identifier: Apache-2.0
// The options of a recipe, section by section, and their JSON Schema.
#include <cmath>
#include <nlohmann/json.hpp>

#include "train/recipe.h"

namespace pelton::train {

using data::OptionSpec;
using data::Schema;
using T = data::OptionType;
using Json = nlohmann::ordered_json;

namespace {

OptionSpec number(const char* name, double fallback, const char* doc, double min = 0,
                  double max = data::kNone) {
  return {name, T::number, fallback, doc, min, max};
}
OptionSpec integer(const char* name, int64_t fallback, const char* doc, double min = 0) {
  return {name, T::integer, fallback, doc, min};
}
OptionSpec text(const char* name, const char* fallback, const char* doc,
                std::vector<std::string> choices = {}) {
  return {name, T::text, fallback, doc, data::kAny, data::kNone, std::move(choices)};
}
OptionSpec flag(const char* name, bool fallback, const char* doc) {
  return {name, T::boolean, fallback, doc};
}
OptionSpec list(const char* name, T type, const char* doc) {
  return {name, type, {}, doc, data::kAny, data::kNone, {}, false, true};
}

std::vector<std::pair<std::string, Schema>> sections() {
  return {
      {"model",
       {"model",
        "a model by name with its own options, or an ONNX file",
        {text("name", "", "a built-in model: mlp, resnet18, gpt2, ..."),
         text("onnx", "", "a model file instead"),
         text("weights", "", "start from this .safetensors, .npz or .onnx file, or run folder"),
         list("fresh", T::texts, "patterns of parameters that start anew whatever the file holds")}}},
      {"data",
       {"data",
        "what is trained and evaluated on; train and eval are pipeline files or inline sources",
        {number("holdout", 0, "fraction of the training samples kept for evaluation", 0, 0.9),
         integer("batch", 32, "samples of a step", 1),
         integer("eval_batch", 0, "samples of an evaluation step; 0: as batch"),
         list("synthetic", T::numbers, "dims of made-up samples, instead of train"),
         integer("synthetic_count", 1024, "how many of them", 1),
         list("tokens", T::texts, "token files, instead of train"),
         list("eval_tokens", T::texts, "token files for evaluation"),
         integer("token_stride", 0, "tokens from one training window to the next; 0: the model's length", 0),
         text("token_type", "u16", "element of a token file; text: its bytes", {"u8", "u16", "i32", "text"}),
         list("mean", T::numbers, "of each channel, subtracted (of values / 255 where they are bytes)"),
         list("std", T::numbers, "of each channel, divided by"),
         flag("drop_last", false, "leave the short last batch of an epoch out")}}},
      {"step",
       {"step",
        "what a step computes and how many there are",
        {text("precision", "fp32",
              "what products and what lies between them compute in; fp16 scales the loss",
              {"fp32", "tf32", "bf16", "fp16"}),
         list("full_precision", T::texts, "layers, or what they lie below, that stay in f32"),
         number("loss_scale", 65536, "fp16: factor of the loss at the start; it halves after an overflow"),
         number("loss_scale_floor", 1, "fp16: an overflow at this factor is an error"),
         number("loss_scale_ceiling", 16777216, "fp16: largest factor"),
         integer("loss_scale_interval", 2000, "fp16: updates without overflow after which it doubles", 1),
         number("epochs", 0, "passes over the training samples"),
         integer("steps", 0, "updates, instead of epochs"),
         text("loss", "cross_entropy", "loss", {"cross_entropy", "bce", "mse", "l1"}),
         number("label_smoothing", 0, "part of the target spread over all classes", 0, 1),
         {"ignore", T::integer, -100, "label that counts for nothing"},
         integer("accumulate", 1, "micro-batches of a step", 1),
         number("clip_norm", 0, "largest norm of all gradients together; 0: no limit"),
         number("memory_budget", 0,
                "GiB; to stay below, results are computed again for the backward pass; 0: none"),
         number("average", 0, "decay of the moving average of the parameters; 0: none", 0, 1),
         number("mixup", 0, "alpha of mixup; 0: none", 0, 1)}}},
      {"schedule",
       {"schedule",
        "learning rate over the run; lengths below 1 are fractions of the run, else updates",
        {text("name", "constant", "form", {"constant", "step", "cosine", "one_cycle", "polynomial"}),
         number("warmup", 0, "length of a linear rise at the start"),
         number("warmup_from", 0, "fraction of the rate that the rise starts from", 0, 1),
         number("end", 0, "cosine, polynomial: fraction of the rate at the end", 0, 1),
         number("power", 1, "polynomial"), number("gamma", 0.1, "step: factor"),
         list("at", T::numbers, "step: epochs at which the factor applies"),
         number("rise", 0.3, "one_cycle: fraction of the run that rises", 0, 1),
         number("start", 0.04, "one_cycle: fraction of the peak at the start", 0, 1),
         number("final", 4e-6, "one_cycle: fraction of the peak at the end", 0, 1)}}},
      {"eval",
       {"eval",
        "when and what is evaluated",
        {number("every", 1, "epochs between evaluations; 0: only at the end"),
         text("best", "", "metric that decides which checkpoint is best and when to stop",
              {"", "loss", "accuracy", "top5", "f1", "perplexity"}),
         integer("patience", 0, "evaluations without a better one before the run stops; 0: never")}}},
      {"checkpoint",
       {"checkpoint",
        "when the run is saved",
        {number("every", 1, "epochs between checkpoints; 0: only at the end"),
         integer("steps", 0, "updates between checkpoints, besides; 0: none"),
         integer("keep", 2, "newest ones kept", 1), flag("keep_best", true, "keep the best one as well")}}},
      {"output",
       {"output",
        "where the run is written",
        {text("folder", "", "default: runs/ and the recipe's name"),
         flag("tensorboard", true, "write TensorBoard event files"), flag("html", true, "write report.html"),
         integer("every", 1, "updates between lines of metrics.jsonl", 1)}}},
      {"group",
       {"group",
        "settings of the parameters whose names match; the first matching group counts",
        {list("match", T::texts, "patterns, * for any text"),
         number("lr_scale", 1, "factor of the learning rate"),
         {"weight_decay", T::number, {}, "instead of the optimizer's", 0, data::kNone, {}, false, true},
         flag("frozen", false, "never changed"),
         integer("from_epoch", 0, "frozen before this epoch")}}}};
}

Json option_json(const OptionSpec& o) {
  Json item;
  bool numeric = o.type == T::number || o.type == T::numbers || o.type == T::integer;
  const char* type = "string";
  if (numeric) type = o.type == T::integer ? "integer" : "number";
  if (o.type == T::boolean) type = "boolean";
  item["type"] = type;
  if (numeric && std::isfinite(o.min)) item["minimum"] = o.min;
  if (numeric && std::isfinite(o.max)) item["maximum"] = o.max;
  if (!o.choices.empty()) item["enum"] = o.choices;
  Json out = item;
  if (o.type == T::numbers || o.type == T::texts) out = {{"type", "array"}, {"items", item}};
  out["description"] = o.doc;
  if (o.fallback.kind == data::Param::Kind::text) out["default"] = o.fallback.texts[0];
  if (o.fallback.kind == data::Param::Kind::number) out["default"] = o.fallback.numbers[0];
  if (o.fallback.kind == data::Param::Kind::boolean) out["default"] = o.fallback.numbers[0] != 0;
  return out;
}

Json section_json(const Schema& s, bool closed) {
  Json properties = Json::object();
  for (const OptionSpec& o : s.options) properties[o.name] = option_json(o);
  Json out = {{"type", "object"}, {"description", s.doc}, {"properties", properties}};
  if (closed) out["additionalProperties"] = false;
  return out;
}

}  // namespace

const std::vector<std::pair<std::string, Schema>>& recipe_sections() {
  static const auto all = sections();
  return all;
}

std::string recipe_schema_json() {
  Json properties = {{"version", {{"const", 1}}},
                     {"seed", {{"type", "integer"}, {"minimum", 0}, {"default", 0}}}};
  for (const auto& [name, schema] : recipe_sections()) {
    // A model has options of its own besides these.
    Json section = section_json(schema, name != "model");
    if (name == "data") {
      Json pipeline = {{"anyOf",
                        {{{"type", "string"}, {"description", "pipeline file"}},
                         {{"type", "object"}, {"description", "source, with stages = [...]"}}}}};
      section["properties"]["train"] = pipeline;
      section["properties"]["eval"] = pipeline;
    }
    properties[name] = name == "group" ? Json{{"type", "array"}, {"items", section}} : section;
  }
  Json optimizers_json = Json::array();
  for (const OptimizerDef& o : optimizers()) {
    Json one = section_json(o.schema, true);
    one["properties"]["name"] = {{"const", o.schema.name}};
    optimizers_json.push_back(one);
  }
  properties["optimizer"] = {{"oneOf", optimizers_json}};
  return Json{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "Pelton training recipe"},
              {"type", "object"},
              {"required", {"version", "model", "data"}},
              {"properties", properties},
              {"additionalProperties", false}}
      .dump(2);
}

}  // namespace pelton::train
