// SPDX-License-Identifier: Apache-2.0
// scatter_nd and scatter_elements that write or add. A task owns a range of places and takes the updates that
// fall into it in their order, so results do not depend on the thread count.
#include <cstring>

#include "backend/cpu/implementations.h"
#include "backend/cpu/support.h"
#include "base/cat.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (std::string why = refuse_layouts(graph, node); !why.empty()) return why;
  const std::string& reduction = graph[node].get_text("reduction");
  if (reduction != "none" && reduction != "add") return cat("does not take the reduction ", reduction);
  const DType t = input_dtype(graph, node, 0), i = input_dtype(graph, node, 1);
  if (i != DType::i64 && i != DType::i32) return cat("needs i32 or i64 indices, got ", name(i));
  if (t != DType::f32 && t != DType::f64 && t != DType::i64)
    return cat("needs f32, f64 or i64, got ", name(t));
  return {};
}

int64_t index_at(const void* p, DType t, int64_t i) {
  return t == DType::i64 ? static_cast<const int64_t*>(p)[i] : static_cast<const int32_t*>(p)[i];
}
int64_t checked(int64_t i, int64_t size, const std::string& where) {
  const int64_t r = i < 0 ? i + size : i;
  if (r < 0 || r >= size)
    fail(ErrorCode::bad_shape, cat("index ", i, " is outside an axis of size ", size), where);
  return r;
}

// Tasks a node is split into: a function of the sizes alone. Each looks at every index.
int64_t parts_for(int64_t places, int64_t updates, int64_t row) {
  return std::clamp<int64_t>(updates * row / (int64_t{1} << 16), 1,
                             std::min<int64_t>(16, std::max<int64_t>(1, places)));
}

// Copies the data, then calls apply(k, place) in the order of the updates k for the places of each task.
template <class T, class Place, class Apply>
void scatter(const T* data, T* out, int64_t places, int64_t row, int64_t updates, Place place, Apply apply) {
  const int64_t parts = parts_for(places, updates, row), each = (places + parts - 1) / parts;
  parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t from = part * each, to = std::min(places, from + each);
      if (from >= to) continue;
      if (data != out)
        std::memcpy(out + from * row, data + from * row, static_cast<size_t>((to - from) * row) * sizeof(T));
      for (int64_t k = 0; k < updates; ++k)
        if (const int64_t at = place(k); at >= from && at < to) apply(k, at);
    }
  });
}

template <class T>
std::unique_ptr<Kernel> prepare_nd(const Instance& instance) {
  const Dims &x = instance.inputs[0].dims, &i = instance.inputs[1].dims;
  const auto tuple = static_cast<size_t>(i.back());
  const Dims head(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(tuple)),
      tail(x.begin() + static_cast<std::ptrdiff_t>(tuple), x.end());
  const int64_t row = element_count(tail), places = element_count(head),
                updates = element_count(Dims(i.begin(), i.end() - 1));
  const bool add = instance.node().get_text("reduction") == "add";
  const DType type = instance.inputs[1].dtype;
  return make_kernel([=, where = instance.graph.describe(instance.id)](const RunArgs& args) {
    const T* u = static_cast<const T*>(args.in[2]);
    T* out = static_cast<T*>(args.out[0]);
    auto place = [&](int64_t k) {
      int64_t at = 0;
      for (size_t d = 0; d < tuple; ++d)
        at = at * head[d] +
             checked(index_at(args.in[1], type, k * static_cast<int64_t>(tuple) + static_cast<int64_t>(d)),
                     head[d], where);
      return at;
    };
    scatter(static_cast<const T*>(args.in[0]), out, places, row, updates, place, [&](int64_t k, int64_t at) {
      T* to = out + at * row;
      const T* from = u + k * row;
      if (add)
        for (int64_t e = 0; e < row; ++e) to[e] += from[e];
      else
        std::memcpy(to, from, static_cast<size_t>(row) * sizeof(T));
    });
  });
}

template <class T>
std::unique_ptr<Kernel> prepare_elements(const Instance& instance) {
  const Dims &x = instance.inputs[0].dims, &i = instance.inputs[1].dims;
  int64_t a = instance.node().get_int("axis");
  const auto axis = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(x.size()) : a);
  const Dims strides = row_major_strides(x);
  const int64_t places = element_count(x), updates = element_count(i);
  const bool add = instance.node().get_text("reduction") == "add";
  const DType type = instance.inputs[1].dtype;
  return make_kernel([=, where = instance.graph.describe(instance.id)](const RunArgs& args) {
    const T* u = static_cast<const T*>(args.in[2]);
    T* out = static_cast<T*>(args.out[0]);
    auto place = [&](int64_t k) {
      int64_t rest = k, at = 0;
      for (size_t d = i.size(); d-- > 0;) {
        const int64_t position = rest % i[d];
        rest /= i[d];
        at += (d == axis ? checked(index_at(args.in[1], type, k), x[d], where) : position) * strides[d];
      }
      return at;
    };
    scatter(static_cast<const T*>(args.in[0]), out, places, 1, updates, place,
            [&](int64_t k, int64_t at) { out[at] = add ? out[at] + u[k] : u[k]; });
  });
}

template <class T>
std::unique_ptr<Kernel> prepare_as(const Instance& instance) {
  return instance.node().is("scatter_nd") ? prepare_nd<T>(instance) : prepare_elements<T>(instance);
}
std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const DType t = instance.inputs[0].dtype;
  if (t == DType::f32) return prepare_as<float>(instance);
  return t == DType::f64 ? prepare_as<double>(instance) : prepare_as<int64_t>(instance);
}

}  // namespace

void add_scatter(Registry& registry) {
  registry.add({"cpu.scatter", {"scatter_nd", "scatter_elements"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
