// SPDX-License-Identifier: Apache-2.0
// Stages: what a pipeline does to a sample. A stage is a function of the sample and its own draws; it holds
// no state, so any thread may run it on any sample at any time.
#pragma once

#include <functional>

#include "data/batch.h"
#include "data/sample.h"
#include "data/schema.h"

namespace pelton::data {

using StageFn = std::function<void(Sample&, const Draw&)>;
// A stage on finished batches; the function gives the draws of a sample by its index.
using BatchFn = std::function<void(Batch&, const std::function<Draw(int64_t)>&)>;

struct StageKind {
  Schema schema;
  std::function<StageFn(const Args&, Match)> make;      // empty for stages on batches
  std::function<BatchFn(const Args&)> make_batch = {};  // empty for stages on samples
};
const std::vector<StageKind>& stage_kinds();
const StageKind& stage_kind(std::string_view op,
                            const std::string& where);  // usage error with the nearest name

// The kinds, by file.
std::vector<StageKind> basic_stage_kinds();     // decode, normalize, one_hot, cast
std::vector<StageKind> geometry_stage_kinds();  // crops, resizes, flips, rotations, warps, pads
std::vector<StageKind> colour_stage_kinds();    // brightness ... grayscale
std::vector<StageKind> pixel_stage_kinds();     // blur, noise, erase ...
std::vector<StageKind> policy_stage_kinds();    // rand_augment, trivial_augment
std::vector<StageKind> mix_stage_kinds();       // mixup, cutmix
std::vector<StageKind> audio_stage_kinds();     // decode_audio ... spec_augment

// --- shared by the files

Filter filter_from(const Args& a);
OptionSpec filter_option();
OptionSpec antialias_option();
OptionSpec fill_option();
std::array<uint8_t, 3> fill_from(const Args& a);
// "size": one number for a square, or [height, width].
std::pair<int, int> size_from(const Args& a);  // width, height
PixelFormat pixel_format(const Args& a);       // of normalize

}  // namespace pelton::data
