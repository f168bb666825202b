// SPDX-License-Identifier: Apache-2.0
// iota, one_hot, trilu, and pads that repeat the tensor's own values.
#include <cstring>

#include "backend/cpu/move/copy.h"
#include "backend/cpu/move/implementations.h"
#include "backend/cpu/move/index.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

// Counts in an integer type or f32; other floats are rare and stay on the reference.
std::string refuse_iota(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const DType t = output_dtype(graph, node);
  if (t != DType::i64 && t != DType::i32 && t != DType::f32)
    return cat("counts in i64, i32 and f32, not ", name(t));
  return refuse_layouts(graph, node);
}
std::unique_ptr<Kernel> prepare_iota(const Instance& instance, const device::Target&) {
  const TensorSpec& y = instance.outputs[0];
  const auto rank = static_cast<int64_t>(y.dims.size());
  int64_t axis = instance.node().get_int("axis");
  axis += axis < 0 ? rank : 0;
  const int64_t size = y.dims[static_cast<size_t>(axis)], count = y.count();
  const int64_t inner = element_count(Dims(y.dims.begin() + axis + 1, y.dims.end()));
  const DType type = y.dtype;
  return make_kernel([=](const RunArgs& args) {
    auto write = [&](auto* out) {
      using T = std::remove_reference_t<decltype(*out)>;
      parallel_for(0, count, grain_for(count, 2), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(i / inner % size);
      });
    };
    if (type == DType::i64)
      write(static_cast<int64_t*>(args.out[0]));
    else if (type == DType::i32)
      write(static_cast<int32_t*>(args.out[0]));
    else
      write(static_cast<float*>(args.out[0]));
  });
}

std::string refuse_one_hot(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (std::string why = refuse_layouts(graph, node); !why.empty()) return why;
  if (const DType t = input_dtype(graph, node, 0); !is_index(t))
    return cat("needs i32 or i64 indices, got ", name(t));
  return {};
}
// The off value everywhere, then the on value where an index points into the axis.
std::unique_ptr<Kernel> prepare_one_hot(const Instance& instance, const device::Target&) {
  const TensorSpec &i = instance.inputs[0], &y = instance.outputs[0];
  const auto rank = static_cast<int64_t>(y.dims.size());
  int64_t axis = instance.node().get_int("axis");
  axis += axis < 0 ? rank : 0;
  const int64_t depth = y.dims[static_cast<size_t>(axis)], count = i.count();
  const int64_t inner = element_count(Dims(y.dims.begin() + axis + 1, y.dims.end()));
  if (y.count() == 0) return make_kernel([](const RunArgs&) {});
  const int64_t width = bits(y.dtype) / 8;
  StridedCopy off({y.count()}, {0}, {1}, width);
  return make_kernel([=, off = std::move(off), type = i.dtype](const RunArgs& args) {
    off.run(args.in[2], args.out[0]);
    const std::byte* on = offset(args.in[2], width);
    for (int64_t k = 0; k < count; ++k) {
      int64_t at = index_at(args.in[0], type, k);
      at += at < 0 ? depth : 0;
      if (at < 0 || at >= depth) continue;
      std::memcpy(offset(args.out[0], ((k / inner * depth + at) * inner + k % inner) * width), on,
                  static_cast<size_t>(width));
    }
  });
}

std::string refuse_trilu(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (std::string why = refuse_layouts(graph, node); !why.empty()) return why;
  const ir::Node& n = graph[node];
  if (n.inputs.size() > 1 && n.inputs[1] && !is_index(input_dtype(graph, node, 1)))
    return cat("needs an i32 or i64 diagonal, got ", name(input_dtype(graph, node, 1)));
  return {};
}
std::unique_ptr<Kernel> prepare_trilu(const Instance& instance, const device::Target&) {
  const TensorSpec& x = instance.inputs[0];
  const int64_t columns = x.dims.back(), height = x.dims[x.dims.size() - 2];
  const int64_t rows = columns ? x.count() / columns : 0, width = bits(x.dtype) / 8;
  const bool upper = instance.node().get_bool("upper"), has_k = instance.has(1);
  const DType k_type = has_k ? instance.inputs[1].dtype : DType::i64;
  return make_kernel([=](const RunArgs& args) {
    const int64_t k = has_k ? index_at(args.in[1], k_type, 0) : 0;
    parallel_for(0, rows, grain_for(rows, columns), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        // Kept are the columns [first, last).
        const int64_t row = r % height;
        // In wide steps, since k may be any number.
        const int64_t edge = k > columns ? columns : k < -height ? -height : k;
        const int64_t first = upper ? std::clamp<int64_t>(row + edge, 0, columns) : 0;
        const int64_t last = upper ? columns : std::clamp<int64_t>(row + edge + 1, 0, columns);
        std::byte* to = offset(args.out[0], r * columns * width);
        const std::byte* from = offset(args.in[0], r * columns * width);
        std::memset(to, 0, static_cast<size_t>(first * width));
        if (to != from)
          std::memcpy(to + first * width, from + first * width, static_cast<size_t>((last - first) * width));
        std::memset(to + last * width, 0, static_cast<size_t>((columns - last) * width));
      }
    });
  });
}

std::string refuse_pad(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (graph[node].get_text("mode") == "constant") return "repeats the tensor's own values only";
  return refuse_layouts(graph, node);
}
// Where each position along an axis of the result comes from.
std::vector<int64_t> sources(int64_t size, int64_t low, int64_t result, const std::string& mode) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < result; ++i) {
    const int64_t at = i - low;
    const int64_t period = mode == "wrap" ? size : std::max<int64_t>(1, 2 * (size - 1));
    const int64_t folded = ((at % period) + period) % period;
    if (mode == "edge")
      out.push_back(std::clamp<int64_t>(at, 0, size - 1));
    else if (mode == "wrap" || folded < size)
      out.push_back(folded);
    else
      out.push_back(period - folded);
  }
  return out;
}
std::unique_ptr<Kernel> prepare_pad(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  const Dims low = instance.dims("low");
  const size_t rank = x.dims.size();
  if (y.count() == 0 || rank == 0)
    return make_kernel([bytes = static_cast<size_t>(y.bytes())](const RunArgs& args) {
      std::memcpy(args.out[0], args.in[0], bytes);
    });
  const std::vector<int64_t> strides = row_major_strides(x.dims);
  std::vector<std::vector<int64_t>> from;  // by axis, in elements
  for (size_t d = 0; d < rank; ++d) {
    if (x.dims[d] == 0)
      fail(ErrorCode::bad_shape, cat("has nothing to repeat along axis ", d, " of ", x.dims),
           instance.graph.describe(instance.id));
    from.push_back(sources(x.dims[d], low[d], y.dims[d], instance.node().get_text("mode")));
    for (int64_t& v : from.back()) v *= strides[d];
  }
  const int64_t length = y.dims.back(), rows = y.count() / length, width = bits(x.dtype) / 8;
  return make_kernel([=, dims = y.dims, from = std::move(from)](const RunArgs& args) {
    parallel_for(0, rows, grain_for(rows, length * 2), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        int64_t rest = r, base = 0;
        for (size_t d = rank - 1; d-- > 0;) {
          base += from[d][static_cast<size_t>(rest % dims[d])];
          rest /= dims[d];
        }
        const std::byte* source = offset(args.in[0], base * width);
        std::byte* to = offset(args.out[0], r * length * width);
        const std::vector<int64_t>& last = from[rank - 1];
        auto copy = [&](auto one) {
          for (int64_t i = 0; i < length; ++i)
            std::memcpy(to + i * static_cast<int64_t>(sizeof one),
                        source + last[static_cast<size_t>(i)] * static_cast<int64_t>(sizeof one), sizeof one);
        };
        if (width == 4)
          copy(uint32_t{});
        else if (width == 1)
          copy(uint8_t{});
        else if (width == 2)
          copy(uint16_t{});
        else
          copy(uint64_t{});
      }
    });
  });
}

}  // namespace

void add_generate(Registry& registry) {
  registry.add({"cpu.iota", {"iota"}, refuse_iota, prepare_iota});
  registry.add({"cpu.one_hot", {"one_hot"}, refuse_one_hot, prepare_one_hot});
  registry.add({"cpu.trilu", {"trilu"}, refuse_trilu, prepare_trilu});
  registry.add({"cpu.pad_repeat", {"pad"}, refuse_pad, prepare_pad});
}

}  // namespace pelton::backend::cpu
