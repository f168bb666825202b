// SPDX-License-Identifier: Apache-2.0
// dropout: an element is kept if its random number is at least the ratio, and scaled by 1 / (1 - ratio). The
// numbers are made on the way, four from a Philox block.
#include "backend/cpu/implementations.h"
#include "backend/cpu/support.h"
#include "base/cat.h"
#include "ir/random.h"

namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Type &x = graph.type(graph[node].inputs[0]), &y = graph.type(graph[node].outputs[0]);
  // Elements are numbered in row-major order, so other layouts would draw others.
  if (!x.layout.is_plain() || !y.layout.is_plain()) return "needs plain layouts";
  for (size_t i : {0, 1})
    if (const DType t = input_dtype(graph, node, i); t != DType::f32 && t != DType::f64)
      return cat("needs f32 or f64, got ", name(t));
  return {};
}

template <class T>
void drop(const RandomStream& stream, const T* x, T* y, bool* mask, double ratio, int64_t begin,
          int64_t end) {
  const T scale = static_cast<T>(1 / (1 - ratio));
  PhiloxBlock block{};
  for (int64_t i = begin; i < end; ++i) {
    if (i == begin || i % 4 == 0) block = stream.block(static_cast<uint64_t>(i) / 4);
    const bool keep = static_cast<double>(uniform_from_bits(block[static_cast<size_t>(i % 4)])) >= ratio;
    y[i] = keep ? x[i] * scale : T{0};
    if (mask) mask[i] = keep;
  }
}

template <class T>
std::unique_ptr<Kernel> prepare_as(const Instance& instance) {
  const int64_t count = instance.outputs[0].count();
  const bool with_mask = instance.outputs.size() > 1, wide_ratio = instance.inputs[1].dtype == DType::f64;
  return make_kernel([=, node = instance.node(),
                      where = instance.graph.describe(instance.id)](const RunArgs& args) {
    const double ratio =
        wide_ratio ? *static_cast<const double*>(args.in[1]) : *static_cast<const float*>(args.in[1]);
    if (!(ratio >= 0 && ratio <= 1))
      fail(ErrorCode::usage, cat("has ratio ", ratio, ", which is outside [0, 1]"), where);
    const RandomStream stream = ir::random_stream(node, args.random);
    bool* mask = with_mask ? static_cast<bool*>(args.out[1]) : nullptr;
    parallel_for(0, count, std::max<int64_t>(4096, grain_for(count, 8)), [&](int64_t begin, int64_t end) {
      drop(stream, static_cast<const T*>(args.in[0]), static_cast<T*>(args.out[0]), mask, ratio, begin, end);
    });
  });
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  return instance.inputs[0].dtype == DType::f64 ? prepare_as<double>(instance) : prepare_as<float>(instance);
}

}  // namespace

void add_dropout(Registry& registry) {
  registry.add({"cpu.dropout", {"dropout"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
