// SPDX-License-Identifier: Apache-2.0
// A pipeline in its two forms. Training takes the stages as they are, without those for evaluation.
// Evaluation is what a served model and a validation run see: no randomness, the same tensor every time.
//
// Evaluation form of a stage:
//   when = "train" left out, when = "eval" kept; else by what the stage is:
//   random_resized_crop       resize of the shorter side to 256/224 of the size, then a centre crop
//   cache with device = "gpu" left out: its place is training's
//   crop                      a drawn place becomes the centre
//   flip, colours, blurs ...  kept if nothing in them is drawn, else left out
//   rand_augment, trivial_augment, auto_augment, ssd_crop, perspective, erase, mosaic, spec_augment ...
//                             left out: they are random whatever their options
#pragma once

#include "data/spec.h"

namespace pelton::data {

PipelineSpec training_form(PipelineSpec spec);
PipelineSpec evaluation_form(PipelineSpec spec);
bool draws(const StageSpec& stage, const std::string& where);  // anything in it is random
// Works on fields other than the picture, so requests and compiled graphs pass over it.
bool leaves_picture(std::string_view op);
bool names_gpu(const StageSpec& stage);  // device = "gpu"
// The first decode or cache stage that does, so that the pipeline needs a device; null if none does.
const StageSpec* stage_on_device(const PipelineSpec& spec);
std::string stage_place(const PipelineSpec& spec, size_t stage);  // for messages

}  // namespace pelton::data
