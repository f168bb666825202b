// SPDX-License-Identifier: Apache-2.0
// Ensembles: models wired into a DAG. A step starts as soon as its inputs are there, in the thread that
// brought the last of them; tensors pass by reference. The whole pipeline is admitted at the door, so a full
// step queue can never strand a request halfway.
#pragma once

#include <functional>
#include <memory>

#include "serve/core/model.h"

namespace pelton::serve {

using StepResolver = std::function<std::shared_ptr<const Model>(const EnsembleStep&)>;

// Checks the wiring against the steps' configurations (they must be loaded): every tensor has one producer,
// no cycle, types and shapes agree. `config` and what `finish` refers to outlive the scheduler.
std::unique_ptr<Scheduler> make_ensemble_scheduler(const ModelConfig& config,
                                                   std::shared_ptr<ModelStats> stats, Limits limits,
                                                   FinishResponse finish, StepResolver resolve);

}  // namespace pelton::serve
