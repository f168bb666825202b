// SPDX-License-Identifier: Apache-2.0
// What to change when memory was not enough, and by how much.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "train/trainer_impl.h"

namespace pelton::train {

namespace {

std::string gibibytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

int64_t bytes_of(const ir::Type& type) {
  const std::optional<Dims> dims = type.is_tensor() && type.ranked ? as_dims(type.shape) : std::nullopt;
  return dims && type.dtype != DType::string ? byte_size(type.dtype, element_count(*dims)) : 0;
}

// Of a step that has been planned: what it takes beside its state, and of that what no smaller batch makes
// less, and what smaller micro-batches leave as it is.
struct StepNeeds {
  int64_t bytes = 0, gradients = 0, inputs = 0;
  // Samples that fit at once where `fixed` bytes stay; a twentieth is left for what else does.
  int64_t fitting(int64_t free, int64_t fixed, int64_t samples) const {
    const double each = static_cast<double>(std::max<int64_t>(bytes - gradients, 1));
    return static_cast<int64_t>(0.95 * static_cast<double>(free - fixed) / each *
                                static_cast<double>(samples));
  }
};
StepNeeds needs_of(const runtime::Executable& e) {
  StepNeeds n;
  n.bytes = e.memory().arena;
  const ir::Graph& g = e.graph();
  for (ir::NodeId id : g.order())  // one that no memory holds is refused before the step is planned
    for (ir::ValueId v : g[id].outputs) n.bytes = std::max(n.bytes, bytes_of(g.type(v)));
  for (const ir::Slot& s : g.slots)
    if (s.kind == ir::SlotKind::parameter && s.next) n.gradients += bytes_of(s.type);
  for (ir::ValueId v : g.inputs) n.inputs += bytes_of(g.type(v));
  return n;
}

}  // namespace

std::string Trainer::Impl::memory_advice() {
  const std::string no_state =
      "parameters and optimizer state alone do not fit: use a smaller model, freeze a part of it, or an "
      "optimizer with less state";
  if (!current && !short_program) return no_state;
  const runtime::Executable& e = active().executable();
  if (e.device() && e.memory().arena == 0) return no_state;  // it is made before the step is planned
  const StepNeeds needs = needs_of(e);
  const int64_t free = e.device() ? e.device()->free_bytes() : options.target.memory_bytes;
  const int64_t batch = recipe.data.batch, rows = batch / recipe.accumulate;
  const std::string change =
      cat("data.batch (", batch, ") or raise step.accumulate (", recipe.accumulate, ")");
  // What was missing is not the step's own.
  if (needs.bytes <= free) return cat("lower ", change, ", which divides the memory of activations");
  const std::string found = cat("a step of ", rows, " samples takes ", gibibytes(needs.bytes),
                                " beside its state, ", gibibytes(free), " are free: ");
  const int64_t fits = needs.fitting(free, needs.gradients, rows) * recipe.accumulate;
  if (fits < 1)
    return cat(found, "not one sample fits beside gradients of ", gibibytes(needs.gradients),
               ": use a smaller model or a lower step.precision");
  const std::string lower = cat(found, "lower data.batch from ", batch, " to ", fits);
  // The sums over micro-batches are a second set of gradients, and the whole batch stays.
  const int64_t at_once = needs.fitting(free, 2 * needs.gradients + needs.inputs, rows);
  int64_t parts = recipe.accumulate + 1;
  while (parts <= batch && (batch % parts != 0 || batch / parts > at_once)) ++parts;
  if (parts > batch) return lower;
  return cat(lower, ", or raise step.accumulate from ", recipe.accumulate, " to ", parts);
}

void Trainer::Impl::check_memory_message(const Error& e) {
  if (e.code() == ErrorCode::out_of_memory) throw Error(e.code(), e.message(), e.where(), memory_advice());
}

}  // namespace pelton::train
