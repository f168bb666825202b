// SPDX-License-Identifier: Apache-2.0
// gather_nd; scatter_nd and scatter_elements of the types and reductions that scatter.cc leaves. Updates are
// applied one after another, as the last one of an element wins; floats fold in f64 and are rounded once.
#include <cmath>
#include <cstring>

#include "backend/cpu/move/implementations.h"
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
std::string refuse_scatter(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  if (std::string why = refuse(graph, node, target); !why.empty()) return why;
  const DType t = input_dtype(graph, node, 0);
  if (graph[node].get_text("reduction") != "none" && t != DType::f32 && t != DType::f64 && t != DType::i32 &&
      t != DType::i64)
    return cat("folds f32, f64, i32 and i64, not ", name(t));
  return {};
}

// Index tuples as offsets in elements.
struct Tuples {
  Dims dims;                     // of the axes a tuple names
  std::vector<int64_t> strides;  // of the same
  DType type = DType::i64;
  std::string where;
  int64_t offset(const void* indices, int64_t line) const {
    int64_t at = 0;
    const auto length = static_cast<int64_t>(dims.size());
    for (int64_t k = 0; k < length; ++k)
      at += checked(index_at(indices, type, line * length + k), dims[static_cast<size_t>(k)], where) *
            strides[static_cast<size_t>(k)];
    return at;
  }
};
Tuples tuples_of(const Instance& instance, size_t first_axis) {
  const TensorSpec &x = instance.inputs[0], &i = instance.inputs[1];
  const std::vector<int64_t> strides = row_major_strides(x.dims);
  Tuples t{{}, {}, i.dtype, instance.graph.describe(instance.id)};
  for (int64_t k = 0; k < i.dims.back(); ++k) {
    t.dims.push_back(x.dims[first_axis + static_cast<size_t>(k)]);
    t.strides.push_back(strides[first_axis + static_cast<size_t>(k)]);
  }
  return t;
}

std::unique_ptr<Kernel> prepare_gather_nd(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &i = instance.inputs[1], &y = instance.outputs[0];
  const auto batch = static_cast<size_t>(instance.node().get_int("batch_dims"));
  const auto skip = static_cast<std::ptrdiff_t>(batch);
  const int64_t lines = element_count(Dims(i.dims.begin(), i.dims.end() - 1));
  const int64_t batches = element_count(Dims(i.dims.begin(), i.dims.begin() + skip));
  if (batches != element_count(Dims(x.dims.begin(), x.dims.begin() + skip)))
    fail(ErrorCode::bad_shape, cat("has other batch dims in ", x.dims, " than in ", i.dims),
         instance.graph.describe(instance.id));
  if (y.count() == 0) return make_kernel([](const RunArgs&) {});
  const int64_t width = bits(x.dtype) / 8, slice = y.count() / lines * width;
  const int64_t a_batch = lines / batches, x_batch = element_count(Dims(x.dims.begin() + skip, x.dims.end()));
  return make_kernel([=, t = tuples_of(instance, batch)](const RunArgs& args) {
    parallel_for(0, lines, grain_for(lines, slice / 4 + 16), [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const int64_t from = line / a_batch * x_batch + t.offset(args.in[1], line);
        std::memcpy(offset(args.out[0], line * slice), offset(args.in[0], from * width),
                    static_cast<size_t>(slice));
      }
    });
  });
}

// Folds update u into element e; both of type T (f64 for floats).
template <class T>
void fold(std::string_view kind, T& e, T u) {
  if (kind == "add")
    e += u;
  else if (kind == "mul")
    e *= u;
  else if (e != e || u != u)
    e = e != e ? e : u;
  else
    e = kind == "max" ? std::max(e, u) : std::min(e, u);
}

// Where update i goes, in elements; runs of `slice` elements stay together.
template <class Target>
std::unique_ptr<Kernel> scatter_kernel(const Instance& instance, int64_t lines, int64_t slice,
                                       Target target) {
  const TensorSpec& x = instance.inputs[0];
  const int64_t count = x.count(), width = bits(x.dtype) / 8;
  const std::string kind = instance.node().get_text("reduction");
  const DType type = x.dtype;
  if (count == 0) return make_kernel([](const RunArgs&) {});
  auto start = [=](const RunArgs& args) {
    if (args.out[0] != args.in[0]) std::memcpy(args.out[0], args.in[0], static_cast<size_t>(count * width));
  };
  if (kind == "none")
    return make_kernel([=](const RunArgs& args) {
      start(args);
      for (int64_t line = 0; line < lines; ++line)
        std::memcpy(offset(args.out[0], target(args, line) * width), offset(args.in[2], line * slice * width),
                    static_cast<size_t>(slice * width));
    });
  auto apply = [=](const RunArgs& args, auto* elements, const auto* updates) {
    using T = std::remove_reference_t<decltype(*elements)>;
    for (int64_t line = 0; line < lines; ++line) {
      const int64_t to = target(args, line);
      for (int64_t i = 0; i < slice; ++i)
        fold<T>(kind, elements[to + i], static_cast<T>(updates[line * slice + i]));
    }
  };
  const int64_t scratch = type == DType::f32 ? count * 8 : 0;
  return make_kernel(
      [=](const RunArgs& args) {
        if (type == DType::f32) {
          const auto* from = static_cast<const float*>(args.in[0]);
          auto* wide = static_cast<double*>(args.scratch);
          std::copy_n(from, count, wide);
          apply(args, wide, static_cast<const float*>(args.in[2]));
          auto* to = static_cast<float*>(args.out[0]);
          for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(wide[i]);
          return;
        }
        start(args);
        if (type == DType::f64)
          apply(args, static_cast<double*>(args.out[0]), static_cast<const double*>(args.in[2]));
        else if (type ==
                 DType::i32)  // sums wrap; the largest and smallest of signed numbers are of signed ones
          kind == "max" || kind == "min"
              ? apply(args, static_cast<int32_t*>(args.out[0]), static_cast<const int32_t*>(args.in[2]))
              : apply(args, static_cast<uint32_t*>(args.out[0]), static_cast<const uint32_t*>(args.in[2]));
        else
          kind == "max" || kind == "min"
              ? apply(args, static_cast<int64_t*>(args.out[0]), static_cast<const int64_t*>(args.in[2]))
              : apply(args, static_cast<uint64_t*>(args.out[0]), static_cast<const uint64_t*>(args.in[2]));
      },
      scratch);
}

std::unique_ptr<Kernel> prepare_scatter_nd(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &i = instance.inputs[1];
  const int64_t lines = element_count(Dims(i.dims.begin(), i.dims.end() - 1));
  const int64_t slice = element_count(Dims(x.dims.begin() + i.dims.back(), x.dims.end()));
  return scatter_kernel(
      instance, lines, slice,
      [t = tuples_of(instance, 0)](const RunArgs& args, int64_t line) { return t.offset(args.in[1], line); });
}

std::unique_ptr<Kernel> prepare_scatter_elements(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &i = instance.inputs[1];
  const size_t rank = x.dims.size();
  int64_t a = instance.node().get_int("axis");
  const auto axis = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(rank) : a);
  return scatter_kernel(
      instance, i.count(), 1,
      [=, strides = row_major_strides(x.dims), dims = i.dims, size = x.dims[axis], type = i.dtype,
       where = instance.graph.describe(instance.id)](const RunArgs& args, int64_t k) {
        int64_t rest = k, at = 0;
        for (size_t d = rank; d-- > 0;) {
          const int64_t position = rest % dims[d];
          rest /= dims[d];
          at += (d == axis ? checked(index_at(args.in[1], type, k), size, where) : position) * strides[d];
        }
        return at;
      });
}

}  // namespace

void add_scatter_any(Registry& registry) {
  registry.add({"cpu.gather_nd", {"gather_nd"}, refuse, prepare_gather_nd});
  registry.add({"cpu.scatter_nd", {"scatter_nd"}, refuse_scatter, prepare_scatter_nd});
  registry.add({"cpu.scatter_elements", {"scatter_elements"}, refuse_scatter, prepare_scatter_elements});
}

}  // namespace pelton::backend::cpu
