// SPDX-License-Identifier: Apache-2.0
// resample: the taps of each result along each axis are laid out when the kernel is prepared.
#include <algorithm>

#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/resample.h"
#include "ir/op.h"
#include "ir/ops/resample.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  const ir::Node& n = graph[id];
  const ir::Type &x = input_type(graph, id, 0), &y = output_type(graph, id);
  if (!elem_of(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  if (x.layout != y.layout || x.layout.kind == ir::Layout::Kind::blocked)
    return cat("needs one plain or channels-last layout, got ", x.layout.str(), " and ", y.layout.str());
  if (n.get_text("coordinates") == "tf_crop_and_resize" || (n.inputs.size() > 1 && n.inputs[1]))
    return "does not crop";
  // Axes that keep their size do not count.
  const ir::Ints& axes = n.get_ints("axes");
  const ir::Floats& scales = n.get_floats("scales");
  size_t resized = 0;
  for (size_t k = 0; k < axes.size(); ++k) {
    const auto d = static_cast<size_t>(axes[k] < 0 ? axes[k] + x.rank() : axes[k]);
    resized += !(x.shape[d] == y.shape[d] && (scales.empty() || scales[k] == 1));
  }
  if (resized > 3) return cat("resizes up to 3 axes, not ", resized);
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  if (y.count() == 0) return nothing();
  const ir::Node& n = instance.node();
  const size_t rank = x.dims.size();
  // Axes in the order of memory.
  std::vector<size_t> memory;
  for (size_t d = 0; d < rank; ++d) memory.push_back(d);
  if (is_channels_last(x.layout) && rank > 2)
    std::rotate(memory.begin() + 1, memory.begin() + 2, memory.end());
  Dims x_dims, y_dims;
  for (size_t d : memory) {
    x_dims.push_back(x.dims[d]);
    y_dims.push_back(y.dims[d]);
  }
  const Dims x_strides = row_major_strides(x_dims);

  const ir::ResampleOptions options = ir::resample_options(n);
  const ir::Floats& scales = n.get_floats("scales");
  struct Axis {
    size_t at;  // in memory order
    std::vector<std::vector<ir::Tap>> taps;
  };
  std::vector<Axis> axes;
  for (size_t k = 0; k < n.get_ints("axes").size(); ++k) {
    const int64_t given = n.get_ints("axes")[k];
    const auto d = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(rank) : given);
    ir::ResampleAxis axis;
    axis.from = x.dims[d];
    axis.to = y.dims[d];
    if (axis.from == axis.to && (scales.empty() || scales[k] == 1)) continue;
    if (axis.from == 0)
      fail(ErrorCode::bad_shape, cat("has nothing to sample along axis ", d),
           instance.graph.describe(instance.id));
    axis.scale_given = !scales.empty();
    axis.scale = axis.scale_given ? scales[k] : static_cast<double>(axis.to) / static_cast<double>(axis.from);
    Axis a{static_cast<size_t>(std::find(memory.begin(), memory.end(), d) - memory.begin()), {}};
    for (int64_t o = 0; o < axis.to; ++o) a.taps.push_back(ir::resample_taps(axis, options, o));
    axes.push_back(std::move(a));
  }
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.at < b.at; });

  Resample g;
  g.type = elem(x.dtype);
  g.count = y.count();
  std::vector<ResampleTap> table;
  std::vector<size_t> starts(3, 0);
  // Unused axes come first; what is in front of the first used one goes to `between` of that axis.
  const size_t skip = 3 - axes.size();
  auto span = [&](size_t first, size_t last,
                  size_t into) {  // memory dims [first, last), none of them resized
    for (size_t d = first; d < last; ++d) g.between[into] *= y_dims[d];
    g.x_between[into] = last > first ? x_strides[last - 1] : 0;
  };
  for (size_t k = 0; k < 3; ++k) {
    starts[k] = table.size();
    if (k < skip) {
      table.push_back({0, 1});
      continue;
    }
    const Axis& a = axes[k - skip];
    span(k == skip ? 0 : axes[k - skip - 1].at + 1, a.at, k);
    g.out[k] = static_cast<int>(y_dims[a.at]);
    g.x_stride[k] = x_strides[a.at];
    size_t width = 1;
    for (const auto& t : a.taps) width = std::max(width, t.size());
    g.width[k] = static_cast<int>(width);
    for (const auto& t : a.taps)
      for (size_t i = 0; i < width; ++i)
        table.push_back(i < t.size()
                            ? ResampleTap{static_cast<int>(t[i].index), static_cast<float>(t[i].weight)}
                            : ResampleTap{0, 0});
  }
  span(axes.empty() ? 0 : axes.back().at + 1, rank, 3);
  auto memory_of_taps = std::make_shared<const DeviceBuffer>(
      upload(table.data(), static_cast<int64_t>(table.size() * sizeof(ResampleTap)), "taps of a resampling"));
  for (size_t k = 0; k < 3; ++k) g.taps[k] = memory_of_taps->as<const ResampleTap>() + starts[k];
  KernelNeeds needs;
  needs.packed.push_back(memory_of_taps);
  return make_kernel(
      [g](const RunArgs& args) {
        Resample r = g;
        r.x = args.in[0];
        r.y = args.out[0];
        PELTON_CUDA(resample(r, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_resample(Registry& registry) {
  registry.add({.name = "cuda.resample",
                .ops = {"resample"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
