// SPDX-License-Identifier: Apache-2.0
// Groups and single nodes as generated kernels: pointwise, reductions, norms, movement, casts and changes of
// layout.
#include <algorithm>
#include <set>

#include "backend/cuda/aligned.h"
#include "backend/cuda/compiled.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/reductions.h"
#include "codegen/cuda_emit.h"
#include "codegen/lower.h"
#include "codegen/shared_form.h"
#include "device/artifacts.h"
#include "ir/builder.h"
#include "ir/infer.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

constexpr size_t kMaxArguments = 64;

// What the kernel reads and writes: which inputs of the node its buffers are.
struct Body {
  ir::Graph graph{"group"};
  std::vector<size_t> inputs;  // index in the node's inputs, by input of the graph
  std::string reason;
};

// Logical dims as they lie in memory, and back.
ir::Ints to_memory(size_t rank) {
  ir::Ints perm{0};
  for (size_t d = 2; d < rank; ++d) perm.push_back(static_cast<int64_t>(d));
  perm.push_back(1);
  return perm;
}
ir::Ints to_logical(size_t rank) {
  ir::Ints perm{0, static_cast<int64_t>(rank) - 1};
  for (size_t d = 1; d + 1 < rank; ++d) perm.push_back(static_cast<int64_t>(d));
  return perm;
}
bool is_channels_last(const ir::Type& t) {
  return t.layout.kind == ir::Layout::Kind::channels_last && t.rank() >= 3;
}

bool is_uniform(const Tensor& t) {
  if (t.dtype() == DType::string || t.count() == 0 || t.count() > 64) return false;
  for (int64_t i = 1; i < t.count(); ++i)
    if (is_float(t.dtype()) ? t.get_double(i) != t.get_double(0) : t.get_int(i) != t.get_int(0)) return false;
  return true;
}

// The node as a closed graph of plain tensors in the order in which they lie in memory.
Body body_of(const ir::Graph& graph, ir::NodeId id) {
  Body out;
  const ir::Node& n = graph[id];
  out.graph.symbols = graph.symbols;
  auto refuse = [&](std::string why) {
    out.reason = std::move(why);
    return std::move(out);
  };
  ir::Builder b(out.graph);
  std::vector<ir::ValueId> operands;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    ir::ValueId v = n.inputs[i];
    if (!v) {
      operands.push_back({});
      continue;
    }
    ir::Type type = graph.type(v);
    if (!type.is_tensor() || !type.ranked) return refuse(cat("takes ", type.str()));
    if (!type.layout.is_plain() && !is_channels_last(type)) return refuse(cat("layout ", type.layout.str()));
    if (const Tensor* t = graph.constant(v); t && is_uniform(*t)) {
      operands.push_back(b.constant(*t));
      continue;
    }
    const bool last = is_channels_last(type);
    const size_t rank = type.shape.size();
    if (last) {
      Shape memory;
      for (int64_t d : to_memory(rank)) memory.push_back(type.shape[static_cast<size_t>(d)]);
      type.shape = memory;
    }
    type.layout = {};
    ir::ValueId in = out.graph.add_input(type);
    out.inputs.push_back(i);
    operands.push_back(last ? b.transpose(in, to_logical(rank)) : in);
  }
  std::vector<ir::ValueId> results;
  if (n.is("fused"))
    results = inline_graph(b, n.get_graph("body"), operands);
  else if (n.is("layout"))
    results = operands;
  else
    results = b.ops(n.op->name, operands, n.attrs, n.outputs.size());
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    const ir::Type& type = graph.type(n.outputs[i]);
    if (!type.is_tensor()) return refuse(cat("yields ", type.str()));
    if (!type.layout.is_plain() && !is_channels_last(type)) return refuse(cat("layout ", type.layout.str()));
    ir::ValueId v = results[i];
    if (is_channels_last(type)) v = b.transpose(v, to_memory(type.shape.size()));
    out.graph.add_output(v);
  }
  if (out.graph.inputs.size() + out.graph.outputs.size() + 16 > kMaxArguments)
    return refuse(cat("has ", out.graph.inputs.size(), " operands"));
  return out;
}

// What the kernel does, for profilers: the ops of the node, shortened.
std::string kernel_name(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& n = graph[id];
  if (!n.is("fused")) return std::string(n.op->name);
  std::string out;
  const ir::Graph& body = n.get_graph("body");
  for (ir::NodeId inner : body.order())
    if (!body[inner].is("constant") && !body[inner].is("cast") && out.size() < 40)
      append(out, cat(out.empty() ? "" : "_", body[inner].op->name));
  return out.empty() ? "cast" : out;
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (graph[id].is("fused") && graph[id].get_int("segments") > 0) return "is many tensors at once";
  try {
    Body body = body_of(graph, id);
    if (!body.reason.empty()) return body.reason;
    return codegen::lower(body.graph, "group").reason;
  } catch (const Error& e) {
    return e.what();  // an attribute or type that the rebuilt node does not take
  }
}

class GeneratedKernel : public Kernel {
 public:
  GeneratedKernel(std::shared_ptr<const LoadedKernel> kernel, std::vector<size_t> inputs,
                  std::vector<Packed> constants, size_t outputs, std::vector<int64_t> sizes, bool wide,
                  unsigned blocks, unsigned block)
      : kernel_(std::move(kernel)),
        inputs_(std::move(inputs)),
        constants_(std::move(constants)),
        outputs_(outputs),
        wide_sizes_(std::move(sizes)),
        wide_(wide),
        blocks_(blocks),
        block_(block) {
    for (int64_t s : wide_sizes_) sizes_.push_back(static_cast<int32_t>(s));
  }
  void run(const RunArgs& args) const override {
    if (blocks_ == 0) return;  // nothing to compute
    const void* buffers[kMaxArguments];
    void* arguments[kMaxArguments];
    size_t count = 0;
    auto add = [&](const void* buffer) {
      buffers[count] = buffer;
      arguments[count] = &buffers[count];
      ++count;
    };
    for (size_t i : inputs_) add(args.in[i]);
    for (const Packed& c : constants_) add(c->get());
    for (size_t i = 0; i < outputs_; ++i) add(args.out[i]);
    for (size_t i = 0; i < wide_sizes_.size(); ++i)
      arguments[count++] = wide_ ? static_cast<void*>(const_cast<int64_t*>(&wide_sizes_[i]))
                                 : static_cast<void*>(const_cast<int32_t*>(&sizes_[i]));
    launch(kernel_->kernel, {blocks_, block_, 0, static_cast<cudaStream_t>(args.stream), true}, arguments);
  }
  bool reads(size_t input) const override {
    return std::find(inputs_.begin(), inputs_.end(), input) != inputs_.end();
  }
  int64_t packed_bytes() const override {
    int64_t sum = 0;
    for (const Packed& c : constants_) sum += c->bytes();
    return sum;
  }

 private:
  std::shared_ptr<const LoadedKernel> kernel_;
  std::vector<size_t> inputs_;
  std::vector<Packed> constants_;  // behind the inputs
  size_t outputs_;
  std::vector<int64_t> wide_sizes_;
  std::vector<int32_t> sizes_;
  bool wide_;
  unsigned blocks_, block_;
};

// Where a kernel will run: on the current GPU, or on one that is not present, and is then only compiled and
// kept; with `texts`, its text is only counted.
struct Place {
  const device::Target& target;
  bool present = true;
  std::set<std::string>* texts = nullptr;
};

// An entry of a plan's artifacts: its groups have the form that they share with others.
const std::pair<std::string, std::string> kShared{"kernel_texts", "shared"};
bool shares_texts() {
  const device::Artifacts* const of_plan = device::current_artifacts();
  return of_plan && of_plan->find(kShared.first, kShared.second);
}

// The kernel of a graph of plain tensors, `inputs` of the node standing for its inputs.
std::unique_ptr<GeneratedKernel> generate(const ir::Graph& own, const std::string& name,
                                          std::vector<size_t> inputs, const SymbolValues& own_symbols,
                                          const Place& place) {
  std::optional<codegen::SharedForm> shared;
  codegen::Lowered lowered;
  if (shares_texts() && (shared = codegen::shared_form(own, own_symbols))) {
    if (shared->graph.inputs.size() + shared->graph.outputs.size() + shared->sizes.size() <= kMaxArguments)
      lowered = codegen::lower(shared->graph, name);
    if (!lowered.kernel) shared.reset();
  }
  if (!lowered.kernel) lowered = codegen::lower(own, name);
  PELTON_CHECK(lowered.kernel, lowered.reason);
  const ir::Graph& graph = shared ? shared->graph : own;
  const SymbolValues& symbols = shared ? shared->sizes : own_symbols;
  int64_t largest = 0, widest = 1, results = 0;
  for (const auto* values : {&graph.inputs, &graph.outputs})
    for (ir::ValueId v : *values) {
      largest = std::max(largest, element_count(pelton::eval(graph.type(v).shape, symbols)));
      widest = std::max<int64_t>(widest, bits(graph.type(v).dtype) / 8);
    }
  for (ir::ValueId v : graph.outputs)
    results = std::max(results, element_count(pelton::eval(graph.type(v).shape, symbols)));
  // What is broadcast and reduced inside may be larger than all that is read and stored.
  for (ir::NodeId id : graph.order())
    for (ir::ValueId v : graph[id].outputs)
      largest = std::max(largest, element_count(pelton::eval(graph.type(v).shape, symbols)));
  codegen::CudaOptions options;
  options.wide_index = largest >= int64_t{1} << 30;
  options.columns = reads_columns(*lowered.kernel, symbols);
  // 16 bytes a thread, unless that leaves multiprocessors without work.
  const int64_t processors = multiprocessors(place.target);
  options.vector = static_cast<int>(std::min<int64_t>(8, 16 / widest));
  while (options.vector > 1 && results / options.vector < processors * 256) options.vector /= 2;
  codegen::CudaKernel text = codegen::emit_cuda(*lowered.kernel, options);
  std::vector<int64_t> sizes;
  for (const std::string& s : lowered.kernel->sizes) {
    auto it = symbols.find(s);
    PELTON_CHECK(it != symbols.end(), "the size of symbol '", s, "' is not known");
    sizes.push_back(it->second);
  }
  // More blocks than can run at once only cost their start.
  int64_t blocks = results == 0 ? 0 : std::clamp<int64_t>(text.blocks.eval(symbols), 1, processors * 64);
  std::string all = cat(codegen::cuda_prelude(), text.text);
  std::shared_ptr<const LoadedKernel> kernel;
  std::vector<Packed> constants;
  if (place.texts) {
    place.texts->insert(std::move(text.text));
  } else if (!place.present) {
    (void)compile_cubin(all, place.target.sm);
  } else {
    kernel = compiled(all, text.entry, place.target.sm);
    if (shared)
      for (const Tensor& t : shared->constants)
        constants.push_back(shared_packed(t, "as it is", [&] { return upload(t, "a constant of a group"); }));
  }
  return std::make_unique<GeneratedKernel>(std::move(kernel), std::move(inputs), std::move(constants),
                                           graph.outputs.size(), std::move(sizes), options.wide_index,
                                           static_cast<unsigned>(blocks), static_cast<unsigned>(text.block));
}

// Sums of stretches of rows, then their sums.
class SplitKernel : public Kernel {
 public:
  SplitKernel(std::unique_ptr<GeneratedKernel> first, std::unique_ptr<GeneratedKernel> second,
              std::vector<size_t> second_inputs, std::vector<int64_t> part_bytes)
      : first_(std::move(first)),
        second_(std::move(second)),
        second_inputs_(std::move(second_inputs)),
        part_bytes_(std::move(part_bytes)) {}
  int64_t scratch_bytes() const override {
    int64_t sum = 0;
    for (int64_t b : part_bytes_) sum += b;
    return sum;
  }
  bool reads(size_t input) const override {
    return first_->reads(input) ||
           std::find(second_inputs_.begin(), second_inputs_.end(), input) != second_inputs_.end();
  }
  void run(const RunArgs& args) const override {
    void* parts[kMaxArguments];
    const void* in[kMaxArguments];
    size_t count = 0;
    auto* at = static_cast<std::byte*>(args.scratch);
    for (int64_t bytes : part_bytes_) {
      parts[count] = at;
      in[count] = at;
      at += bytes;
      ++count;
    }
    RunArgs step = args;
    step.out = {parts, count};
    first_->run(step);
    for (size_t i : second_inputs_) in[count++] = args.in[i];
    step = args;
    step.in = {in, count};
    second_->run(step);
  }

 private:
  std::unique_ptr<GeneratedKernel> first_, second_;
  std::vector<size_t> second_inputs_;  // of the node; they follow the parts
  std::vector<int64_t> part_bytes_;
};

// Stretches that each row is reduced in: 1 where there are rows enough.
int64_t parts_for(const ir::Graph& graph, const codegen::Kernel& kernel, const SymbolValues& symbols,
                  const device::Target& target) {
  const std::optional<RowSizes> sizes = row_sizes(graph);
  if (!sizes || sizes->rows == 0) return 1;
  const bool columns = reads_columns(kernel, symbols);
  const int64_t processors = multiprocessors(target);
  const int64_t blocks = columns ? (sizes->rows + 31) / 32 : sizes->rows, least = columns ? 64 : 4096;
  if (blocks >= 2 * processors || sizes->length < 2 * least) return 1;
  return even_parts(sizes->length, std::min(4 * processors / blocks, sizes->length / least));
}

std::unique_ptr<Kernel> prepare_at(const Instance& instance, const Place& place) {
  Body body = body_of(instance.graph, instance.id);
  PELTON_CHECK(body.reason.empty(), body.reason);
  const std::string name = kernel_name(instance.graph, instance.id);
  const codegen::Lowered lowered = codegen::lower(body.graph, name);
  PELTON_CHECK(lowered.kernel, lowered.reason);
  const int64_t parts = parts_for(body.graph, *lowered.kernel, instance.symbols, place.target);
  const std::optional<SplitReduction> split = split_reduction(body.graph, parts);
  if (!split) return generate(body.graph, name, std::move(body.inputs), instance.symbols, place);
  std::vector<size_t> first_inputs, second_inputs, places;
  for (size_t i : split->first_inputs) first_inputs.push_back(body.inputs[i]);
  for (size_t i : split->second_inputs) second_inputs.push_back(body.inputs[i]);
  std::vector<int64_t> part_bytes;
  for (ir::ValueId v : split->first.outputs) {
    const ir::Type& t = split->first.type(v);
    part_bytes.push_back(aligned(element_count(*as_dims(t.shape)) * bits(t.dtype) / 8));
  }
  for (size_t i = 0; i < split->second.inputs.size(); ++i) places.push_back(i);
  return std::make_unique<SplitKernel>(
      generate(split->first, name + "_parts", std::move(first_inputs), instance.symbols, place),
      generate(split->second, name, std::move(places), instance.symbols, place), std::move(second_inputs),
      std::move(part_bytes));
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  return prepare_at(instance, {target});
}

}  // namespace

void compile_generated(const Instance& instance, const device::Target& target) {
  (void)prepare_at(instance, {target, false});
}
void count_generated(const Instance& instance, const device::Target& target, std::set<std::string>& texts) {
  (void)prepare_at(instance, {target, false, &texts});
}
void share_texts() {
  if (device::Artifacts* of_plan = device::current_artifacts())
    of_plan->add(kShared.first, kShared.second, "");
}

void add_generated(Registry& registry) {
  Implementation i;
  i.name = kGenerated;
  i.ops = {"fused", "layout"};
  static const std::set<std::string_view> movement = {"cast",      "broadcast_to", "slice",  "reverse",
                                                      "tile",      "iota",         "concat", "pad",
                                                      "transpose", "reshape",      "fill"};
  for (const ir::OpDef* op : ir::all_ops())
    if (op->scalar || op->decompose || movement.count(op->name) || op->name.starts_with("reduce_") ||
        op->family == ir::Family::quantize)
      i.ops.push_back(op->name);
  i.refuse = refuse;
  i.prepare = prepare;
  i.device = device::Kind::cuda;
  registry.add(std::move(i));
}

}  // namespace pelton::backend::cuda
