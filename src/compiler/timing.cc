// SPDX-License-Identifier: Apache-2.0
#include "compiler/timing.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "backend/ran_by.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/thread_pool.h"
#include "runtime/executable.h"
#include "runtime/late_weights.h"

namespace pelton::compiler {

using namespace ir;

namespace {

// Small numbers of both signs in f32, small positive ones elsewhere; zeros where they may be indices.
Tensor made_up(DType dtype, int64_t bytes) {
  Tensor t(DType::u8, {bytes});
  if (dtype == DType::f32) {
    auto* p = static_cast<float*>(t.mutable_data());
    for (int64_t i = 0; i < bytes / 4; ++i) p[i] = static_cast<float>(i * 7919 % 127) / 64 - 1;
  } else {
    const bool may_index = dtype == DType::i64 || dtype == DType::i32 || dtype == DType::boolean;
    std::memset(t.mutable_data(), may_index ? 0 : 0x3c, static_cast<size_t>(bytes));
  }

  return t;
}

}  // namespace

std::vector<Candidate> measure(const std::vector<std::function<void()>>& work, double seconds,
                               double most_seconds) {
  constexpr size_t kLeastRounds = 3, kMostRounds = 200;
  std::vector<std::vector<double>> times(work.size());
  Stopwatch all;
  for (const auto& f : work) f();
  Stopwatch watch;
  const auto more = [&](size_t round) {
    if (round == 0) return true;
    return round < kLeastRounds ? all.seconds() < most_seconds : watch.seconds() < seconds;
  };
  for (size_t round = 0; round < kMostRounds && more(round); ++round) {
    if (interrupted() && round > 0) break;  // what is known by now counts
    for (size_t i = 0; i < work.size(); ++i) {
      // From the front and from the back by turns: what runs first finds the caches in another state.
      const size_t at = round % 2 ? work.size() - 1 - i : i;
      const int64_t start = now_ns();
      work[at]();
      times[at].push_back(static_cast<double>(now_ns() - start) * 1e-6);
    }
  }
  std::vector<Candidate> out;
  for (auto& t : times) {
    std::sort(t.begin(), t.end());
    const auto quantile = [&](size_t quarter) { return t[(t.size() - 1) * quarter / 4]; };
    Candidate c;
    c.ms = quantile(2);
    c.noise = c.ms > 0 ? (quantile(3) - quantile(1)) / 2 / c.ms : 0;
    out.push_back(std::move(c));
  }
  return out;
}

std::vector<Candidate> time_node(const Graph& graph, NodeId id, const SymbolValues& sizes,
                                 const std::vector<const backend::Implementation*>& implementations,
                                 const device::Target& target, double seconds, double most_seconds,
                                 std::vector<std::string>& notes) {
  const Node& n = graph[id];
  backend::Instance instance{graph, id, {}, {}, {}, sizes, target.threads};
  std::vector<Tensor> values;  // that hold the bytes
  std::vector<const void*> in;
  std::vector<void*> out;
  auto spec = [&](ValueId v) {
    const Type& t = graph.type(v);
    return backend::TensorSpec{t.dtype, eval(t.shape, sizes), t.layout};
  };
  for (ValueId v : n.inputs) {
    instance.inputs.push_back(v ? spec(v) : backend::TensorSpec{});
    const Tensor* constant = v ? graph.constant(v) : nullptr;
    instance.constants.push_back(constant ? *constant : Tensor());
    if (constant) {
      runtime::LateWeights::instance().ready(constant->data());
      values.push_back(*constant);
    } else {
      values.push_back(made_up(instance.inputs.back().dtype, v ? instance.inputs.back().bytes() : 0));
    }
    in.push_back(v ? values.back().data() : nullptr);
  }
  for (ValueId v : n.outputs) {
    instance.outputs.push_back(spec(v));
    values.push_back(Tensor(DType::u8, {std::max<int64_t>(64, instance.outputs.back().bytes())}));
    out.push_back(values.back().mutable_data());
  }
  Tensor scratch;
  const auto run = [&](const backend::Kernel& kernel) {
    backend::RunArgs args;
    args.in = in;
    args.out = out;
    args.scratch = scratch.mutable_data();
    kernel.run(args);
  };
  std::vector<std::unique_ptr<backend::Kernel>> kernels;
  std::vector<std::string> names;
  for (const backend::Implementation* i : implementations) try {
      std::unique_ptr<backend::Kernel> k = i->prepare(instance, target);
      if (backend::ran_by(k.get(), i->name) != i->name) continue;
      if (!scratch.defined() || scratch.bytes() < k->scratch_bytes())
        scratch = Tensor(DType::u8, {std::max<int64_t>(64, k->scratch_bytes())});
      run_in_pool([&] { run(*k); });
      kernels.push_back(std::move(k));
      names.emplace_back(i->name);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::cancelled) throw;
      notes.push_back(cat(graph.describe(id), ": ", i->name, " is left out: ", e.message()));
    }
  std::vector<std::function<void()>> work;
  for (const auto& k : kernels) work.emplace_back([&, kernel = k.get()] { run(*kernel); });
  std::vector<Candidate> result;
  run_in_pool([&] { result = measure(work, seconds, most_seconds); });
  for (size_t i = 0; i < result.size(); ++i) result[i].name = names[i];
  return result;
}

namespace {

// Made-up values for the inputs, by position.
std::vector<Tensor> made_up_inputs(const Graph& g, const SymbolValues& sizes) {
  std::vector<Tensor> out;
  for (ValueId v : g.inputs) {
    const Type& t = g.type(v);
    if (!t.is_tensor() || t.dtype == DType::string)
      fail(ErrorCode::bad_type, cat("takes ", t.str(), ", which is not timed"));
    const Dims dims = eval(t.shape, sizes);
    const Tensor bytes = made_up(t.dtype, byte_size(t.dtype, element_count(dims)));
    out.push_back(Tensor::borrow(t.dtype, dims, bytes.data(), std::make_shared<Tensor>(bytes)));
  }
  return out;
}

}  // namespace

std::vector<Candidate> time_plans(const std::vector<std::shared_ptr<const runtime::Plan>>& plans,
                                  const SymbolValues& sizes, const backend::Registry& registry,
                                  const device::Target& target, double seconds, double most_seconds) {
  std::vector<device::Memory> memory;  // outlives the contexts
  std::vector<runtime::Context> contexts;
  const std::vector<Tensor> values = made_up_inputs(plans.at(0)->graph, sizes);
  std::vector<std::function<void()>> work;
  contexts.reserve(plans.size());
  std::shared_ptr<device::Device> device;
  for (const auto& plan : plans) {
    const auto executable = runtime::Executable::create(plan, registry, target);
    contexts.push_back(executable->context());
    if (executable->device() && !device) {
      device = executable->shared_device();
      const std::unique_ptr<device::Stream> stream = device->make_stream();
      for (const Tensor& t : values) {
        memory.emplace_back(device, std::max<int64_t>(1, t.bytes()), "timing plans");
        stream->upload(memory.back().get(), t.data(), t.bytes());
      }
      stream->synchronize();
    }
    for (size_t i = 0; i < values.size(); ++i)
      if (device)
        contexts.back().bind_device_input(i, values[i].dims(), memory[i].get());
      else
        contexts.back().bind_input(i, values[i].dims(), values[i].data());
    work.emplace_back([context = &contexts.back()] {
      context->run_bound();
      context->outputs();
    });
  }
  return measure(work, seconds, most_seconds);
}

std::vector<Tensor> run_made_up(const runtime::Plan& plan, const backend::Registry& registry,
                                const device::Target& target) {
  const auto shared = std::make_shared<const runtime::Plan>(plan);
  const std::vector<Tensor> values = made_up_inputs(plan.graph, sizes_of(plan.graph, plan.optimum));
  return runtime::Executable::create(shared, registry, target)->context().run_tensors(values);
}

SymbolValues sizes_of(const Graph& graph, const std::map<std::string, int64_t>& optimum) {
  std::set<std::string> names;
  auto collect = [&](ValueId v) {
    for (const Dim& d : graph.type(v).shape) d.collect_symbols(names);
  };
  for (ValueId v : graph.inputs) collect(v);
  for (NodeId id : graph.order())
    for (ValueId v : graph[id].outputs) collect(v);
  SymbolValues sizes;
  for (const std::string& symbol : names) {
    const auto best = optimum.find(symbol);
    const auto range = graph.symbols->ranges.find(symbol);
    const int64_t least = range == graph.symbols->ranges.end() ? 1 : std::max<int64_t>(1, range->second.min);
    sizes[symbol] = best != optimum.end() ? best->second : least;
  }
  return sizes;
}

}  // namespace pelton::compiler
