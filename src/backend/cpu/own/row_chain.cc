// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/row_chain.h"

#include <algorithm>

#include "base/cat.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kChunk = 1024;  // elements that go through all steps before the next ones do

// The loop of a step of the chain; Code::none where there is none.
Code chain_code(std::string_view op) {
  constexpr struct {
    std::string_view op;
    Code code;
  } kCodes[] = {{"gelu", Code::gelu_erf},
                {"gelu_tanh", Code::gelu_tanh},
                {"hard_sigmoid", Code::hard_sigmoid},
                {"leaky_relu", Code::leaky_relu}};
  for (const auto& row : kCodes)
    if (row.op == op) return row.code;
  return f32_code(op);
}

bool one_value(const GroupOperand& o) {
  return o.constant.defined() && o.constant.count() == 1;
}
}  // namespace

bool lies_along(const Shape& shape, size_t rank, size_t axis) {
  if (shape.size() > rank) return false;
  const size_t skip = rank - shape.size();
  for (size_t d = 0; d < shape.size(); ++d)
    if (d + skip != axis && !(shape[d] == Dim(1))) return false;
  return true;
}

std::string RowChain::refuse(const Group& group, size_t first, const ir::Graph& graph, ir::NodeId node,
                             size_t axis) {
  const ir::Type& y = graph.type(graph[node].outputs[0]);
  for (size_t i = first; i < group.steps.size(); ++i) {
    const GroupStep& s = group.steps[i];
    if (s.kind == GroupStep::linear) continue;
    if (chain_code(s.op) == Code::none) return cat("has no loop for ", s.op);
    if (s.kind != GroupStep::binary || one_value(s.operand)) continue;
    if (s.operand.constant.defined()) {
      if (!lies_along(s.operand.shape, y.rank(), axis)) return cat("has a constant operand of ", s.op);
      continue;
    }
    if (s.operand.input < 0) return cat("has a computed operand of ", s.op);
    const ir::Type& other = graph.type(graph[node].inputs[static_cast<size_t>(s.operand.input)]);
    if (other.dtype == DType::f32 && lies_along(s.operand.shape, y.rank(), axis)) continue;
    if (s.operand.reshaped) return cat("has a reshaped operand of ", s.op);
    if (!(other.shape == y.shape) || !(other.layout == y.layout) || other.dtype != DType::f32)
      return cat("has an operand of ", s.op, " that is not like the result");
  }
  return {};
}

void RowChain::take(const Group& group, size_t first, const std::vector<int64_t>& column_of, size_t rank,
                    size_t axis, device::CpuIsa isa) {
  columns_ = static_cast<int64_t>(column_of.size());
  repeat_ = std::max<int64_t>(1, kChunk / std::max<int64_t>(1, columns_));
  for (size_t i = first; i < group.steps.size(); ++i) {
    const GroupStep& s = group.steps[i];
    Link link;
    std::copy(std::begin(s.imm), std::end(s.imm), link.imm);
    if (s.kind == GroupStep::linear || s.op == "clamp") link.values = 2;
    if (s.kind == GroupStep::binary) {
      const Tensor& t = s.operand.constant;
      if (one_value(s.operand)) {
        link.values = 1;
        link.imm[0] = static_cast<float>(t.get_double(0));
      } else if (t.defined()) {
        for (int64_t r = 0; r < repeat_; ++r)
          for (int64_t c : column_of)
            link.by_column.push_back(c < 0 ? 1.0f : static_cast<float>(t.get_double(c)));
      } else {
        link.input = s.operand.input;
        link.one = element_count(s.operand.shape) == Dim(1);
        link.a_channel = !link.one && lies_along(s.operand.shape, rank, axis);
      }
    }
    link.function = f32_step(s.kind == GroupStep::linear ? Code::multiply_add : chain_code(s.op), isa);
    steps_.push_back(std::move(link));
  }
}

void RowChain::run(const RunArgs& args, float* values, int64_t rows, int64_t ld, const Place& place) const {
  const int64_t chunk = ld == columns_ ? repeat_ : std::max<int64_t>(1, kChunk / std::max<int64_t>(1, ld));
  for (int64_t row = 0; row < rows; row += chunk) {
    const int64_t height = std::min(chunk, rows - row);
    float* at = values + row * ld;
    for (const Link& link : steps_) {
      Step s;
      for (int i = 0; i < link.values; ++i) {
        s.in[1 + i] = &link.imm[i];
        s.one[1 + i] = true;
      }
      std::copy(std::begin(link.imm), std::end(link.imm), s.imm);
      const auto* other =
          link.input < 0 ? nullptr : static_cast<const float*>(args.in[static_cast<size_t>(link.input)]);
      if (link.one) {
        s.in[1] = other;
        s.one[1] = true;
      }
      if (link.one || (link.input < 0 && (link.by_column.empty() || ld == columns_))) {
        s.in[0] = s.out = at;
        if (!link.by_column.empty()) s.in[1] = link.by_column.data();
        link.function(s, height * ld);
        continue;
      }
      if (other && !link.a_channel && place.count == ld &&
          place.channels == ld) {  // the rows follow one another there, too
        s.in[0] = s.out = at;
        s.in[1] = other + (place.row + row) * ld + place.channel;
        link.function(s, height * ld);
        continue;
      }
      for (int64_t r = 0; r < height; ++r) {
        s.in[0] = s.out = at + r * ld;
        s.in[1] = other
                      ? other + (link.a_channel ? 0 : (place.row + row + r) * place.channels) + place.channel
                      : link.by_column.data() + place.column;
        link.function(s, other ? place.count : ld);
      }
    }
  }
}

}  // namespace pelton::backend::cpu
