// SPDX-License-Identifier: Apache-2.0
// Updates: started, finished, judged.
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "base/philox.h"
#include "train/trainer_impl.h"

namespace pelton::train {

namespace {

// Beta(alpha, alpha) for alpha up to 1 (Johnk 1964), a function of seed and update alone.
double beta_draw(uint64_t seed, int64_t update, double alpha) {
  RandomStream stream{seed, static_cast<uint64_t>(update), 0x6D6978};
  for (uint64_t i = 0; i < 1000; ++i) {
    double x = std::pow(stream.uniform(2 * i), 1 / alpha), y = std::pow(stream.uniform(2 * i + 1), 1 / alpha);
    if (x + y > 0 && x + y <= 1) return x / (x + y);
  }
  return 0.5;
}

int64_t resident_bytes() {
  long pages = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return int64_t{resident} * sysconf(_SC_PAGESIZE);
}

}  // namespace

StepInputs Trainer::Impl::step_inputs(const TrainBatch& b, bool masked) const {
  StepInputs in(b.inputs);
  in.on_device = b.on_device;
  in.host.push_back(b.target);
  if (masked) in.host.push_back(Tensor::scalar<int64_t>(b.valid));
  if (step.mix)
    in.host.push_back(Tensor::scalar<float>(static_cast<float>(beta_draw(recipe.seed, done, recipe.mixup))));
  return in;
}

void Trainer::Impl::start_update(const TrainBatch& b) {
  Program& p = program_for(done / epoch_updates, needs_mask(b));
  StepInputs in = step_inputs(b, needs_mask(b));
  try {
    p.start(in, key());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::out_of_memory || !drop_other()) throw;
    p.start(in, key());
  }
  ++done;
  on_way.push_back({done, std::move(in)});
}

bool Trainer::Impl::may_start(const TrainBatch& b) {
  return on_way.empty() || (on_way.size() < active().most_running() && needs_mask(b) == last_was_masked &&
                            done % epoch_updates != 0);
}

Trainer::Impl::Finished Trainer::Impl::finish_update() {
  std::map<std::string, Tensor> out = active().finish();
  OnWay u = std::move(on_way.front());
  on_way.pop_front();
  check_finite(u, out);
  Finished f{u.update, {}};
  for (const char* name : {"loss", "lr", "grad_norm", "loss_scale"})
    if (auto it = out.find(name); it != out.end()) f.values.emplace_back(name, it->second.get_double(0));
  return f;
}

void Trainer::Impl::check_finite(const OnWay& u, const std::map<std::string, Tensor>& out) {
  double loss = out.at("loss").get_double(0);
  const char* what = std::isfinite(loss) ? nullptr : "loss";
  if (!what && out.count("grad_norm") && !std::isfinite(out.at("grad_norm").get_double(0))) {
    // An overflow under a scale that can shrink is what the scale is for.
    if (step.scaling.on && out.at("loss_scale").get_double(0) > step.scaling.floor) return;
    what = "gradient norm";
  }
  if (!what) return;
  // Updates behind it changed nothing.
  while (active().running() > 0) active().finish();
  on_way.clear();
  std::string node =
      active().first_not_finite(u.inputs.to_host(), {recipe.seed, static_cast<uint64_t>(u.update - 1)});
  fail(ErrorCode::numeric, cat("the ", what, " of update ", u.update, " is not finite (loss ", loss, ")"),
       node.empty() ? "no node before it" : cat("first not finite: ", node),
       "lower the learning rate, set step.clip_norm, or check the data for NaN; the last checkpoint is "
       "unchanged");
}

int64_t Trainer::Impl::memory_bytes() {
  const device::Device* device = active().executable().device();
  return device ? device->peak_bytes() : resident_bytes();
}

}  // namespace pelton::train
