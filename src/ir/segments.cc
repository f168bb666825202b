// SPDX-License-Identifier: Apache-2.0
#include "ir/segments.h"

#include <algorithm>
#include <map>

#include "ir/op.h"
#include "ir/text.h"

namespace pelton::ir {

namespace {

bool single(const Type& t) {
  const std::optional<Dims> dims = t.is_tensor() ? as_dims(t.shape) : std::nullopt;
  return dims && element_count(*dims) == 1;
}

bool sums_all(const Graph& body, const Node& n) {
  const Ints& axes = n.get_ints("axes");
  return n.is("reduce_sum") && body.type(n.outputs[0]).rank() == 0 &&
         static_cast<int64_t>(axes.size()) == body.type(n.inputs[0]).rank();
}

// The shape of the tensors: of what is summed, or of the results.
Shape shape_of(const Graph& body, const Segment& s, bool sums) {
  if (sums) return body.type(body[s.nodes.back()].inputs[0]).shape;
  return body.type(s.results[0]).shape;
}

}  // namespace

Segment segment_at(const Graph& body, size_t first, size_t count, std::string_view kind) {
  const bool sums = kind == kSegmentSums;
  Segment s;
  s.nodes.assign(body.order().begin() + static_cast<std::ptrdiff_t>(first),
                 body.order().begin() + static_cast<std::ptrdiff_t>(first + count));
  std::map<ValueId, std::string> names;
  for (NodeId id : s.nodes)
    for (ValueId v : body[id].outputs) names[v] = cat("v", names.size());
  for (ValueId v : body.outputs)
    if (names.count(v)) s.results.push_back(v);
  if (s.nodes.empty() || s.results.empty()) return s;
  const Node& last = body[s.nodes.back()];
  if (sums && (!last.is("reduce_sum") || s.results != std::vector<ValueId>{last.outputs[0]})) return s;
  s.shape = shape_of(body, s, sums);
  if (!as_dims(s.shape)) return s;

  std::string program;
  auto describe = [&](ValueId v) {
    const Type& t = body.type(v);
    if (!t.is_tensor() || !t.layout.is_plain()) return false;
    if (!s.is_full(t) && !single(t)) return false;
    append(program, cat(" ", names.at(v), ":", name(t.dtype), s.is_full(t) ? "[]" : ""));
    return true;
  };
  for (NodeId id : s.nodes) {
    const Node& n = body[id];
    if (n.is("constant")) {
      const Tensor& t = n.get_tensor("value");
      if (t.count() != 1 || t.dtype() == DType::string) return s;
      append(program, cat(print(Attr(t.reshaped({}))), ";"));
      names[n.outputs[0]] = cat("c", id.index - s.nodes[0].index);
      continue;
    }
    const bool sum = sums && id == s.nodes.back();
    if (n.outputs.size() != 1 || !(sum ? sums_all(body, n) : n.op->scalar || n.is("cast"))) return s;
    append(program, n.op->name);
    for (const auto& [key, attr] : n.attrs)
      if (!sum) append(program, cat(" ", key, "=", print(attr)));
    for (ValueId v : n.inputs) {
      if (!v) return s;
      if (!names.count(v)) {
        if (body[v].producer) return s;
        names[v] = cat("in", s.operands.size());
        s.operands.push_back(v);
      }
      if (!describe(v)) return s;
    }
    append(program, " ->");
    if (!describe(n.outputs[0])) return s;
    append(program, ";");
  }
  for (ValueId v : s.results) {
    if (!sums && body.type(v).shape != s.shape) return s;
    append(program, cat(" ", names.at(v)));
  }
  s.program = std::move(program);
  return s;
}

std::vector<Segment> segments_of(const Node& node) {
  if (!node.is("fused")) return {};
  const std::string& kind = node.get_text("kind");
  const auto count = static_cast<size_t>(node.get_int("segments"));
  const Graph& body = node.get_graph("body");
  if ((kind != kSegments && kind != kSegmentSums) || count == 0 || body.order().size() % count) return {};
  const size_t each = body.order().size() / count;
  std::vector<Segment> out;
  size_t results = 0;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(segment_at(body, i * each, each, kind));
    if (out.back().program.empty() || out.back().program != out.front().program) return {};
    results += out.back().results.size();
  }
  if (results != body.outputs.size()) return {};
  return out;
}

}  // namespace pelton::ir
