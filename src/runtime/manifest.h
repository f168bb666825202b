// SPDX-License-Identifier: Apache-2.0
// The manifest of a plan file: everything about a plan but its graphs, as JSON.
#pragma once

#include <string>
#include <string_view>

#include "runtime/preprocess.h"

namespace pelton::runtime {

// `indent` -1: one line, as in the file. Holds no time and no path.
std::string manifest_text(const Plan& plan, int indent = -1);
// Fills what is not graph in `plan`, whose graphs are read already (the variant's too, if there is one).
// bad_format names the entry that is wrong.
void read_manifest(std::string_view text, Plan& plan, Plan* unguarded);

// The section `preprocess`. Reading fills all but the graph in `plan`, which is read already.
std::string preprocess_text(const Preprocess& preprocess);
void read_preprocess(std::string_view text, Preprocess& preprocess, Plan& plan);

}  // namespace pelton::runtime
