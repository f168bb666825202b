// SPDX-License-Identifier: Apache-2.0
// Which implementation takes each node of a plan, and why not a faster one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/executable.h"

namespace pelton::cli {

struct SupportRow {
  std::string node, op, implementation, type;  // type: of the first result
  int depth = 0;                               // of the sub-graph
  std::vector<runtime::Refusal> refusals;
};

// Kernels are prepared at the sizes of the inputs, where they are known (fixed, by --shape or the optimum):
// one that hands its node on there is replaced by what takes it.
std::vector<SupportRow> support_rows(const runtime::Executable& executable,
                                     const std::map<std::string, std::string>& shapes,
                                     const std::map<std::string, int64_t>& optimum);
void print_support(const std::vector<SupportRow>& rows);

}  // namespace pelton::cli
