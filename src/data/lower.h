// SPDX-License-Identifier: Apache-2.0
// The tensor part of a pipeline as IR: what its stages do to decoded pictures, as nodes that any compiled
// graph can hold (a served plan, a training step).
#pragma once

#include "data/spec.h"
#include "ir/builder.h"

namespace pelton::data {

// Appends the stages of `spec` to pictures u8 [N, H, W, C]; stages that do not touch the picture are passed
// over. The result is what the host makes of the same pixels: equal bits under `match`, unless colour stages
// or a picture smaller than its crop come in, else within 1e-3 of a level (before normalisation). A random
// stage, and one that has no IR form, is a usage error that names it.
ir::ValueId lower_stages(ir::Builder& b, const PipelineSpec& spec, ir::ValueId pictures);

inline constexpr const char *kPictureField = "image", *kSoundField = "audio";

// The training form cut in two: the host makes u8 pictures of one size, or sounds of one length, a graph does
// the rest with the same draws. Cutting rounds pictures to 8 bits there; nothing else changes.
struct TrainingSplit {
  // All but the last stages on the picture; its batches hold u8 [N, H, W, C]. Or on a sound: f32 [N,
  // samples], or [N, bands, frames].
  PipelineSpec host;
  PipelineSpec graph;  // those: flips, colours, crops, erase, turns ..., normalize; spectra; may be empty
  std::string field = kPictureField;  // that the graph takes
  int64_t height = 0, width = 0;      // of pictures
};
// As many of the last stages as have an IR form. Stages that mix whole batches need finished pictures, so
// with them, as with pictures whose size differs, the graph's part is empty. `pictures`: [h, w, channels] of
// a source whose samples are pixels of one size (Source::picture_dims()); a resize straight behind the decode
// stage is then of the graph's part too if it says device = "gpu", so that the stored pictures travel.
TrainingSplit split_training(const PipelineSpec& spec, const Dims& pictures = {});

// Appends the graph's part. epoch: i64 [], indices: i64 [N] (Batch::epoch and Batch::indices): the draws are
// a pure function of these and the seed, so it does not matter where and in which batch a sample is worked
// on. Colours and spectra agree with the host's to the rounding of f32, turned pictures to one level.
ir::ValueId lower_training(ir::Builder& b, const PipelineSpec& graph, ir::ValueId given, ir::ValueId epoch,
                           ir::ValueId indices);

// The evaluation form of a pipeline as a graph of its own: input "image" u8 [N, H, W, C] with N, H and W
// open, result `output` [N, C, h, w] or [N, h, w, C].
ir::Graph lower_pipeline(const PipelineSpec& spec, const std::string& output);

}  // namespace pelton::data
