// SPDX-License-Identifier: Apache-2.0
#include "train/program.h"

#include <cmath>

#include "device/artifacts.h"
#include "ir/op.h"
#include "tensor/narrow.h"

namespace pelton::train {

namespace {

std::shared_ptr<const runtime::Executable> make(ir::Graph graph, const device::Target& target,
                                                const compiler::Options& options,
                                                const backend::Registry& registry, bool deterministic) {
  auto plan = std::make_shared<runtime::Plan>(compiler::compile(std::move(graph), target, options, registry));
  if (target.kind != device::Kind::cpu) plan->artifacts = std::make_shared<device::Artifacts>();
  if (deterministic) plan->options[std::string(runtime::kDeterministic)] = "true";
  return runtime::Executable::create(plan, registry, target);
}

constexpr const char* kTactics = "tactics";  // kind of artifacts
constexpr std::string_view kLow = "low.";    // passes::keep_low_copies

bool all_finite(const Tensor& t) {
  if (!t.defined() || !is_float(t.dtype()) || !is_compute(t.dtype())) return true;
  if (t.dtype() == DType::f32) {
    const float* v = t.as<float>();
    for (int64_t i = 0; i < t.count(); ++i)
      if (!std::isfinite(v[i])) return false;
    return true;
  }
  for (int64_t i = 0; i < t.count(); ++i)
    if (!std::isfinite(t.get_double(i))) return false;
  return true;
}

}  // namespace

Program::Program(StepGraph step, const device::Target& target, const compiler::Options& options,
                 const backend::Registry& registry, bool deterministic)
    : inputs_(std::move(step.inputs)),
      outputs_(std::move(step.outputs)),
      trained_(std::move(step.trained)),
      executable_(make(std::move(step.graph), target, options, registry, deterministic)),
      context_(executable_->context()) {
  const ir::Graph& g = executable_->graph();
  for (size_t i = 0; i < g.slots.size(); ++i) {
    const std::string& name = g.slots[i].name;
    if (g.slots[i].kind == ir::SlotKind::cache && name.starts_with(kLow))
      low_[name.substr(kLow.size())] = i;
    else
      slots_[name] = i;
  }
  if (executable_->device()) queue_ = std::make_unique<StepQueue>(*executable_, context_);
}

std::map<std::string, Tensor> Program::run(const StepInputs& inputs, const ir::RandomKey& random) {
  PELTON_CHECK(running() == 0, "a run beside others");
  start(inputs, random);
  return finish();
}

void Program::start(const StepInputs& inputs, const ir::RandomKey& random, bool resident) {
  if (queue_)
    queue_->start(inputs, random, resident);
  else
    finished_.push_back(context_.run_tensors(inputs.to_host(), {.random = random}));
}

size_t Program::running() const {
  return queue_ ? queue_->pending() : finished_.size();
}

size_t Program::most_running() const {
  return queue_ ? StepQueue::kMost : 1;
}

std::map<std::string, Tensor> Program::finish() {
  std::vector<Tensor> results;
  if (queue_) {
    results = queue_->finish();
  } else {
    results = std::move(finished_.front());
    finished_.pop_front();
  }
  std::map<std::string, Tensor> out;
  for (size_t i = 0; i < results.size(); ++i) out[outputs_[i]] = results[i];
  return out;
}

std::string Program::first_not_finite(const std::vector<Tensor>& inputs, const ir::RandomKey& random) {
  if (queue_) queue_->clear();
  std::string found;
  runtime::RunOptions options{.random = random, .plain_values = true};
  options.observe = [&](const runtime::StepEvent& e) {
    if (!found.empty()) return;
    for (const ir::HostValue& v : e.outputs)
      if (!all_finite(v.tensor)) found = e.graph.describe(e.node);
  };
  context_.run_tensors(inputs, options);
  return found;
}

std::map<std::string, double> Program::times(const std::vector<Tensor>& inputs, const ir::RandomKey& random) {
  if (queue_) queue_->clear();
  std::map<std::string, double> out;
  runtime::RunOptions options{.random = random};
  options.observe = [&](const runtime::StepEvent& e) {
    if (e.depth > 0) return;
    std::string what(e.implementation);
    if (what != e.graph.op(e.node).name) append(what, cat(" ", e.graph.op(e.node).name));
    out[what] += static_cast<double>(e.end_ns - e.start_ns) * 1e-9;
  };
  context_.run_tensors(inputs, options);
  return out;
}

std::map<std::string, std::string> Program::tactics() const {
  std::map<std::string, std::string> out;
  if (const auto& kept = executable_->plan().artifacts)
    for (const auto& [key, content] : kept->entries())
      if (key.first == kTactics) out[key.second] = content;
  return out;
}

void Program::take_tactics(const std::map<std::string, std::string>& known) {
  if (const auto& kept = executable_->plan().artifacts)
    for (const auto& [key, content] : known) kept->add(kTactics, key, content);
}

void Program::set_state(const std::string& name, const Tensor& value) {
  context_.set_state(slots_.at(name), value);
  if (auto it = low_.find(name); it != low_.end())
    context_.set_state(it->second, narrowed(value, executable_->graph().slots[it->second].type.dtype));
}

void Program::share_state(const std::string& name, Program& with, const std::string& of) {
  context_.share_state(slots_.at(name), with.context_, with.slots_.at(of));
  const auto low = low_.find(name);
  if (low == low_.end()) return;
  const auto other = with.low_.find(of);
  const ir::Type& type = executable_->graph().slots[low->second].type;
  if (other != with.low_.end() && with.executable_->graph().slots[other->second].type == type)
    context_.share_state(low->second, with.context_, other->second);
  else
    context_.set_state(low->second, narrowed(with.state(of), type.dtype));
}

std::vector<std::string> Program::state_names() const {
  std::vector<std::string> out;
  for (const auto& [name, slot] : slots_) out.push_back(name);
  return out;
}

std::map<std::string, Tensor> Program::all_state() const {
  std::map<std::string, Tensor> out;
  for (const auto& [name, slot] : slots_) out[name] = context_.state(slot);
  return out;
}

}  // namespace pelton::train
