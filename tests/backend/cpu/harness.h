// SPDX-License-Identifier: Apache-2.0
// Runs single nodes on CPU implementations and holds them against the interpreter.
//
// Acceptance: let o be the f64 result, n the straightforward evaluation in the tensor's own precision, k the
// kernel's. In units of the last place of the output type, max |k - o| is at most 2 max |n - o| + 1 (Measure
// ulp); for sums that cancel the same holds of absolute errors, with 1 ulp of the largest value (absolute).
#pragma once

#include <string>
#include <vector>

#include "backend/kernel.h"
#include "interp/interpreter.h"

namespace pelton::test {

const backend::Registry& cpu_registry();

struct Options {
  std::string implementation;        // empty: the first that takes the node
  std::vector<bool> constant;        // inputs whose values are known when the kernel is prepared
  bool exact = false;                // check_node: the step-by-step values are the only right ones
  int64_t* scratch_bytes = nullptr;  // receives what the kernel wanted
};
// The only node of the graph (constants aside), run on the CPU. Results have logical dims and plain layout;
// inputs are given plain and converted to the layouts of the graph's types.
std::vector<Tensor> run_on_cpu(const ir::Graph& graph, const std::vector<Tensor>& inputs,
                               const Options& options = {});
// Why the implementation refuses the graph's node; "" if it does not.
std::string refusal(const ir::Graph& graph, const std::string& implementation);

enum class Measure { ulp, absolute };
// Checks k against the acceptance rule; o has dtype f64.
void check_accepted(const Tensor& kernel, const Tensor& oracle, const Tensor& naive, Measure measure);

// The graph's node on the CPU against the graph in f64 and against its node-by-node evaluation in its own
// types (composites decomposed). Integer and boolean results must be equal.
void check_node(const std::string& text, const std::vector<Tensor>& inputs, const Options& options = {},
                Measure measure = Measure::ulp);

// The physical bytes of a plain tensor in a layout, and back.
Tensor to_layout(const Tensor& plain, const ir::Layout& layout);
Tensor from_layout(const void* bytes, DType dtype, const Dims& dims, const ir::Layout& layout);

// Uniform in [low, high), rounded to the dtype; the same for the same seed.
Tensor random(DType dtype, Dims dims, uint64_t seed, double low = -2, double high = 2);
double ulp(double value, DType dtype);

}  // namespace pelton::test
