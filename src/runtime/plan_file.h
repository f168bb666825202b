// SPDX-License-Identifier: Apache-2.0
// Plan files: one file a plan, readable on any target. docs/formats.md has the layout.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/packed_weights.h"
#include "runtime/preprocess.h"

namespace pelton::runtime {

bool is_plan(std::string_view first_bytes);  // by the magic; eight bytes will do

// Equal plans give equal bytes. `preprocess` may be null; `packed` is written beside the weights that it was
// made of (others are left out), and instead of them where it is `alone`, gives them back bit by bit and
// nothing but nodes of the plan's graphs takes them.
void save_plan(const Plan& plan, const std::string& path, const Preprocess* preprocess = nullptr,
               const std::vector<Packed>& packed = {});

struct LoadOptions {
  // false: weights are copied to private memory, for files that others may shorten meanwhile; packed ones are
  // then not used.
  bool map = true;
  // false: weights are not compared with their checksum; everything else always is.
  bool verify_weights = true;
  // false: what the file brings ready to run or to use, which no check can judge (kernels, choices, packed
  // weights), is left aside and made anew.
  bool trusted = true;
  // true: the plain bytes of weights that the file holds only packed are made when an executable reads them
  // (runtime/late_weights.h). For plans that nothing else reads; needs `map` and `trusted`.
  bool late = false;
};

// Every error names the file and the section. The plan keeps the file mapped for as long as it lives.
std::shared_ptr<const Plan> load_plan(const std::string& path, const LoadOptions& options = {});
// The same from memory that `owner` keeps alive; `bytes` must be 64-byte aligned.
std::shared_ptr<const Plan> parse_plan(std::string_view bytes, std::shared_ptr<const void> owner,
                                       const LoadOptions& options = {});

// What the plan file says about pictures; null if it takes tensors only.
std::shared_ptr<const Preprocess> load_preprocess(const std::string& path);

}  // namespace pelton::runtime
