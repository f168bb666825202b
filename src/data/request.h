// SPDX-License-Identifier: Apache-2.0
// Pipelines behind requests: the stages of an evaluation form that one picture goes through, apart from any
// source.
#pragma once

#include "data/spec.h"
#include "runtime/pictures.h"

namespace pelton::data {

// The evaluation form without its source and without stages for labels and other fields.
PipelineSpec request_form(const PipelineSpec& spec);
// As TOML that parse_pipeline reads.
std::string pipeline_text(const PipelineSpec& spec);

// A runtime::PictureReaderMaker.
std::unique_ptr<const runtime::PictureReader> make_picture_reader(const runtime::Preprocess& preprocess);

}  // namespace pelton::data
