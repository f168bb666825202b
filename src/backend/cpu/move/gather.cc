// SPDX-License-Identifier: Apache-2.0
// gather (embedding look-up included) and gather_elements.
#include <cstring>

#include "backend/cpu/implementations.h"
#include "backend/cpu/move/index.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (std::string why = refuse_layouts(graph, node); !why.empty()) return why;
  if (const DType t = input_dtype(graph, node, 1); !is_index(t))
    return cat("needs i32 or i64 indices, got ", name(t));
  return {};
}

std::unique_ptr<Kernel> prepare_gather(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &i = instance.inputs[1], &y = instance.outputs[0];
  const auto rank = static_cast<int64_t>(x.dims.size());
  int64_t axis = instance.node().get_int("axis");
  axis += axis < 0 ? rank : 0;
  const int64_t size = x.dims[static_cast<size_t>(axis)], count = i.count();
  const int64_t outer = element_count(Dims(x.dims.begin(), x.dims.begin() + axis));
  const int64_t row = element_count(Dims(x.dims.begin() + axis + 1, x.dims.end())) * (bits(x.dtype) / 8);
  const DType type = i.dtype;
  const int64_t rows = y.count() == 0 ? 0 : outer * count, grain = grain_for(rows, row / 2 + 4);
  return make_kernel([=, where = instance.graph.describe(instance.id)](const RunArgs& args) {
    const auto* from = static_cast<const std::byte*>(args.in[0]);
    auto* to = static_cast<std::byte*>(args.out[0]);
    parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = checked(index_at(args.in[1], type, r % count), size, where);
        const std::byte* source = from + (r / count * size + at) * row;
        if (row == 4)
          std::memcpy(to + r * 4, source, 4);
        else if (row == 8)
          std::memcpy(to + r * 8, source, 8);
        else
          std::memcpy(to + r * row, source, static_cast<size_t>(row));
      }
    });
  });
}

std::unique_ptr<Kernel> prepare_gather_elements(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &i = instance.inputs[1];
  const size_t rank = x.dims.size();
  int64_t a = instance.node().get_int("axis");
  const auto axis = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(rank) : a);
  const std::vector<int64_t> strides = row_major_strides(x.dims);
  const DType type = i.dtype;
  const int64_t width = bits(x.dtype) / 8, count = i.count(), grain = grain_for(count, 16);
  return make_kernel(
      [=, dims = i.dims, x_dims = x.dims, where = instance.graph.describe(instance.id)](const RunArgs& args) {
        parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            int64_t rest = k, at = 0;
            for (size_t d = rank; d-- > 0;) {
              const int64_t pos = rest % dims[d];
              rest /= dims[d];
              at += (d == axis ? checked(index_at(args.in[1], type, k), x_dims[d], where) : pos) * strides[d];
            }
            std::memcpy(static_cast<std::byte*>(args.out[0]) + k * width,
                        static_cast<const std::byte*>(args.in[0]) + at * width, static_cast<size_t>(width));
          }
        });
      });
}

}  // namespace

void add_gather(Registry& registry) {
  registry.add({"cpu.gather", {"gather"}, refuse, prepare_gather});
  registry.add({"cpu.gather_elements", {"gather_elements"}, refuse, prepare_gather_elements});
}

}  // namespace pelton::backend::cpu
