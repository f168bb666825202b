// SPDX-License-Identifier: Apache-2.0
// What can be made for a GPU that is not present: the cubins of generated kernels, and plans of cuDNN.
#include <algorithm>
#include <set>

#include "backend/cuda.h"
#include "backend/cuda/conv/cudnn_machine.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/libraries.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "device/artifacts.h"

namespace pelton::backend {
namespace {

bool known(const ir::Type& t, const SymbolValues& sizes) {
  if (!t.is_tensor() || !t.ranked) return false;
  std::set<std::string> symbols;
  for (const Dim& d : t.shape) d.collect_symbols(symbols);
  for (const std::string& s : symbols)
    if (!sizes.count(s)) return false;
  return true;
}

// Whether the node's sizes are all known; then filled in.
bool fill(Instance& instance) {
  const ir::Graph& g = instance.graph;
  auto spec = [&](ir::ValueId v) {
    const ir::Type& t = g.type(v);
    return TensorSpec{t.dtype, pelton::eval(t.shape, instance.symbols), t.layout};
  };
  for (ir::ValueId v : instance.node().inputs) {
    if (v && !known(g.type(v), instance.symbols)) return false;
    instance.inputs.push_back(v ? spec(v) : TensorSpec{});
    const Tensor* constant = v ? g.constant(v) : nullptr;
    instance.constants.push_back(constant ? *constant : Tensor());
  }
  for (ir::ValueId v : instance.node().outputs) {
    if (!known(g.type(v), instance.symbols)) return false;
    instance.outputs.push_back(spec(v));
  }
  return true;
}

}  // namespace

std::string compile_cuda_kernels(const ir::Graph& graph, const std::vector<std::string>& names,
                                 const SymbolValues& sizes, const device::Target& target) {
  const std::string no_compiler = cuda::missing_nvrtc();
  std::optional<cuda::CudnnMachine> cudnn;
  std::string no_cudnn;
  if (std::any_of(names.begin(), names.end(),
                  [](const std::string& n) { return n == cuda::kConv || n == cuda::kAttention; }))
    cudnn = cuda::absent_cudnn_machine(target, no_cudnn);
  if (!no_cudnn.empty()) log_info(cat("no plans of cuDNN: ", no_cudnn));
  const std::vector<ir::NodeId>& order = graph.order();
  PELTON_CHECK(names.size() == order.size(), names.size(), " names for ", order.size(), " nodes");
  device::Artifacts* artifacts = device::current_artifacts();
  parallel_for(0, static_cast<int64_t>(order.size()), 1, [&](int64_t begin, int64_t end) {
    const device::ArtifactScope scope(artifacts);
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      throw_if_interrupted();
      Instance instance{graph, order[i], {}, {}, {}, sizes, target.threads};
      auto is = [&](std::string_view name) { return names[i] == name && fill(instance); };
      if (no_compiler.empty() && is(cuda::kGenerated)) cuda::compile_generated(instance, target);
      if (no_compiler.empty() && is(cuda::kSegmented)) cuda::compile_segments(instance, target);
      if (cudnn && is(cuda::kConv)) cuda::keep_conv_plans(instance, target, *cudnn);
      if (cudnn && is(cuda::kAttention)) cuda::keep_attention_plans(instance, target, *cudnn);
    }
  });
  return no_compiler;
}

void limit_cuda_kernels(const ir::Graph& graph, const std::vector<std::string>& names,
                        const SymbolValues& sizes, const device::Target& target, size_t most) {
  const std::vector<ir::NodeId>& order = graph.order();
  PELTON_CHECK(names.size() == order.size(), names.size(), " names for ", order.size(), " nodes");
  std::set<std::string> texts;
  for (size_t i = 0; i < order.size() && texts.size() <= most; ++i) {
    Instance instance{graph, order[i], {}, {}, {}, sizes, target.threads};
    if (names[i] == cuda::kGenerated && fill(instance)) cuda::count_generated(instance, target, texts);
  }
  if (texts.size() > most) cuda::share_texts();
}

}  // namespace pelton::backend
