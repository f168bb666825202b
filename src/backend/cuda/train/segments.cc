// SPDX-License-Identifier: Apache-2.0
// Segments (ir/segments.h): one launch for what a step does alike to many tensors, as updates of parameters
// and norms of gradients. Where the tensors lie travels in the parameters of the kernel, so that they may lie
// anywhere.
#include <algorithm>
#include <cstring>
#include <map>

#include "backend/cuda/compiled.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/segment_totals.h"
#include "codegen/cuda_emit.h"
#include "codegen/lower.h"
#include "ir/builder.h"
#include "ir/infer.h"
#include "ir/segments.h"

namespace pelton::backend::cuda {
namespace {

constexpr int64_t kMostTableBytes = 32000;  // of the 32,764 bytes that the parameters of a kernel may have
constexpr int64_t kLargest = int64_t{1} << 30;
constexpr int kRounds = 4;  // vectors that a thread takes

// One segment for any length "n": what has one element has rank 0.
ir::Graph program_of(const ir::Graph& body, const ir::Segment& s, bool sums) {
  ir::Graph g("segment");
  ir::Builder b(g);
  std::map<ir::ValueId, ir::ValueId> map;
  for (ir::ValueId v : s.operands) {
    const ir::Type& t = body.type(v);
    map[v] = g.add_input(ir::Type::tensor(t.dtype, s.is_full(t) ? Shape{Dim::symbol("n")} : Shape{}));
  }
  for (ir::NodeId id : s.nodes) {
    const ir::Node& n = body[id];
    if (n.is("constant")) {
      map[n.outputs[0]] = b.constant(n.get_tensor("value").reshaped({}));
      continue;
    }
    if (sums && id == s.nodes.back()) {
      g.add_output(map.at(n.inputs[0]));
      return g;
    }
    std::vector<ir::ValueId> from;
    for (ir::ValueId v : n.inputs) from.push_back(map.at(v));
    map[n.outputs[0]] = b.op(n.op->name, from, n.attrs);
  }
  for (ir::ValueId v : s.results) g.add_output(map.at(v));
  return g;
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  const ir::Node& n = graph[id];
  if (!n.is("fused")) return "is no group";
  const std::vector<ir::Segment> all = ir::segments_of(n);
  if (all.empty()) return "is another kind of group";
  const bool sums = n.get_text("kind") == ir::kSegmentSums;
  const ir::Graph& body = n.get_graph("body");
  for (const ir::Segment& s : all)
    if (element_count(*as_dims(s.shape)) >= kLargest) return "has a segment of 2^30 elements or more";
  if (sums && body.type(all[0].results[0]).dtype != DType::f32)
    return cat("sums ", name(body.type(all[0].results[0]).dtype));
  const ir::Graph program = program_of(body, all[0], sums);
  const int64_t operands = static_cast<int64_t>(program.inputs.size() + program.outputs.size());
  if (codegen::segment_table(operands, 1).bytes > kMostTableBytes) return cat("has ", operands, " operands");
  return codegen::lower(program, "segments").reason;
}

// Where a segment's operands are among those of the node.
struct Places {
  std::vector<size_t> inputs, outputs;
  int64_t elements = 0;
};

class SegmentKernel : public Kernel {
 public:
  SegmentKernel(std::shared_ptr<const LoadedKernel> kernel, const codegen::SegmentTable& form,
                int64_t capacity, int block, int64_t elements_a_block, std::vector<Places> segments,
                bool sums)
      : kernel_(std::move(kernel)), block_(block), segments_(std::move(segments)), sums_(sums) {
    for (size_t i = 0; i < segments_.size();) {
      Batch b{i, i, 0, std::vector<std::byte>(static_cast<size_t>(form.bytes))};
      auto put = [&](int64_t at, int64_t value) {
        const auto narrow = static_cast<int32_t>(value);
        std::memcpy(b.table.data() + at, &narrow, sizeof narrow);
      };
      int64_t count = 0;
      for (; b.end < segments_.size() && count < capacity; ++b.end, ++count) {
        const int64_t elements = segments_[b.end].elements;
        put(form.sizes_at + 4 * count, elements);
        put(form.first_at + 4 * count, b.blocks);
        first_.push_back(static_cast<int>(all_blocks_ + b.blocks));
        b.blocks += (elements + elements_a_block - 1) / elements_a_block;
      }
      put(form.first_at + 4 * count, b.blocks);
      put(form.count_at, count);
      i = b.end;
      all_blocks_ += b.blocks;
      batches_.push_back(std::move(b));
    }
    first_.push_back(static_cast<int>(all_blocks_));
  }

  int64_t scratch_bytes() const override { return sums_ ? 4 * all_blocks_ : 0; }

  void run(const RunArgs& args) const override {
    auto* partial = static_cast<float*>(args.scratch);
    for (const Batch& b : batches_) {
      if (b.blocks > 0) run_batch(b, args, partial);
      if (sums_) partial += b.blocks;
    }
    if (!sums_) return;
    std::vector<float*> to;
    for (const Places& p : segments_) to.push_back(static_cast<float*>(args.out[p.outputs[0]]));
    PELTON_CUDA(segment_totals(static_cast<const float*>(args.scratch), first_, to, stream_of(args)));
  }

 private:
  // What one launch takes.
  struct Batch {
    size_t begin, end;  // segments
    int64_t blocks;
    std::vector<std::byte> table;  // without the addresses
  };

  void run_batch(const Batch& b, const RunArgs& args, float* partial) const {
    std::vector<std::byte> table = b.table;
    size_t at = 0;
    auto put = [&](const void* address) {
      std::memcpy(table.data() + at, &address, sizeof address);
      at += sizeof address;
    };
    for (size_t i = b.begin; i < b.end; ++i) {
      for (size_t in : segments_[i].inputs) put(args.in[in]);
      if (!sums_)
        for (size_t out : segments_[i].outputs) put(args.out[out]);
    }
    void* arguments[] = {table.data(), &partial};
    launch(kernel_->kernel,
           {static_cast<unsigned>(b.blocks), static_cast<unsigned>(block_), 0, stream_of(args), true},
           arguments);
  }

  std::shared_ptr<const LoadedKernel> kernel_;
  int block_;
  std::vector<Places> segments_;
  bool sums_;
  std::vector<Batch> batches_;
  std::vector<int> first_;  // blocks before each segment, and all
  int64_t all_blocks_ = 0;
};

struct Generated {
  codegen::CudaKernel text;
  codegen::SegmentTable form;
  int64_t capacity = 0, elements_a_block = 0;
};

Generated generate(const ir::Graph& body, const std::vector<ir::Segment>& all, bool sums) {
  Generated out;
  const ir::Graph program = program_of(body, all[0], sums);
  const codegen::Lowered lowered = codegen::lower(program, sums ? "segment_sums" : "segments");
  PELTON_CHECK(lowered.kernel, lowered.reason);
  const auto buffers = static_cast<int64_t>(program.inputs.size() + (sums ? 0 : program.outputs.size()));
  out.capacity = static_cast<int64_t>(all.size());
  while (codegen::segment_table(buffers, out.capacity).bytes > kMostTableBytes)
    out.capacity = (out.capacity + 1) / 2;
  out.form = codegen::segment_table(buffers, out.capacity);
  codegen::CudaOptions options;
  options.segments = static_cast<int>(out.capacity);
  options.sum = sums;
  int64_t widest = 1;
  for (const auto* values : {&program.inputs, &program.outputs})
    for (ir::ValueId v : *values) widest = std::max<int64_t>(widest, bits(program.type(v).dtype) / 8);
  options.vector =
      all[0].shape.empty() ? 1 : static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(8, 16 / widest)));
  out.text = codegen::emit_cuda(*lowered.kernel, options);
  out.elements_a_block = int64_t{out.text.block} * options.vector * kRounds;
  return out;
}

std::string whole_text(const Generated& made) {
  return cat(codegen::cuda_prelude(), made.text.text);
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const ir::Node& n = instance.node();
  const ir::Graph& body = n.get_graph("body");
  const std::vector<ir::Segment> all = ir::segments_of(n);
  const bool sums = n.get_text("kind") == ir::kSegmentSums;
  std::map<ir::ValueId, size_t> input_at, output_at;
  for (size_t i = 0; i < body.inputs.size(); ++i) input_at[body.inputs[i]] = i;
  for (size_t i = 0; i < body.outputs.size(); ++i) output_at[body.outputs[i]] = i;
  std::vector<Places> places;
  for (const ir::Segment& s : all) {
    Places p;
    for (ir::ValueId v : s.operands) p.inputs.push_back(input_at.at(v));
    for (ir::ValueId v : s.results) p.outputs.push_back(output_at.at(v));
    p.elements = element_count(*as_dims(s.shape));
    places.push_back(std::move(p));
  }
  const Generated made = generate(body, all, sums);
  return std::make_unique<SegmentKernel>(compiled(whole_text(made), made.text.entry, target.sm), made.form,
                                         made.capacity, made.text.block, made.elements_a_block,
                                         std::move(places), sums);
}

}  // namespace

void compile_segments(const Instance& instance, const device::Target& target) {
  const ir::Node& n = instance.node();
  const std::vector<ir::Segment> all = ir::segments_of(n);
  (void)compile_cubin(whole_text(generate(n.get_graph("body"), all, n.get_text("kind") == ir::kSegmentSums)),
                      target.sm);
}

void add_segments(Registry& registry) {
  registry.add({.name = kSegmented,
                .ops = {"fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
