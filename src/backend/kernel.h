// SPDX-License-Identifier: Apache-2.0
// What a back end offers for an op: an ordered list of implementations, each of which takes a node or says
// why not, and makes kernels for exact sizes. No vendor header is seen here.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "ir/eval.h"
#include "ir/graph.h"

namespace pelton::backend {

struct TensorSpec {
  DType dtype = DType::f32;
  Dims dims;  // logical
  ir::Layout layout;
  int64_t count() const { return element_count(dims); }
  int64_t bytes() const {
    return ir::physical_bytes(ir::Type{ir::TypeKind::tensor, dtype, true, to_shape(dims), layout, {}, {}},
                              dims);
  }
};

// A node at exact sizes, as kernels are prepared for it.
struct Instance {
  const ir::Graph& graph;
  ir::NodeId id;
  std::vector<TensorSpec> inputs, outputs;  // absent inputs have an empty spec; see has()
  std::vector<Tensor> constants;  // one an input; undefined unless its value is fixed at prepare time
  const SymbolValues& symbols;
  int threads = 1;

  const ir::Node& node() const { return graph[id]; }
  bool has(size_t i) const { return i < node().inputs.size() && node().inputs[i]; }
  Dims dims(std::string_view attr) const { return pelton::eval(node().get_dims(attr), symbols); }
};

// Buffers of one run. Pointers are 64-byte aligned unless a caller bound its own; an absent input is null.
// Outputs never overlap inputs except where the alias rule of the op allows in-place and the plan chose it.
// On a device all of them are device addresses, and `stream` (the back end's own handle: a cudaStream_t) is
// where the work is enqueued; on the CPU it is null and the work is done when run() returns.
struct RunArgs {
  std::span<const void* const> in;
  std::span<void* const> out;
  void* scratch = nullptr;  // scratch_bytes() of them, 64-byte aligned
  ir::RandomKey random;
  void* stream = nullptr;
  // Kernels of devices that draw numbers read seed and step here, in device memory: a recorded run is played
  // again with other ones. Null for kernels of nodes without Effects::random.
  const uint64_t* random_on_device = nullptr;
};

// Prepared for one Instance; immutable, so any number of threads may run it at once with their own buffers.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t scratch_bytes() const { return 0; }
  virtual void run(const RunArgs& args) const = 0;  // allocates nothing
  // Bytes this kernel holds besides the plan's weights (re-ordered copies).
  virtual int64_t packed_bytes() const { return 0; }
  // False for an input whose bytes run() never looks at (a constant that was packed when the kernel was
  // prepared): it is then not copied to the device, and its address in RunArgs may be null.
  virtual bool reads(size_t input) const { return (void)input, true; }
  // Device kernels only: whether run() may be recorded into a graph and replayed with the same addresses. It
  // must then neither synchronise nor look at anything that changes between runs.
  virtual bool capturable() const { return true; }
};

// Implementations of every device stand in one registry. Each names the kind of device it runs on and is only
// ever asked about targets of that kind, so `refuse` and `prepare` need not look at Target::kind.
struct Implementation {
  std::string_view name;              // "onednn.conv", "cpu.softmax", "cublaslt.matmul"
  std::vector<std::string_view> ops;  // rows of the op table; fused groups are "fused"
  // Empty if the implementation takes the node on this target at every size its types allow; else the reason,
  // for people: "needs f32 or bf16, got f64".
  std::string (*refuse)(const ir::Graph& graph, ir::NodeId node, const device::Target& target) = nullptr;
  std::unique_ptr<Kernel> (*prepare)(const Instance& instance, const device::Target& target) = nullptr;
  // Worth timing against the next in the list at these sizes; otherwise the first that takes the node wins.
  bool timed = false;
  device::Kind device = device::Kind::cpu;
};

// Filled once by register_all; the order of registration is the order of preference.
class Registry {
 public:
  void add(Implementation implementation);
  // Those for a kind of device, in order.
  std::vector<const Implementation*> candidates(std::string_view op,
                                                device::Kind kind = device::Kind::cpu) const;
  const Implementation* find(std::string_view name) const;
  std::vector<const Implementation*> all() const;

  // Devices with memory of their own are opened through here; the same device for the same target while it is
  // in use.
  using OpenDevice = std::shared_ptr<device::Device> (*)(const device::Target& target);
  void add_device(device::Kind kind, OpenDevice open);
  // no_device if this build has none of the target's kind.
  std::shared_ptr<device::Device> open(const device::Target& target) const;

 private:
  std::vector<std::unique_ptr<Implementation>> items_;
  std::vector<std::pair<device::Kind, OpenDevice>> devices_;
};

}  // namespace pelton::backend
