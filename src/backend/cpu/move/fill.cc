// SPDX-License-Identifier: Apache-2.0
// fill: one value everywhere, any type of whole bytes; and after, a plain copy where its result cannot be a
// view.
#include <cstring>

#include "backend/cpu/implementations.h"
#include "backend/cpu/support.h"
#include "base/cat.h"

namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  return refuse_layouts(graph, node);
}

template <class T>
std::unique_ptr<Kernel> prepare_as(int64_t count) {
  return make_kernel([=](const RunArgs& args) {
    T value, *out = static_cast<T*>(args.out[0]);
    std::memcpy(&value, args.in[0], sizeof value);
    parallel_for(0, count, grain_for(count, 1),
                 [&](int64_t begin, int64_t end) { std::fill(out + begin, out + end, value); });
  });
}
std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const int64_t count = instance.outputs[0].count();
  switch (bits(instance.outputs[0].dtype)) {
    case 8:
      return prepare_as<uint8_t>(count);
    case 16:
      return prepare_as<uint16_t>(count);
    case 32:
      return prepare_as<uint32_t>(count);
    default:
      return prepare_as<uint64_t>(count);
  }
}

std::string refuse_after(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Type &x = graph.type(graph[node].inputs[0]), &y = graph.type(graph[node].outputs[0]);
  if (!x.is_tensor() || x.dtype == DType::string) return cat("does not take ", x.str());
  return x.layout == y.layout ? "" : "changes the layout";
}
std::unique_ptr<Kernel> prepare_after(const Instance& instance, const device::Target&) {
  const auto bytes = static_cast<size_t>(instance.outputs[0].bytes());
  return make_kernel([=](const RunArgs& args) { std::memcpy(args.out[0], args.in[0], bytes); });
}

}  // namespace

void add_fill(Registry& registry) {
  registry.add({"cpu.fill", {"fill"}, refuse, prepare});
  registry.add({"cpu.after", {"after"}, refuse_after, prepare_after});
}

}  // namespace pelton::backend::cpu
