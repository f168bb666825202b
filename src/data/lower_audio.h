// SPDX-License-Identifier: Apache-2.0
// Stages on sound as IR. Spectra are transforms (op fft) of windowed frames; rows of a batch are independent
// of one another.
#pragma once

#include "data/graph_draw.h"
#include "data/spec.h"
#include "ir/builder.h"

namespace pelton::data {

// What the field "audio" is before a stage; sizes that differ from sample to sample are unknown (kOpen).
struct SoundForm {
  enum class Kind : uint8_t { open, signal, spectrum };
  Kind kind = Kind::open;
  bool mono = false;
  int64_t samples = 0;            // of a signal
  int64_t bands = 0, frames = 0;  // of a spectrum
};

bool works_on_sound(const std::string& op);
// What a stage makes of it.
SoundForm sound_behind(const StageSpec& s, const SoundForm& before);
// Whether a graph can do it to sounds of this form.
bool sound_has_form(const StageSpec& s, const SoundForm& before);

// Appends stages to f32 signals [N, samples] or spectra [N, bands, frames].
ir::ValueId lower_sounds(ir::Builder& b, const PipelineSpec& spec, ir::ValueId sounds, GraphDraw& draws);

}  // namespace pelton::data
