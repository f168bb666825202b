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
// The other samples of a stage that joins several: any sample of the source in the same epoch, as the stages
// before this one make it.
struct Others {
  int64_t count = 0;
  std::function<Sample(int64_t index)> make;
};
using JoinFn = std::function<void(Sample&, const Draw&, const Others&)>;
// A stage on finished batches; the function gives the draws of a sample by its index.
using BatchFn = std::function<void(Batch&, const std::function<Draw(int64_t)>&)>;

struct StageKind {
  Schema schema;
  // One of them is set; none for "cache", which the pipeline itself carries out.
  std::function<StageFn(const Args&, Match)> make;
  std::function<BatchFn(const Args&)> make_batch = {};
  std::function<JoinFn(const Args&)> make_join = {};
};
const std::vector<StageKind>& stage_kinds();
const StageKind& stage_kind(std::string_view op,
                            const std::string& where);  // usage error with the nearest name

// Whether what the stage does to a picture is always part of a device's job (LazyImage::device_job()).
bool device_job_takes(std::string_view op, Match match);

// The kinds, by file.
std::vector<StageKind> basic_stage_kinds();     // decode, normalize
std::vector<StageKind> field_stage_kinds();     // one_hot, cast, lookup, slice, stack, cache, pad_longest
std::vector<StageKind> geometry_stage_kinds();  // crops, resizes, flips, pads
std::vector<StageKind> warp_stage_kinds();      // rotations, affine and projective maps
std::vector<StageKind> colour_stage_kinds();    // brightness ... grayscale
std::vector<StageKind> pixel_stage_kinds();     // blur, noise, erase ...
std::vector<StageKind> policy_stage_kinds();    // rand_augment, trivial_augment
std::vector<StageKind> join_stage_kinds();      // mosaic, copy_paste
std::vector<StageKind> detect_stage_kinds();    // ssd_crop, box_encoder
std::vector<StageKind> mix_stage_kinds();       // mixup, cutmix
std::vector<StageKind> audio_stage_kinds();     // decode_audio ... spec_augment

// --- shared by the files

Filter filter_from(const Args& a);
OptionSpec filter_option();
OptionSpec antialias_option();
OptionSpec fill_option();
std::array<uint8_t, 3> fill_from(const Args& a);
// "size": one number for a square, or [height, width].
std::pair<int, int> size_from(const Args& a);                                               // width, height
PixelFormat pixel_format(const Args& a);                                                    // of normalize
OptionSpec chance_option(const char* doc = "a distribution { coin = p } makes it random");  // "probability"

}  // namespace pelton::data
