// SPDX-License-Identifier: Apache-2.0
// Times one node on every CPU implementation that takes it. Prints one line of JSON an implementation.
//
//   bench_cpu_kernel 'graph "g"(%a: f32[128,768], %b: f32[768,768]) { %y = matmul(%a, %b) : f32[128,768]
//   return %y }' \
//       [threads] [index of an input that is constant]...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "backend/cpu/register.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "ir/op.h"
#include "ir/text.h"

using namespace pelton;

namespace {

ir::NodeId last_node(const ir::Graph& g) {
  return g[g.outputs[0]].producer;
}

Tensor filled(const ir::Type& type) {
  Tensor t(type.dtype, *as_dims(type.shape));
  uint64_t state = 88172645463325252u;
  for (int64_t i = 0; i < t.count(); ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    if (is_float(t.dtype()))
      t.set_double(i, static_cast<double>(state % 2000) * 1e-3 - 1);
    else
      t.set_int(i, static_cast<int64_t>(state % 2));
  }
  return t;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_cpu_kernel GRAPH [threads] [constant input]...\n");
    return 2;
  }
  if (argc > 2) set_threads(std::atoi(argv[2]));
  std::set<int> constant;
  for (int i = 3; i < argc; ++i) constant.insert(std::atoi(argv[i]));
  const ir::Graph g = ir::parse_graph(argv[1]);
  const ir::NodeId id = last_node(g);
  const device::Target target = device::detect_cpu();
  backend::Registry registry;
  backend::register_cpu(registry);
  const SymbolValues symbols;
  backend::Instance instance{g, id, {}, {}, {}, symbols, target.threads};
  std::vector<Tensor> buffers;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < g[id].inputs.size(); ++i) {
    const ir::ValueId v = g[id].inputs[i];
    const Tensor* known = v ? g.constant(v) : nullptr;
    buffers.push_back(!v ? Tensor() : known ? *known : filled(g.type(v)));
    instance.inputs.push_back(
        v ? backend::TensorSpec{g.type(v).dtype, buffers.back().dims(), g.type(v).layout}
          : backend::TensorSpec{});
    instance.constants.push_back(known || constant.count(static_cast<int>(i)) ? buffers.back() : Tensor());
    in.push_back(v ? buffers.back().data() : nullptr);
  }
  for (ir::ValueId v : g[id].outputs) {
    instance.outputs.push_back({g.type(v).dtype, *as_dims(g.type(v).shape), g.type(v).layout});
    buffers.emplace_back(DType::u8, Dims{instance.outputs.back().bytes()});
    out.push_back(buffers.back().mutable_data());
  }
  for (const backend::Implementation* item : registry.candidates(g[id].op->name)) {
    const std::string why = item->refuse(g, id, target);
    if (!why.empty()) {
      std::printf("{\"implementation\": \"%s\", \"refuses\": \"%s\"}\n", std::string(item->name).c_str(),
                  why.c_str());
      continue;
    }
    const auto kernel = item->prepare(instance, target);
    Tensor scratch(DType::u8, {kernel->scratch_bytes()});
    auto call = [&] { kernel->run({in, out, scratch.count() ? scratch.mutable_data() : nullptr, {}}); };
    call();
    double best = 1e30, total = 0;
    int calls = 0;
    for (; calls < 3 || (total < 0.4 && calls < 100000); ++calls) {
      Stopwatch watch;
      call();
      const double s = watch.seconds();
      best = std::min(best, s);
      total += s;
    }
    std::printf(
        "{\"implementation\": \"%s\", \"best_us\": %.2f, \"mean_us\": %.2f, \"calls\": %d, \"threads\": %d, "
        "\"scratch_bytes\": %lld}\n",
        std::string(item->name).c_str(), best * 1e6, total / calls * 1e6, calls, threads(),
        static_cast<long long>(kernel->scratch_bytes()));
  }
} catch (const Error& e) {
  std::fprintf(stderr, "bench_cpu_kernel: error: %s\n", e.what());
  return 1;
}
