// SPDX-License-Identifier: Apache-2.0
// topk, sort, arg_max, arg_min, cumsum, cumprod: work along one axis, line by line. The order is that of the
// interpreter: NaN above all numbers, equal elements by index.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/cpu/implementations.h"
#include "backend/cpu/support.h"
#include "backend/cpu/tile/lanes.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

// Lines along an axis: line i starts at start(i), its elements lie `stride` apart.
struct Lines {
  int64_t size, stride, count;
  Lines(const Dims& dims, int64_t axis) {
    if (axis < 0) axis += static_cast<int64_t>(dims.size());
    const auto a = static_cast<size_t>(axis);
    size = dims[a];
    stride = element_count(Dims(dims.begin() + axis + 1, dims.end()));
    count = element_count(Dims(dims.begin(), dims.begin() + axis)) * stride;
  }
  int64_t start(int64_t line) const { return line / stride * stride * size + line % stride; }
};

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (std::string why = refuse_layouts(graph, node); !why.empty()) return why;
  const DType t = input_dtype(graph, node, 0);
  if (!has_lane(t) || t == DType::boolean || t == DType::u64) return cat("does not take ", name(t));
  return {};
}

template <class T>
bool below(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a < b || (std::isnan(b) && !std::isnan(a));
  return a < b;
}

// Calls f(T{}) with the C++ type of the lane.
template <class F>
void with_lane(Lane lane, F f) {
  if (lane == Lane::f32)
    f(float{});
  else if (lane == Lane::f64)
    f(double{});
  else
    f(int64_t{});
}

std::unique_ptr<Kernel> prepare_sorted(const Instance& instance, const device::Target& target) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  const ir::Node& n = instance.node();
  const int64_t axis = n.get_int("axis");
  const Lines from(x.dims, axis), to(y.dims, axis);
  const bool descending = n.is("topk") ? n.get_bool("largest") : n.get_bool("descending");
  const Lane lane = lane_of(x.dtype);
  const LoadFunction load = load_function(x.dtype, target.isa);
  const StoreFunction store = store_function(x.dtype, target.isa);
  const int64_t width = bits(x.dtype) / 8, keep = to.size, lines = y.count() ? from.count : 0;
  const int64_t grain = std::max(grain_for(lines, from.size * 8), (lines + 15) / 16);
  const int64_t line_bytes = align64(from.size * 8) * 2;  // values, then order
  const bool with_indices = instance.outputs.size() > 1;
  auto run = [=](const RunArgs& args) {
    parallel_for(0, lines, grain, [&](int64_t begin, int64_t end) {
      std::byte* values = offset(args.scratch, begin / grain * line_bytes);
      auto* order = reinterpret_cast<int64_t*>(values + line_bytes / 2);
      for (int64_t line = begin; line < end; ++line) {
        load(static_cast<const std::byte*>(args.in[0]) + from.start(line) * width, from.stride, values,
             from.size);
        std::iota(order, order + from.size, int64_t{0});
        with_lane(lane, [&](auto tag) {
          using T = decltype(tag);
          const T* v = reinterpret_cast<const T*>(values);
          auto before = [&](int64_t i, int64_t j) {
            if (below(v[i], v[j])) return !descending;
            if (below(v[j], v[i])) return descending;
            return i < j;
          };
          std::partial_sort(order, order + keep, order + from.size, before);
          for (int64_t k = 0; k < keep; ++k)
            store(v + order[k],
                  static_cast<std::byte*>(args.out[0]) + (to.start(line) + k * to.stride) * width, 1, 1);
        });
        if (with_indices && args.out[1])
          for (int64_t k = 0; k < keep; ++k)
            static_cast<int64_t*>(args.out[1])[to.start(line) + k * to.stride] = order[k];
      }
    });
  };
  return make_kernel(run, lines ? (lines + grain - 1) / grain * line_bytes : 0);
}

// In double or exact 64-bit integers, element by element; a line is read once.
template <class F>
void read_line(const void* base, DType t, LoadFunction load, int64_t start, int64_t stride, int64_t size,
               F f) {
  constexpr int64_t kPiece = 256;
  alignas(64) std::byte lanes[kPiece * 8];
  const int64_t width = bits(t) / 8;
  for (int64_t i = 0; i < size; i += kPiece) {
    const int64_t n = std::min(kPiece, size - i);
    load(static_cast<const std::byte*>(base) + (start + i * stride) * width, stride, lanes, n);
    f(i, n, lanes);
  }
}

std::unique_ptr<Kernel> prepare_arg(const Instance& instance, const device::Target& target) {
  const TensorSpec& x = instance.inputs[0];
  const ir::Node& n = instance.node();
  const Lines lines(x.dims, n.get_int("axis"));
  const bool max = n.is("arg_max"), last = n.get_bool("last");
  const DType type = x.dtype;
  const Lane lane = lane_of(type);
  const LoadFunction load = load_function(type, target.isa);
  const int64_t count = instance.outputs[0].count(), grain = grain_for(count, lines.size * 2);
  if (count > 0 && lines.size == 0)
    fail(ErrorCode::bad_shape, "nothing to choose from along an axis of size 0",
         instance.graph.describe(instance.id));
  return make_kernel([=](const RunArgs& args) {
    parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line)
        with_lane(lane, [&](auto tag) {
          using T = decltype(tag);
          T best{};
          int64_t index = 0;
          read_line(args.in[0], type, load, lines.start(line), lines.stride, lines.size,
                    [&](int64_t at, int64_t size, const std::byte* lanes) {
                      const T* v = reinterpret_cast<const T*>(lanes);
                      for (int64_t i = 0; i < size; ++i) {
                        bool better;
                        if constexpr (std::is_floating_point_v<T>) {
                          // NaN wins over any number, for minima as well.
                          const bool nan = std::isnan(v[i]), held = std::isnan(best);
                          better = nan || held ? nan && (!held || last)
                                               : (max ? v[i] > best : v[i] < best) || (last && v[i] == best);
                        } else {
                          better = (max ? v[i] > best : v[i] < best) || (last && v[i] == best);
                        }
                        if (better || at + i == 0) {
                          best = v[i];
                          index = at + i;
                        }
                      }
                    });
          static_cast<int64_t*>(args.out[0])[line] = index;
        });
    });
  });
}

std::unique_ptr<Kernel> prepare_scan(const Instance& instance, const device::Target& target) {
  const TensorSpec& x = instance.inputs[0];
  const ir::Node& n = instance.node();
  const Lines lines(x.dims, n.get_int("axis"));
  const bool sum = n.is("cumsum"), exclusive = n.get_bool("exclusive"), reverse = n.get_bool("reverse");
  const Lane lane = lane_of(x.dtype);
  const LoadFunction load = load_function(x.dtype, target.isa);
  const StoreFunction store = store_function(x.dtype, target.isa);
  const int64_t width = bits(x.dtype) / 8, count = x.count() ? lines.count : 0,
                grain = grain_for(count, lines.size * 4);
  return make_kernel([=](const RunArgs& args) {
    parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line)
        with_lane(lane, [&](auto tag) {
          using T = decltype(tag);
          // Integers wrap; f32 sums run in double, so that long ones keep their digits.
          using Wide = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
          Wide total = sum ? 0 : 1;
          for (int64_t k = 0; k < lines.size; ++k) {
            const int64_t at = lines.start(line) + (reverse ? lines.size - 1 - k : k) * lines.stride;
            T v;
            load(static_cast<const std::byte*>(args.in[0]) + at * width, 1, &v, 1);
            const Wide before = total;
            total = sum ? total + static_cast<Wide>(v) : total * static_cast<Wide>(v);
            const T result = static_cast<T>(exclusive ? before : total);
            store(&result, static_cast<std::byte*>(args.out[0]) + at * width, 1, 1);
          }
        });
    });
  });
}

}  // namespace

void add_ranking(Registry& registry) {
  registry.add({"cpu.sort", {"topk", "sort"}, refuse, prepare_sorted});
  registry.add({"cpu.arg", {"arg_max", "arg_min"}, refuse, prepare_arg});
  registry.add({"cpu.scan", {"cumsum", "cumprod"}, refuse, prepare_scan});
}

}  // namespace pelton::backend::cpu
