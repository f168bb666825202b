// SPDX-License-Identifier: Apache-2.0
// One compilation's passes: which there are, and how one runs.
#pragma once

#include <string>
#include <vector>

#include "base/function_ref.h"
#include "compiler/compile.h"

namespace pelton::compiler {

class Pipeline {
 public:
  // Refuses names of passes in the options that there are none of.
  Pipeline(ir::Graph& graph, const Options& options, runtime::Plan& plan);

  // Runs a pass unless it is switched off or an interrupt came; times, logs, prints and verifies it.
  bool run(const char* name, FunctionRef<bool()> pass);
  void print(const char* name) const;

 private:
  ir::Graph& graph_;
  const Options& options_;
  runtime::Plan& plan_;
};

}  // namespace pelton::compiler
