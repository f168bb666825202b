// SPDX-License-Identifier: Apache-2.0
#include "data/evaluation.h"

#include <algorithm>
#include <cmath>

#include "data/ops/stage.h"

namespace pelton::data {
namespace {

enum class When : uint8_t { always, train, eval };

When when_of(const StageSpec& s, const std::string& where) {
  const auto it = s.options.find("when");
  if (it == s.options.end()) return When::always;
  const Param& p = it->second;
  if (p.kind == Param::Kind::text && p.texts[0] == "train") return When::train;
  if (p.kind == Param::Kind::text && p.texts[0] == "eval") return When::eval;
  fail(ErrorCode::usage, cat("'when' = ", p.str(), " is not \"train\" or \"eval\""), where,
       "leave 'when' out for a stage that runs always");
}

bool always_random(std::string_view op) {
  constexpr std::string_view names[] = {
      "rand_augment", "trivial_augment", "auto_augment", "ssd_crop", "perspective", "erase",      "noise",
      "grid_mask",    "spec_augment",    "mixup",        "cutmix",   "mosaic",      "copy_paste", "paste"};
  return std::ranges::find(names, op) != std::end(names);
}

// The stage without randomness, appended to `out`.
void evaluate(const StageSpec& s, const std::string& where, std::vector<StageSpec>& out) {
  if (always_random(s.op)) return;
  const StageKind& kind = stage_kind(s.op, where);
  Options bare = s.options;
  bare.erase("device");
  const Args args(kind.schema, bare, where);
  if (s.op == "random_resized_crop") {
    const auto [w, h] = size_from(args);
    if (w != h)
      fail(ErrorCode::usage, cat("random_resized_crop to ", w, "x", h, " has no evaluation form of its own"),
           where, "give it when = \"train\" and add resize and crop stages with when = \"eval\"");
    const double shorter = std::nearbyint(w * 256.0 / 224);
    out.push_back({"resize",
                   {{"size", shorter},
                    {"mode", "shorter"},
                    {"filter", args.text("filter")},
                    {"antialias", args.boolean("antialias")}},
                   where});
    out.push_back({"crop", {{"size", w}}, where});
    return;
  }
  StageSpec kept = s;
  bool random = false;
  for (const OptionSpec& o : kind.schema.options) {
    if (!args.param(o.name).is_random()) continue;
    if (s.op == "crop")
      kept.options[o.name] = 0.5;
    else if (s.op == "flip")
      kept.options[o.name] = false;
    else if (s.op == "fit_audio")
      kept.options[o.name] = 0.0;
    else
      random = true;
  }
  if (random) return;
  if (s.op == "flip") {  // one that is left without an axis does nothing
    auto mirrors = [&](std::string_view axis) { return !args.param(axis).is_random() && args.boolean(axis); };
    if (!mirrors("horizontal") && !mirrors("vertical")) return;
  }
  out.push_back(std::move(kept));
}

}  // namespace

bool draws(const StageSpec& s, const std::string& where) {
  if (always_random(s.op) || s.op == "random_resized_crop") return true;
  const StageKind& kind = stage_kind(s.op, where);
  Options bare = s.options;
  bare.erase("device");
  bare.erase("when");
  const Args args(kind.schema, bare, where);
  return std::ranges::any_of(kind.schema.options,
                             [&](const OptionSpec& o) { return args.param(o.name).is_random(); });
}

bool leaves_picture(std::string_view op) {
  static const std::vector<StageKind> fields = field_stage_kinds();
  return op == "box_encoder" ||
         std::ranges::any_of(fields, [&](const StageKind& k) { return k.schema.name == op; });
}

bool names_gpu(const StageSpec& s) {
  const auto device = s.options.find("device");
  return device != s.options.end() && device->second.texts == std::vector<std::string>{"gpu"};
}

const StageSpec* stage_on_device(const PipelineSpec& spec) {
  for (const StageSpec& s : spec.stages)
    if ((s.op == "decode" || s.op == "cache") && names_gpu(s)) return &s;
  return nullptr;
}

std::string stage_place(const PipelineSpec& spec, size_t stage) {
  const StageSpec& s = spec.stages[stage];
  return s.where.empty() ? cat(spec.name, " stage ", stage + 1, " (", s.op, ")") : s.where;
}

PipelineSpec training_form(PipelineSpec spec) {
  std::vector<StageSpec> stages;
  for (size_t i = 0; i < spec.stages.size(); ++i) {
    StageSpec s = spec.stages[i];
    s.where = stage_place(spec, i);
    if (when_of(s, s.where) == When::eval) continue;
    s.options.erase("when");
    stages.push_back(std::move(s));
  }
  spec.stages = std::move(stages);
  return spec;
}

PipelineSpec evaluation_form(PipelineSpec spec) {
  std::vector<StageSpec> stages;
  for (size_t i = 0; i < spec.stages.size(); ++i) {
    StageSpec s = spec.stages[i];
    s.where = stage_place(spec, i);
    const When when = when_of(s, s.where);
    if (when == When::train || (s.op == "cache" && names_gpu(s))) continue;
    s.options.erase("when");
    s.options.erase(
        "device");  // the GPU's decoder rounds in its own way; what is served is decoded by the CPU
    evaluate(s, s.where, stages);
  }
  spec.stages = std::move(stages);
  return spec;
}

}  // namespace pelton::data
