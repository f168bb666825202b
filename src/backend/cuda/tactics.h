// SPDX-License-Identifier: Apache-2.0
// Choosing among ways to compute the same thing by timing them on the GPU. Each way is recorded a few times
// in one graph, which is how it will run, and replayed; answers are kept for the life of the process.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

namespace pelton::backend::cuda {

// Microseconds of one run, recorded and replayed on the current GPU, one after the other.
double microseconds(const std::function<void(cudaStream_t)>& run, cudaStream_t stream);

struct Way {
  std::string name;  // stable: stands for the way in the memory of earlier answers
  std::function<void(cudaStream_t)> run;
};
// Index of the fastest; of the first that runs, where the time budget of the compilation is spent
// (device/timing_budget.h) or the plan chooses nothing by timing (device/artifacts.h). A way whose run throws
// is left out; if all do, the last error is thrown. `key` tells problems apart.
size_t fastest(const std::string& key, const std::vector<Way>& ways);

// Whether a choice has to be made without timing: the time budget of the compilation is spent, the user has
// interrupted it, or the plan chooses nothing by timing. Ways that take long to make are then not made.
bool timing_is_over();

// `choose`, which allocates what a timing needs and times; the first way where the GPU's memory does not hold
// that: a model that fits runs.
size_t fastest_in_memory(const std::string& key, const std::function<size_t()>& choose);

// The same where ways may be wrong, which `choose` sees and leaves out: none where all are, and where the
// memory does not hold what it takes to see it.
std::optional<size_t> sound_in_memory(const std::string& key,
                                      const std::function<std::optional<size_t>()>& choose);

// Whether the GPU's memory held what `run` took, which a model can do without.
bool fits_in_memory(const std::string& key, const std::function<void()>& run);

// The answer of an earlier timing among ways of these names, in this process or, for the same GPU model and
// versions of libraries, in another one; it saves the buffers that a timing needs. Nothing for plans that
// choose nothing by timing.
std::optional<size_t> known_fastest(const std::string& key, const std::vector<std::string>& names);

}  // namespace pelton::backend::cuda
