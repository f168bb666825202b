// SPDX-License-Identifier: Apache-2.0
// Options of the stages on sound, read in one way for the host and for graphs.
#pragma once

#include "data/audio/audio.h"
#include "data/schema.h"

namespace pelton::data {

inline constexpr double kMfccFloor = 1e-10, kMfccTop = 80;  // of the decibels inside mfcc

SpectrogramOptions spectrogram_options(const Args& a);
Tensor mel_filters_of(const Args& a);

}  // namespace pelton::data
