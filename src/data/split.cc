// SPDX-License-Identifier: Apache-2.0
// Where a training pipeline can be cut between the host and a graph.
#include <algorithm>

#include "data/evaluation.h"
#include "data/lower.h"
#include "data/lower_audio.h"
#include "data/ops/stage.h"

namespace pelton::data {
namespace {

struct Size {
  int64_t h = 0, w = 0;  // 0: differs from picture to picture
  bool fixed() const { return h > 0; }
};

// The size of the picture behind a stage.
Size behind(const StageSpec& s, const Args& a, Size before) {
  if (s.op == "crop" || s.op == "random_resized_crop" || s.op == "mosaic" ||
      (s.op == "resize" && a.text("mode") == "stretch")) {
    const auto [w, h] = size_from(a);
    return {h, w};
  }
  const bool changes = s.op == "resize" || s.op == "pad" || s.op == "paste" || s.op == "ssd_crop" ||
                       (s.op == "rotate" && a.boolean("expand"));
  return s.op == "decode" || changes ? Size{} : before;
}

// Whether a graph can do it to pictures of this size; `resizes`: a resize that is to be the graph's, of
// pictures as the source holds them (the host joins one with what stands before it).
bool has_form(const StageSpec& s, const Args& a, Size before, bool resizes, const std::string& match) {
  constexpr std::string_view always[] = {"flip",      "brightness", "contrast",  "saturation", "hue",
                                         "grayscale", "erase",      "posterize", "solarize",   "normalize"};
  if (!before.fixed()) return false;
  if (std::ranges::find(always, s.op) != std::end(always))
    return s.op != "grayscale" || a.integer("channels") == 3;
  if (s.op == "crop") {
    const auto [w, h] = size_from(a);
    return h <= before.h && w <= before.w;
  }
  // The host reads through the same taps only in the default mode.
  if (s.op == "resize") return resizes && match == "none" && a.text("mode") == "stretch";
  return s.op == "rotate" && match == "none" && !a.boolean("expand") &&
         (a.text("filter") == "linear" || a.text("filter") == "nearest");
}

}  // namespace

TrainingSplit split_training(const PipelineSpec& given, const Dims& pictures) {
  TrainingSplit out;
  out.host = training_form(given);
  out.graph = out.host;
  out.graph.source = {};
  out.graph.stages.clear();
  std::vector<StageSpec>& stages = out.host.stages;
  std::vector<Size> sizes;  // before each stage
  std::vector<bool> can;
  Size size;
  SoundForm sound;
  const bool sounds = std::ranges::none_of(stages, [](const StageSpec& s) { return s.op == "decode"; });
  int number = 0;
  bool turned = false, stored = !pictures.empty();
  for (size_t i = 0; i < stages.size(); ++i) {
    StageSpec& s = stages[i];
    const StageKind& kind = stage_kind(s.op, s.where);
    Options options = s.options;
    options.erase("device");
    const Args args(kind.schema, options, s.where);
    if (kind.make_batch && s.op != "pad_longest") return out;  // nothing moves
    const auto device = s.options.find("device");
    const bool on_host = device != s.options.end() && device->second.texts == std::vector<std::string>{"cpu"};
    stored = stored && (s.op == "decode" || s.op == "resize" || s.op == "cache" || leaves_picture(s.op));
    const bool resizes = s.op == "resize" && stored && names_gpu(s);
    const Size before = resizes ? Size{pictures[0], pictures[1]} : size;
    sizes.push_back(before);
    if (works_on_sound(s.op)) {
      can.push_back(!on_host && sounds && sound_has_form(s, sound));
      sound = sound_behind(s, sound);
    } else {
      can.push_back(!on_host && !kind.make_batch && !kind.make_join && !leaves_picture(s.op) &&
                    has_form(s, args, before, resizes, out.host.match));
    }
    stored = stored && s.op != "resize";
    // The host composes turns into one, so only one of them can go to the graph: the last.
    if (s.op == "rotate" || s.op == "affine" || s.op == "perspective") {
      if (turned) can[i] = false;
      turned = true;
    }
    if (s.op != "cache") s.number = number++;
    size = behind(s, args, size);
  }
  size_t first = stages.size();
  for (size_t i = stages.size(); i-- > 0 && (can[i] || leaves_picture(stages[i].op));)
    if (can[i]) first = i;
  if (first == stages.size()) return out;
  if (sounds) out.field = kSoundField;
  out.height = sizes[first].h;
  out.width = sizes[first].w;
  std::vector<StageSpec> kept;
  for (size_t i = 0; i < stages.size(); ++i)
    (i >= first && can[i] ? out.graph.stages : kept).push_back(std::move(stages[i]));
  stages = std::move(kept);
  return out;
}

}  // namespace pelton::data
