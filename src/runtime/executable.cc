// SPDX-License-Identifier: Apache-2.0
#include "runtime/executable.h"

#include <chrono>

#include "base/log.h"
#include "ir/op.h"
#include "runtime/executable_pool.h"
#include "runtime/executable_retune.h"
#include "runtime/retuner.h"

namespace pelton::runtime {

using namespace ir;

double StepEvent::flops() const {
  const OpDef& op = graph.op(node);
  if (!op.flops) return 0;
  auto dims = [](const std::vector<HostValue>& values) {
    std::vector<Dims> out;
    for (const HostValue& v : values) out.push_back(v.tensor.dims());
    return out;
  };
  return op.flops(graph, graph[node], dims(inputs), dims(outputs));
}

double StepEvent::bytes() const {
  double sum = 0;
  for (const auto* values : {&inputs, &outputs})
    for (const HostValue& v : *values)
      if (v.tensor.defined() && v.tensor.dtype() != DType::string)
        sum += static_cast<double>(v.tensor.bytes());
  return sum;
}

std::shared_ptr<const Executable> Executable::create(std::shared_ptr<const Plan> plan,
                                                     const backend::Registry& registry,
                                                     const device::Target& target,
                                                     const ExecutableOptions& options) {
  return std::shared_ptr<const Executable>(new Executable(std::move(plan), registry, target, options));
}

Executable::Executable(std::shared_ptr<const Plan> plan, const backend::Registry& registry,
                       const device::Target& target, const ExecutableOptions& options)
    : plan_(std::move(plan)),
      registry_(registry),
      target_(target),
      options_(options),
      choices_(plan_->choices),
      pool_(std::make_unique<Pool>(options.memory_budget_bytes)) {
  target_.tf32 = plan_->precision == "tf32";
  if (target_.kind != device::Kind::cpu) device_ = registry.open(target_);
  int64_t open = 0;
  if (choices_.empty())
    choices_ = choose_all(plan_->graph, registry, target_);
  else if (const std::string why = foreign(*plan_, target_); !why.empty())
    open = choose_anew(why);
  else
    resolve(choices_, plan_->graph, target_);
  const bool later = open > 0 && options.retune;  // kernels of a device are timed then
  for (const std::string& note : notes_) log_info(note);
  region_ =
      std::make_unique<Region>(plan_->graph, choices_, registry, target_,
                               RegionOptions{.max_programs = options.max_programs,
                                             .max_graphs = options.max_graphs,
                                             .least_branch_ns = options.least_branch_ns,
                                             .check_memory = options.check_memory,
                                             .budget = &pool_->budget,
                                             .device = device_,
                                             .artifacts = plan_->artifacts.get(),
                                             .by_timing = !later && !plan_->has_option(kDeterministic)});
  pool_->budget.take(region_->constant_bytes(), 0, "the plan's weights");
  if (later) start_retuning();
}

Executable::~Executable() {
  retuning_.reset();
}

void Executable::resolve(std::vector<Choice>& choices, const Graph& graph, const device::Target& target) {
  const device::Target host = device::host_of(target);
  PELTON_CHECK(choices.size() == graph.node_count(), choices.size(), " choices for ", graph.node_count(),
               " nodes");
  for (size_t i = 0; i < choices.size(); ++i) {
    Choice& c = choices[i];
    NodeId id = graph.order()[i];
    for (BodyChoices& body : c.bodies) resolve(body.choices, graph[id].get_graph(body.attr), host);
    if (c.implementation == kReference || c.implementation == kNothing) continue;
    const backend::Implementation* found = registry_.find(c.implementation);
    std::string reason = "is not in this build";
    if (found && found->device != target.kind && found->device != host.kind)
      reason = cat("is for ", device::to_string(found->device));
    else if (found)
      reason = found->refuse(graph, id, found->device == target.kind ? target : host);
    if (reason.empty()) continue;
    Choice other = choose(graph, id, registry_, target);
    notes_.push_back(cat(graph.describe(id), ": ", c.implementation, " ", found ? "refuses here: " : "",
                         reason, "; runs on ", other.implementation));
    c = std::move(other);
  }
}

const Executable& Executable::unguarded() const {
  std::call_once(pool_->unguarded_once, [&] {
    ExecutableOptions options = options_;
    options.retune = false;
    if (plan_->unguarded) pool_->unguarded = create(plan_->unguarded, registry_, target_, options);
  });
  if (!pool_->unguarded) {
    std::string facts;
    for (const Fact& f : plan_->graph.guards) facts += cat(facts.empty() ? "" : ", ", f.str());
    fail(ErrorCode::bad_shape, cat("the sizes of this run break what the plan was compiled for: ", facts), "",
         "compile the model with these sizes inside its --shape ranges");
  }
  return *pool_->unguarded;
}

Context Executable::context() const {
  return take(options_.wait_ns);
}

Context Executable::take(int64_t wait_ns) const {
  if (const auto next = follower()) return next->take(wait_ns);
  std::unique_lock lock(pool_->mutex);
  auto available = [&] {
    return follower() || !pool_->free.empty() || options_.max_contexts <= 0 ||
           pool_->made < options_.max_contexts;
  };
  auto refuse = [&] {
    fail(ErrorCode::busy, cat("all ", options_.max_contexts, " contexts of the plan are in use"), "",
         "wait, or raise max_contexts");
  };
  if (!available()) {
    if (wait_ns == 0) refuse();
    if (wait_ns < 0)
      pool_->returned.wait(lock, available);
    else if (!pool_->returned.wait_for(lock, std::chrono::nanoseconds(wait_ns), available))
      refuse();
  }
  if (const auto next = follower()) {  // while this one waited
    lock.unlock();
    return next->take(wait_ns);
  }
  std::unique_ptr<Frame> frame;
  if (!pool_->free.empty()) {
    frame = std::move(pool_->free.back());
    pool_->free.pop_back();
  } else {
    frame = Frame::make(*region_);
    ++pool_->made;
  }
  return Context(shared_from_this(), std::move(frame));
}

void Executable::give_back(std::unique_ptr<Frame> frame) const {
  frame->unbind();
  std::lock_guard lock(pool_->mutex);
  if (follower()) {  // nobody takes it again
    --pool_->made;
    return;
  }
  pool_->free.push_back(std::move(frame));
  pool_->returned.notify_one();
}

std::vector<HostValue> Executable::run(const std::vector<HostValue>& inputs,
                                       const RunOptions& options) const {
  return context().run(inputs, options);
}

void Executable::prepare(const std::vector<Dims>& input_dims) const {
  if (const auto next = follower()) return next->prepare(input_dims);
  const Graph& g = graph();
  if (input_dims.size() != g.inputs.size())
    fail(ErrorCode::usage,
         cat("the plan takes ", g.inputs.size(), " inputs, got sizes for ", input_dims.size()));
  Frame frame(*region_);  // of the host: only finds sizes
  for (size_t i = 0; i < input_dims.size(); ++i) {
    const Type& type = g.type(g.inputs[i]);
    if (type.is_tensor())
      frame.set_input(i, type.dtype == DType::string
                             ? Tensor(type.dtype, input_dims[i])
                             : Tensor::borrow(type.dtype, input_dims[i], nullptr, nullptr));
  }
  frame.find_sizes({});
  if (frame.breaks_a_guard())
    unguarded().prepare(input_dims);
  else
    region_->program(0, frame.symbols());
}

Memory Executable::memory() const {
  if (const auto next = follower()) return next->memory();
  Memory m;
  m.weights = region_->constant_bytes();
  m.device_weights = region_->device_constant_bytes();
  m.packed = region_->packed_bytes();
  m.arena = region_->arena_bytes();
  m.scratch = region_->scratch_bytes();
  std::lock_guard lock(pool_->mutex);
  m.contexts = pool_->made;
  return m;
}

std::set<const void*> Executable::plain_reads() const {
  std::set<const void*> out;
  region_->plain_reads(out);
  return out;
}

}  // namespace pelton::runtime
