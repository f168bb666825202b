// SPDX-License-Identifier: Apache-2.0
// A back end for tests: f32 kernels for a few ops, which count their runs and preparations.
#pragma once

#include <atomic>
#include <cstring>

#include "backend/kernel.h"

namespace pelton::test {

struct KernelCounts {
  static inline std::atomic<int> prepared{0}, run{0}, alive{0};
};

// out[i] = in0[i] (+ in1[i % n1]), negated for `neg`; scratch is used so that a wrong plan shows.
class PointKernel : public backend::Kernel {
 public:
  PointKernel(int64_t count, int64_t second, bool negate) : count_(count), second_(second), negate_(negate) {
    ++KernelCounts::prepared;
    ++KernelCounts::alive;
  }
  ~PointKernel() override { --KernelCounts::alive; }
  int64_t scratch_bytes() const override { return count_ * 4; }
  void run(const backend::RunArgs& args) const override {
    ++KernelCounts::run;
    auto x = static_cast<const float*>(args.in[0]);
    auto y = second_ ? static_cast<const float*>(args.in[1]) : nullptr;
    auto out = static_cast<float*>(args.out[0]);
    auto scratch = static_cast<float*>(args.scratch);
    for (int64_t i = 0; i < count_; ++i) scratch[i] = x[i] + (y ? y[i % second_] : 0);
    for (int64_t i = 0; i < count_; ++i) out[i] = negate_ ? -scratch[i] : scratch[i];
  }

 private:
  int64_t count_, second_;
  bool negate_;
};

inline std::string refuse_not_f32(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  for (ir::ValueId v : graph[id].inputs)
    if (graph.type(v).dtype != DType::f32) return cat("needs f32, got ", name(graph.type(v).dtype));
  return "";
}
inline std::unique_ptr<backend::Kernel> prepare_point(const backend::Instance& instance,
                                                      const device::Target&) {
  bool add = instance.node().is("add");
  int64_t first = instance.inputs[0].count(), second = add ? instance.inputs[1].count() : 0;
  return std::make_unique<PointKernel>(first, second, instance.node().is("neg"));
}

inline void add_test_kernels(backend::Registry& registry) {
  registry.add(
      {"test.never",
       {"neg"},
       [](const ir::Graph&, ir::NodeId, const device::Target&) { return std::string("is only a decoy"); },
       prepare_point,
       false});
  registry.add({"test.point", {"add", "neg"}, refuse_not_f32, prepare_point, false});
}

}  // namespace pelton::test
