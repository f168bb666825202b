// SPDX-License-Identifier: Apache-2.0
// Reductions over axes that are not the innermost in memory (the pixels of a channels-last image, the rows of
// a matrix): whole runs are added to each other, where a tile program would gather every column.
#include <limits>

#include "backend/cpu/implementations.h"
#include "backend/cpu/move/copy.h"
#include "backend/cpu/tile/lanes.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

// Reduced axes as positions in memory, ascending; empty if they are not one block before the last position.
Dims reduced_positions(const ir::Node& n, int64_t rank, const ir::Layout& layout) {
  Dims at;
  for (int64_t a : n.get_ints("axes")) {
    a += a < 0 ? rank : 0;
    if (layout.kind == ir::Layout::Kind::channels_last && rank > 2)
      a = a == 1 ? rank - 1 : a >= 2 ? a - 1 : a;
    at.push_back(a);
  }
  std::sort(at.begin(), at.end());
  const bool block =
      !at.empty() && at.back() < rank - 1 && at.back() - at.front() + 1 == static_cast<int64_t>(at.size());
  return block ? at : Dims();
}

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Node& n = graph[node];
  const ir::Type &x = graph.type(n.inputs[0]), &y = graph.type(n.outputs[0]);
  if (!x.is_tensor() || !x.ranked || !is_real(x.dtype)) return cat("needs f32, f16 or bf16, got ", x.str());
  if (x.layout.kind == ir::Layout::Kind::blocked) return "needs a plain or channels-last layout";
  const Dims at = reduced_positions(n, x.rank(), x.layout);
  if (at.empty()) return "reduces the innermost axis, or axes that are apart";
  // All kept dims but the channels lie in order in both layouts when every spatial axis is reduced (and the
  // batch, or not).
  const bool all_spatial = static_cast<int64_t>(at.size()) == x.rank() - 1 - at.front() && at.front() <= 1;
  if (!x.layout.is_plain() && !all_spatial)
    return "reduces some of the spatial axes of a channels-last tensor";
  if (!y.layout.is_plain() && !(y.layout == x.layout)) return "changes the layout";
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const TensorSpec& x = instance.inputs[0];
  const ir::Node& n = instance.node();
  const Dims dims = physical_dims(x.dims, x.layout);
  const Dims at = reduced_positions(n, static_cast<int64_t>(dims.size()), x.layout);
  const int64_t outer = element_count(Dims(dims.begin(), dims.begin() + at.front()));
  const int64_t rows = element_count(Dims(dims.begin() + at.front(), dims.begin() + at.back() + 1));
  const int64_t inner = element_count(Dims(dims.begin() + at.back() + 1, dims.end()));
  const bool max = n.is("reduce_max"), min = n.is("reduce_min"), prod = n.is("reduce_prod");
  const Code code = max ? Code::max : min ? Code::min : prod ? Code::mul : Code::add;
  const float start = max   ? -std::numeric_limits<float>::infinity()
                      : min ? std::numeric_limits<float>::infinity()
                            : prod;
  const float divisor = n.is("reduce_mean") ? static_cast<float>(rows) : 1.0f;
  const StepFunction combine = f32_step(code, target.isa);
  const LoadFunction load = load_function(x.dtype, target.isa);
  const StoreFunction store = store_function(x.dtype, target.isa);
  const bool direct = x.dtype == DType::f32;
  const int64_t width = bits(x.dtype) / 8;
  // A piece of the columns stays in L1 while the rows pass. Short rows pass several at a time, as one run,
  // and many rows are cut into chunks, whose results are combined at the end. Sums of 64 runs are added up,
  // so errors grow slowly.
  constexpr int64_t kPiece = 512, kRuns = 64, kChunkElements = int64_t{1} << 15;
  const int64_t pieces = (inner + kPiece - 1) / kPiece;
  const int64_t together = std::max<int64_t>(1, std::min(rows, kPiece / std::max<int64_t>(1, inner)));
  const int64_t piece = pieces == 1 ? inner : kPiece;
  const int64_t least = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, piece));
  const int64_t chunk_rows = std::max<int64_t>(1, (least + together - 1) / together * together);
  const int64_t chunks = std::max<int64_t>(1, (rows + chunk_rows - 1) / chunk_rows);
  const int64_t units = outer * pieces * chunks;
  const int64_t grain = grain_for(units, std::min(rows, chunk_rows) * piece);

  // Combines rows [r0, r1) of one piece (`from`: row 0 of it, rows `inner` apart) into total[0, count).
  auto combine_rows = [=](const std::byte* from, int64_t r0, int64_t r1, int64_t count, float* total) {
    alignas(64) float partial[kPiece], row[kPiece];
    const int64_t run = together * count;
    std::fill_n(total, run, start);
    Step add, flush;
    add.in[0] = add.out = partial;
    flush.in[0] = flush.out = total;
    flush.in[1] = partial;
    auto take = [&](int64_t r, int64_t n) {
      const std::byte* source = from + r * inner * width;
      if (!direct) load(source, 1, row, n);
      add.in[1] = direct ? static_cast<const void*>(source) : row;
      combine(add, n);
    };
    for (int64_t r = r0; r < r1;) {
      std::fill_n(partial, run, start);
      for (int64_t k = 0; k < kRuns && r < r1; ++k) {
        const int64_t n = std::min(together, r1 - r);
        take(r, n * count);
        r += n;
      }
      combine(flush, run);
    }
    for (int64_t k = 1; k < together; ++k) {
      Step fold;
      fold.in[0] = fold.out = total;
      fold.in[1] = total + k * count;
      combine(fold, count);
    }
  };
  auto finish = [=](float* total, int64_t o, int64_t first, int64_t count, void* out) {
    if (divisor != 1.0f)
      for (int64_t i = 0; i < count; ++i) total[i] /= divisor;
    store(total, static_cast<std::byte*>(out) + (o * inner + first) * width, 1, count);
  };
  return make_kernel(
      [=](const RunArgs& args) {
        auto* partials = static_cast<float*>(args.scratch);  // [outer, pieces, chunks, piece]
        parallel_for(0, units, grain, [&](int64_t begin, int64_t end) {
          alignas(64) float total[kPiece];
          for (int64_t u = begin; u < end; ++u) {
            const int64_t chunk = u % chunks, first = u / chunks % pieces * kPiece, o = u / chunks / pieces;
            const int64_t count = std::min(kPiece, inner - first);
            const auto* from = static_cast<const std::byte*>(args.in[0]) + (o * rows * inner + first) * width;
            combine_rows(from, chunk * chunk_rows, std::min(rows, (chunk + 1) * chunk_rows), count, total);
            if (chunks > 1)
              std::copy_n(total, count, partials + u * piece);
            else
              finish(total, o, first, count, args.out[0]);
          }
        });
        if (chunks == 1) return;
        for (int64_t u = 0; u < outer * pieces; ++u) {
          const int64_t first = u % pieces * kPiece, count = std::min(kPiece, inner - first);
          float* total = partials + u * chunks * piece;
          for (int64_t c = 1; c < chunks; ++c) {
            Step fold;
            fold.in[0] = fold.out = total;
            fold.in[1] = total + c * piece;
            combine(fold, count);
          }
          finish(total, u / pieces, first, count, args.out[0]);
        }
      },
      chunks > 1 ? align64(units * piece * 4) : 0);
}

}  // namespace

void add_column_reduce(Registry& registry) {
  registry.add({"cpu.column_reduce",
                {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"},
                refuse,
                prepare});
}

}  // namespace pelton::backend::cpu
