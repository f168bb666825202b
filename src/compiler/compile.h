// SPDX-License-Identifier: Apache-2.0
// Graph to plan: the pass pipeline as one readable function.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "backend/kernel.h"
#include "passes/specialise.h"
#include "runtime/plan.h"

namespace pelton::compiler {

struct Options {
  passes::InputShapes shapes;
  std::string precision = "fp32";        // or bf16, fp16, tf32 (GPUs), int8 (CPUs), best, several with commas
  std::set<std::string> full_precision;  // names of nodes, or what they lie below, that stay in f32
  std::set<std::string> disabled;        // pass names; an unknown one is a usage error that lists them
  std::set<std::string> print_after;     // pass names, or "import"
  std::function<void(std::string_view pass, const std::string& text)> print;  // where --print-after goes
  bool strict = false;       // fused groups round as ops that run alone
  bool verify_each = false;  // run the verifier after every pass
  bool finishes = false;     // at an interrupt, which otherwise ends it between passes (cancelled)
  std::map<std::string, int64_t>* fired = nullptr;  // rewrite rules that fired, for coverage
};

// Throws what passes and the verifier throw; every message names the pass.
runtime::Plan compile(ir::Graph graph, const device::Target& target, const Options& options,
                      const backend::Registry& registry);

// Why a plan in this precision is slower than in fp32 on the target; empty where it need not be.
std::string slow_precision(const device::Target& target, std::string_view precision);

// Names of the passes, in order.
std::vector<std::string> pass_names();

}  // namespace pelton::compiler
