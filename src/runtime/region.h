// SPDX-License-Identifier: Apache-2.0
// What is known of a graph before the sizes of a run: where each value lives, which nodes are prepared
// together, which sub-graphs run as regions of their own; and the programs prepared so far, by size.
//
// A region is cut after every node whose result has a size that depends on data; what lies between two cuts
// is a segment. With no such node the whole region is one segment.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/batch_slices.h"
#include "runtime/budget.h"
#include "runtime/executable.h"
#include "runtime/program.h"
#include "runtime/state_layout.h"

namespace pelton::runtime {

struct RegionOptions {
  int max_programs = 64;
  int max_graphs = 16;
  int64_t least_branch_ns = 20000;  // see ExecutableOptions
  bool check_memory = false;
  Budget* budget = nullptr;
  std::shared_ptr<device::Device> device;  // null: everything runs on the host
  device::Artifacts* artifacts = nullptr;  // of the plan; outlives the region
  bool by_timing = true;                   // else kernels take the first of several ways
};

class Region {
 public:
  struct Node {
    ir::NodeId id;
    std::string_view implementation;  // registry name, kReference or kNothing
    const backend::Implementation* kernel = nullptr;
    bool cut = false;
    bool on_device = false;
    std::vector<std::string> symbols;  // whose sizes its kernel is prepared for
  };
  struct Value {
    ir::ValueId root;  // whose bytes a view shares; itself otherwise
    Place place = Place::none;
    uint32_t index = 0;
    bool sized = false;         // a tensor whose size is known before it is computed
    uint32_t last_segment = 0;  // that reads it
    bool device_reads = false;  // by root: a kernel on the device reads it
  };
  struct Segment {
    uint32_t first = 0, last = 0;      // range of nodes()
    std::vector<std::string> symbols;  // its program depends on these sizes
  };

  // The arguments must outlive the region.
  Region(const ir::Graph& graph, const std::vector<Choice>& choices, const backend::Registry& registry,
         const device::Target& target, const RegionOptions& options, int depth = 0);
  ~Region();

  const ir::Graph& graph() const { return graph_; }
  int depth() const { return depth_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Segment>& segments() const { return segments_; }
  const Value& value(ir::ValueId v) const { return values_[v.index]; }
  const Tensor& constant(uint32_t index) const { return constants_[index]; }
  device::Device* device() const { return options_.device.get(); }
  // On a device: the slot's next value is written over the old one, which nothing reads any more by then. Its
  // place is the slot.
  bool in_place(size_t slot) const { return in_place_[slot]; }
  const std::vector<StateBuffer>& state_layout() const { return state_layout_; }  // on a device
  bool writes_state() const { return writes_state_; }                             // a slot is in place
  // A kernel on the device draws random numbers.
  bool draws_on_device() const { return draws_on_device_; }
  // The constant's bytes on the device, copied there on first use; equal weights are there once. Any thread.
  void* device_constant(uint32_t index) const;
  int64_t device_constant_bytes() const;
  const Region* body(const ir::Graph* graph) const;  // null: not a sub-graph of this region
  const std::vector<ir::ValueId>& released_after(size_t segment) const { return released_[segment]; }

  // Prepared on first use, kept up to max_programs a segment. Any thread.
  std::shared_ptr<const Program> program(size_t segment, const SymbolValues& symbols) const;
  // Addresses of the constants whose bytes the steps of the present programs read; all of those of
  // sub-graphs.
  void plain_reads(std::set<const void*>& into) const;
  // The programs that another region of the same graph has, from the least recently used on.
  void prepare_as(const Region& other) const;
  void forget_programs() const;    // those that no frame uses go; for a region that runs no more
  int64_t constant_bytes() const;  // sub-graphs included
  // Of the programs kept now, sub-graphs included.
  int64_t packed_bytes() const;
  int64_t arena_bytes() const;
  int64_t scratch_bytes() const;
  const RegionOptions& options() const { return options_; }

 private:
  void place_values();
  void place_state();
  bool may_overwrite(size_t slot) const;
  void cut_into_segments();
  std::shared_ptr<const backend::Kernel> kernel(size_t position, const SymbolValues& symbols) const;
  void forget_packed(ir::NodeId node) const;
  std::shared_ptr<const Program> build(size_t segment, const SymbolValues& symbols) const;
  BatchSlices slices_of(const Segment& range, const SymbolValues& symbols) const;
  void slice_refs(Program& program, const SymbolValues& of_slice) const;
  Ref ref(ir::ValueId v, const SymbolValues& symbols) const;

  const ir::Graph& graph_;
  const backend::Registry& registry_;
  const device::Target& target_;
  const device::Target host_;  // for nodes that the device does not take; the target itself on the CPU
  RegionOptions options_;
  int depth_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<Tensor> constants_;
  std::vector<bool> in_place_;  // by slot
  std::vector<StateBuffer> state_layout_;
  bool draws_on_device_ = false, writes_state_ = false;
  mutable std::vector<std::shared_ptr<const device::Memory>>
      device_constants_;  // by constant, as they are used
  std::vector<Segment> segments_;
  std::vector<std::vector<ir::ValueId>> released_;
  std::unordered_map<const ir::Graph*, std::unique_ptr<Region>> bodies_;

  using Key = std::vector<int64_t>;
  struct Cached {
    Key key;
    std::shared_ptr<const Program> program;
  };
  mutable std::mutex mutex_;
  mutable std::vector<std::list<Cached>> programs_;  // by segment, most recently used first
  // By node: kernels alive in some program, for reuse where other sizes changed.
  mutable std::vector<std::vector<std::pair<Key, std::weak_ptr<const backend::Kernel>>>> kernels_;
};

// 64-byte aligned copy unless the tensor is aligned already.
Tensor aligned(const Tensor& tensor);

}  // namespace pelton::runtime
