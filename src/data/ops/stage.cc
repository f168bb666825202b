// SPDX-License-Identifier: Apache-2.0
#include "data/ops/stage.h"

#include <algorithm>

namespace pelton::data {

const std::vector<StageKind>& stage_kinds() {
  static const std::vector<StageKind> kinds = [] {
    std::vector<StageKind> all;
    for (auto make : {basic_stage_kinds, field_stage_kinds, geometry_stage_kinds, warp_stage_kinds,
                      colour_stage_kinds, pixel_stage_kinds, policy_stage_kinds, join_stage_kinds,
                      detect_stage_kinds, mix_stage_kinds, audio_stage_kinds})
      for (StageKind& k : make()) all.push_back(std::move(k));
    return all;
  }();
  return kinds;
}

const StageKind& stage_kind(std::string_view op, const std::string& where) {
  std::vector<std::string> names;
  for (const StageKind& k : stage_kinds()) {
    if (k.schema.name == op) return k;
    names.push_back(k.schema.name);
  }
  std::string near = nearest(op, names);
  fail(ErrorCode::usage, cat("there is no stage '", op, "'"), where,
       near.empty() ? "see --schema" : cat("did you mean '", near, "'?"));
}

bool device_job_takes(std::string_view op, Match match) {
  constexpr std::string_view always[] = {"crop",     "flip",       "pad", "brightness",
                                         "contrast", "saturation", "hue", "normalize"};
  return std::ranges::find(always, op) != std::end(always) ||
         (match == Match::none && (op == "resize" || op == "random_resized_crop"));
}

Filter filter_from(const Args& a) {
  static const std::vector<std::string> names = {"nearest", "box", "linear", "hamming", "cubic", "lanczos"};
  return static_cast<Filter>(std::ranges::find(names, a.text("filter")) - names.begin());
}

OptionSpec filter_option() {
  return {"filter",
          OptionType::text,
          "linear",
          "interpolation",
          kAny,
          kNone,
          {"nearest", "box", "linear", "hamming", "cubic", "lanczos"}};
}
OptionSpec antialias_option() {
  return {"antialias", OptionType::boolean, true, "widen the filter when the picture shrinks"};
}
OptionSpec fill_option() {
  return {"fill",
          OptionType::numbers,
          std::vector<double>{0},
          "grey or [r, g, b] in 0..255 outside the picture",
          0,
          255};
}

OptionSpec chance_option(const char* doc) {
  return {"probability", OptionType::boolean, true, doc, kAny, kNone, {}, true};
}

std::array<uint8_t, 3> fill_from(const Args& a) {
  const auto& v = a.numbers("fill");
  if (v.size() != 1 && v.size() != 3)
    fail(ErrorCode::usage, cat("'fill' has ", v.size(), " numbers, not 1 or 3"), a.where());
  auto at = [&](size_t i) { return static_cast<uint8_t>(v[v.size() == 1 ? 0 : i]); };
  return {at(0), at(1), at(2)};
}

std::pair<int, int> size_from(const Args& a) {
  const auto& v = a.numbers("size");
  if (v.empty() || v.size() > 2)
    fail(ErrorCode::usage, cat("'size' has ", v.size(), " numbers, not 1 or 2"), a.where(),
         "write 224 or [height, width]");
  for (double s : v)
    if (s != static_cast<double>(static_cast<int>(s)))
      fail(ErrorCode::usage, cat("'size' holds ", s, ", not a whole number"), a.where());
  return {static_cast<int>(v.back()), static_cast<int>(v.front())};
}

}  // namespace pelton::data
