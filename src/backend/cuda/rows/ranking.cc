// SPDX-License-Identifier: Apache-2.0
// topk, sort, arg_max, arg_min, cumsum, cumprod.
#include "backend/cuda/own/ranking.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

std::optional<Number> number_of(DType t) {
  switch (t) {
    case DType::f32:
      return Number::f32;
    case DType::f16:
      return Number::f16;
    case DType::bf16:
      return Number::bf16;
    case DType::i32:
      return Number::i32;
    case DType::i16:
      return Number::i16;
    case DType::i8:
      return Number::i8;
    case DType::u32:
      return Number::u32;
    case DType::u16:
      return Number::u16;
    case DType::u8:
      return Number::u8;
    case DType::f64:
      return Number::f64;
    case DType::i64:
      return Number::i64;
    default:
      return {};
  }
}

Lines lines_of(const Dims& dims, int64_t axis) {
  if (axis < 0) axis += static_cast<int64_t>(dims.size());
  Lines l;
  l.size = dims[static_cast<size_t>(axis)];
  l.stride = element_count(Dims(dims.begin() + axis + 1, dims.end()));
  l.count = element_count(Dims(dims.begin(), dims.begin() + axis)) * l.stride;
  return l;
}

std::string refuse_order(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const DType t = input_type(graph, id, 0).dtype;
  if (!number_of(t) || bits(t) > 32) return cat("needs numbers of up to 32 bits, got ", name(t));
  return {};
}
std::string refuse_scan(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const DType t = input_type(graph, id, 0).dtype;
  if (!elem_of(t) && t != DType::f64 && t != DType::i64 && t != DType::i32)
    return cat("does not take ", name(t));
  return {};
}

std::unique_ptr<Kernel> prepare_sort(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  if (y.count() == 0) return nothing();
  const ir::Node& n = instance.node();
  SortLines g;
  g.type = *number_of(x.dtype);
  g.descending = n.get_bool(n.is("topk") ? "largest" : "descending");
  g.lines = lines_of(x.dims, n.get_int("axis"));
  g.keep = lines_of(y.dims, n.get_int("axis")).size;
  if (g.lines.size >= int64_t{1} << 31)
    fail(ErrorCode::bad_shape, cat("sorts lines of up to 2^31 - 1 elements, not ", g.lines.size),
         instance.graph.describe(instance.id));
  const bool indices = instance.outputs.size() > 1;
  KernelNeeds needs;
  needs.scratch_bytes = sort_scratch_bytes(g);
  return make_kernel(
      [g, indices](const RunArgs& args) {
        SortLines s = g;
        s.x = args.in[0];
        s.values = args.out[0];
        if (indices) s.indices = static_cast<int64_t*>(args.out[1]);
        s.scratch = args.scratch;
        PELTON_CUDA(sort_lines(s, stream_of(args)));
      },
      std::move(needs));
}

std::unique_ptr<Kernel> prepare_pick(const Instance& instance, const device::Target&) {
  const ir::Node& n = instance.node();
  PickLines g;
  g.type = *number_of(instance.inputs[0].dtype);
  g.max = n.is("arg_max");
  g.last = n.get_bool("last");
  g.lines = lines_of(instance.inputs[0].dims, n.get_int("axis"));
  if (g.lines.count == 0) return nothing();
  if (g.lines.size == 0 || g.lines.size >= int64_t{1} << 31)
    fail(ErrorCode::bad_shape, cat("cannot choose from ", g.lines.size, " elements along an axis"),
         instance.graph.describe(instance.id));
  return make_kernel([g](const RunArgs& args) {
    PickLines p = g;
    p.x = args.in[0];
    p.index = static_cast<int64_t*>(args.out[0]);
    PELTON_CUDA(pick_lines(p, stream_of(args)));
  });
}

std::unique_ptr<Kernel> prepare_scan(const Instance& instance, const device::Target&) {
  const ir::Node& n = instance.node();
  if (instance.outputs[0].count() == 0) return nothing();
  ScanLines g;
  g.type = *number_of(instance.inputs[0].dtype);
  g.product = n.is("cumprod");
  g.exclusive = n.get_bool("exclusive");
  g.reverse = n.get_bool("reverse");
  g.lines = lines_of(instance.inputs[0].dims, n.get_int("axis"));
  return make_kernel([g](const RunArgs& args) {
    ScanLines s = g;
    s.x = args.in[0];
    s.y = args.out[0];
    PELTON_CUDA(scan_lines(s, stream_of(args)));
  });
}

}  // namespace

void add_ranking(Registry& registry) {
  registry.add({.name = "cuda.sort",
                .ops = {"topk", "sort"},
                .refuse = refuse_order,
                .prepare = prepare_sort,
                .device = device::Kind::cuda});
  registry.add({.name = "cuda.arg",
                .ops = {"arg_max", "arg_min"},
                .refuse = refuse_order,
                .prepare = prepare_pick,
                .device = device::Kind::cuda});
  registry.add({.name = "cuda.scan",
                .ops = {"cumsum", "cumprod"},
                .refuse = refuse_scan,
                .prepare = prepare_scan,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
