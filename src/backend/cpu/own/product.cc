// SPDX-License-Identifier: Apache-2.0
// f32 matrix products with the chain that follows them. The result is cut into tasks of rows and columns;
// each goes through K in blocks, whose sums are added in order, and then through the chain while it is in the
// cache. A constant right operand is packed once; one that changes is packed at each run, unless few rows
// read it.
#include <algorithm>
#include <limits>
#include <numeric>

#include "backend/cpu/implementations.h"
#include "backend/cpu/own/product_steps.h"
#include "backend/cpu/own/row_chain.h"
#include "backend/cpu/support.h"
#include "base/cat.h"
#include "runtime/late_weights.h"
#include "runtime/packed_weights.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kBlock = 256;    // of K: so much of a panel stays in the first cache, and sums stay short
constexpr int64_t kTaskRows = 96;  // so much of a block of A stays in the second cache
constexpr int64_t kTaskColumns = 1024;
constexpr int64_t kWork = 1 << 16;  // cycles of a task, if it has many columns
constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr int64_t kUnpackedRows = 12;  // up to which B is read where it lies

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const Group group = parse_group(graph, node);
  if (!group.reason.empty()) return group.reason;
  const ir::Node& n = group.node();
  if (!n.is("matmul")) return "is not around a matrix product";
  for (size_t i = 0; i < 2; ++i) {
    const ir::Type& t = group.graph->type(n.inputs[i]);
    if (t.dtype != DType::f32) return cat("needs f32, got ", name(t.dtype));
    if (!t.layout.is_plain()) return "needs plain operands";
    if (t.rank() < 2) return "needs matrices";
  }
  if (group.result != DType::f32) return cat("does not yield ", name(group.result));
  const ir::Type& y = graph.type(graph[node].outputs[0]);
  if (!y.layout.is_plain()) return "needs a plain result";
  return RowChain::refuse(group, 0, graph, node, y.rank() - 1);
}

// Matrices [rows, columns] of an operand after its transposition, strides in elements.
struct Matrices {
  Dims batch;
  int64_t rows, columns, row, step;

  Matrices(const Dims& dims, bool transposed)
      : batch(dims.begin(), dims.end() - 2), rows(dims[dims.size() - 2]), columns(dims.back()) {
    row = columns;
    step = 1;
    if (transposed) {
      std::swap(rows, columns);
      std::swap(row, step);
    }
  }
  int64_t count() const { return element_count(batch); }
  // Which of them takes part in product `i` of the batch dims of the result.
  int64_t index(const Dims& result, int64_t i) const {
    int64_t at = 0, stride = 1;
    for (size_t d = result.size(), own = batch.size(); own-- > 0;) {
      --d;
      if (batch[own] != 1) at += i % result[d] * stride;
      stride *= batch[own];
      i /= result[d];
    }
    return at;
  }
};

class Product final : public Kernel {
 public:
  Product(const Group& group, const Instance& instance, const device::Target& target)
      : steps_(product_steps(target.isa)),
        a_(dims_of(group.operands[0], instance), group.node().get_bool("transpose_a")),
        b_(dims_of(group.operands[1], instance), group.node().get_bool("transpose_b")),
        left_(group.operands[0]),
        right_(group.operands[1]) {
    Dims batch = instance.outputs[0].dims;
    batch.resize(batch.size() - 2);
    if (b_.count() == 1 && a_.step == 1) {
      // One right operand: the batches are more rows.
      a_.rows *= element_count(batch);
      batch = a_.batch = b_.batch = {};
    }
    for (int64_t i = 0; i < element_count(batch); ++i) {
      a_of_.push_back(a_.index(batch, i));
      b_of_.push_back(b_.index(batch, i));
    }
    std::vector<int64_t> columns(static_cast<size_t>(b_.columns));
    std::iota(columns.begin(), columns.end(), 0);
    for (const GroupStep& s : group.steps) {
      if (s.operand.constant.defined()) runtime::LateWeights::instance().ready(s.operand.constant.data());
      chain_inputs_.push_back(s.operand.input);
    }
    size_t first = 0;
    const size_t rank = instance.outputs[0].dims.size();
    if (first < group.steps.size() && is_bias(group.steps[0], rank, rank - 1))
      bias_ = group.steps[first++].operand;
    if (first < group.steps.size() && group.steps[first].op == "relu") {
      low_ = 0;
      ++first;
    }
    // As refuse() saw it.
    chain_.take(parse_group(instance.graph, instance.id), first, columns, rank, rank - 1, target.isa);
    panels_ = (b_.columns + steps_.columns - 1) / steps_.columns;
    split();
    if (right_.constant.defined())
      pack_constant();
    else
      // Columns behind the last whole panel are packed at any rate.
      first_packed_ = a_.rows <= kUnpackedRows && b_.step == 1 ? b_.columns / steps_.columns : 0;
  }

  int64_t packed_bytes() const override { return packed_ ? packed_->bytes() : 0; }
  int64_t scratch_bytes() const override { return packed_ ? 0 : b_.count() * b_floats() * 4; }
  bool reads(size_t input) const override {
    const auto is = [&](int i) { return static_cast<size_t>(i) == input; };
    return is(left_.input) || (!packed_ && is(right_.input)) ||
           std::any_of(chain_inputs_.begin(), chain_inputs_.end(), is);
  }

  void run(const RunArgs& args) const override {
    const float *a = at(left_, args), *b = nullptr, *panels;
    if (packed_) {
      panels = static_cast<const float*>(packed_->data());
    } else {
      b = at(right_, args);
      auto* to = static_cast<float*>(args.scratch);
      panels = to;
      const int64_t count = panels_ - first_packed_, all = b_.count() * count;
      parallel_for(0, all, grain_for(all, a_.columns * steps_.columns / 4), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          pack(b, i / count, first_packed_ + i % count, to + i / count * b_floats());
      });
    }
    const int64_t tasks = static_cast<int64_t>(a_of_.size()) * row_tasks_ * column_tasks_;
    parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) task(args, i, a, b, panels);
    });
  }

 private:
  static const float* at(const GroupOperand& operand, const RunArgs& args) {
    return static_cast<const float*>(operand.input >= 0 ? args.in[static_cast<size_t>(operand.input)]
                                                        : operand.constant.data());
  }
  int64_t panel_floats() const { return a_.columns * steps_.columns; }
  int64_t b_floats() const { return (panels_ - first_packed_) * panel_floats(); }

  void split() {
    row_tasks_ = std::max<int64_t>(1, (a_.rows + kTaskRows - 1) / kTaskRows);
    const int64_t rows = (a_.rows + row_tasks_ - 1) / row_tasks_;
    task_rows_ = (rows + steps_.rows - 1) / steps_.rows * steps_.rows;
    // Few rows take the time in which B is read.
    const int64_t column = std::max<int64_t>(1, std::max<int64_t>(task_rows_, 8) * a_.columns / 16);
    const int64_t unit = 4 * steps_.columns;
    const auto parts = [](int64_t n, int64_t of) { return (n + of - 1) / of; };
    column_tasks_ = parts(b_.columns, std::clamp(kWork / column, unit, kTaskColumns) / unit * unit);
    const int64_t even = task_rows_ > steps_.rows ? steps_.columns : unit;
    task_columns_ = parts(parts(b_.columns, column_tasks_), even) * even;
    blocks_ = std::max<int64_t>(1, (a_.columns + kBlock - 1) / kBlock);
    block_ = (a_.columns + blocks_ - 1) / blocks_;
  }

  // [panel][k][columns]
  void pack(const float* b, int64_t matrix, int64_t panel, float* to) const {
    const int64_t first = panel * steps_.columns;
    steps_.pack(b + matrix * b_.rows * b_.columns + first * b_.step, b_.row, b_.step, b_.rows,
                std::min(steps_.columns, b_.columns - first), to + (panel - first_packed_) * panel_floats());
  }
  void pack_constant() {
    const auto* b = static_cast<const float*>(right_.constant.data());
    const int64_t all = b_.count() * panels_;
    packed_ = runtime::PackedWeights::instance().get(
        right_.constant,
        cat("product ", steps_.columns, " ", b_.rows, "x", b_.columns, b_.step == 1 ? "" : " transposed"),
        b_.count() * b_floats() * 4, [&](void* to) {
          parallel_for(0, all, 16, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
              pack(b, i / panels_, i % panels_, static_cast<float*>(to) + i / panels_ * b_floats());
          });
        });
  }

  void task(const RunArgs& args, int64_t i, const float* a, const float* b, const float* panels) const {
    const int64_t batch = i / (row_tasks_ * column_tasks_), row = i % row_tasks_ * task_rows_,
                  column = i / row_tasks_ % column_tasks_ * task_columns_;
    const int64_t m = std::min(task_rows_, a_.rows - row), end = std::min(column + task_columns_, b_.columns);
    if (m <= 0 || column >= end) return;
    const auto which = static_cast<size_t>(batch);
    const float* bias = bias_.present() ? at(bias_, args) : nullptr;
    Strip s;
    s.m = m;
    s.a_row = a_.row;
    s.a_step = a_.step;
    s.y_row = b_.columns;
    a += a_of_[which] * a_.rows * a_.columns + row * a_.row;
    auto* y = static_cast<float*>(args.out[0]) + (batch * a_.rows + row) * b_.columns;
    // The columns of B that lie packed, and those before them.
    const int64_t border = std::clamp(first_packed_ * steps_.columns, column, end);
    const auto go = [&](int64_t from, int64_t to, const float* first, int64_t b_row, int64_t b_panel) {
      s.b_row = b_row;
      s.b_panel = b_panel;
      // Few rows: panel by panel, so that B is read from front to back.
      const int64_t width = m <= steps_.rows ? 4 * steps_.columns : to - from;
      for (int64_t j = from; j < to; j += width)
        for (int64_t k = 0; k < blocks_; ++k) {
          const bool last = k + 1 == blocks_;
          s.n = std::min(width, to - j);
          s.k = std::min(block_, a_.columns - k * block_);
          s.a = a + k * block_ * a_.step;
          s.b = first + (j - from) / steps_.columns * b_panel + k * block_ * b_row;
          s.y = y + j;
          s.add = k > 0;
          s.bias = last && bias ? bias + j : nullptr;
          s.low = last ? low_ : kNone;
          steps_.multiply(s);
        }
    };
    const auto matrix = b_of_[which];
    if (column < border)
      go(column, border, b + matrix * b_.rows * b_.columns + column, b_.row, steps_.columns);
    if (border < end)
      go(border, end,
         panels + matrix * b_floats() + (border / steps_.columns - first_packed_) * panel_floats(),
         steps_.columns, panel_floats());
    if (chain_.empty()) return;
    for (int64_t r = 0; r < m; ++r)
      chain_.run(args, y + r * b_.columns + column, 1, end - column,
                 {batch * a_.rows + row + r, column, column, end - column, b_.columns});
  }

  const ProductSteps steps_;
  Matrices a_, b_;
  const GroupOperand left_, right_;
  std::vector<int64_t> a_of_, b_of_;  // of each product
  int64_t panels_ = 0, first_packed_ = 0;
  int64_t row_tasks_ = 1, task_rows_ = 0, column_tasks_ = 1, task_columns_ = 0, blocks_ = 1, block_ = 0;
  GroupOperand bias_;
  float low_ = kNone;
  RowChain chain_;
  std::vector<int> chain_inputs_;
  std::shared_ptr<const Tensor> packed_;
};

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const Group group = parse_group(instance.graph, instance.id, &instance);
  PELTON_CHECK(group.reason.empty(), group.reason);
  if (instance.outputs[0].count() == 0) return make_kernel([](const RunArgs&) {});
  return std::make_unique<Product>(group, instance, target);
}

}  // namespace

void add_product(Registry& registry) {
  registry.add({"cpu.product", {"matmul", "fused"}, refuse, prepare});
  runtime::PackedWeights::instance().declare("cpu.product");
}

}  // namespace pelton::backend::cpu
