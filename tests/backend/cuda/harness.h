// SPDX-License-Identifier: Apache-2.0
// Runs single nodes and groups on the GPU and judges them by the acceptance rule (interp/accept.h). Results
// are poisoned before each run and checked for writes behind their end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/memory.h"
#include "backend/kernel.h"
#include "interp/accept.h"

namespace pelton::test {

// The GPU that tests run on; null without one. Prints once what was found instead.
const device::Target* gpu();

const backend::Registry& cuda_registry();

// A graph with values for its inputs. With a group kind, all of it becomes one `fused` node; else it has one
// node beside constants. Layouts stand in the text and hold for inputs and results.
class GpuCase {
 public:
  struct Options {
    std::string group;           // kind; empty: a single node
    std::vector<bool> constant;  // inputs whose values are known when the kernel is prepared
    ir::RandomKey random;
    int64_t segments = 0;  // of a group of them (ir/segments.h)
  };
  GpuCase(const std::string& text, std::vector<Tensor> inputs, Options options);
  GpuCase(const std::string& text, std::vector<Tensor> inputs)
      : GpuCase(text, std::move(inputs), Options()) {}

  const backend::Instance& instance() const { return *instance_; }
  // Why an implementation refuses the node; "" if it does not. Needs no GPU.
  std::string refusal(std::string_view implementation) const;

  using Run = std::function<void(const backend::RunArgs&)>;
  // Results with logical dims, plain.
  std::vector<Tensor> run(const Run& run, int64_t scratch_bytes);
  // Runs and judges.
  void check(const Run& run, int64_t scratch_bytes);
  // By an implementation of the registry (empty: the first that takes the node), once as it is and once
  // replayed from a recording.
  void check(std::string_view implementation = "");
  std::unique_ptr<backend::Kernel> prepare(std::string_view implementation = "") const;

 private:
  void judge(const std::vector<Tensor>& results);
  ir::Graph plain_, graph_;  // as written; as it runs
  ir::NodeId node_;
  std::vector<Tensor> inputs_;
  Options options_;
  SymbolValues symbols_;
  std::vector<interp::Reference> references_;
  std::unique_ptr<backend::Instance> instance_;
  std::vector<Tensor> physical_;  // of each input of the node, as its layout has it; undefined where absent
};

// Uniform in [low, high), rounded to the type; the same for the same seed.
Tensor random(DType dtype, Dims dims, uint64_t seed, double low = -2, double high = 2);

}  // namespace pelton::test

// Tests that need a GPU start with this.
#define PELTON_NEEDS_GPU() \
  if (!pelton::test::gpu()) PELTON_SKIP("no GPU that this build can use")
