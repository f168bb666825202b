// SPDX-License-Identifier: Apache-2.0
// einsum: row, inference and decomposition into transpose, reduce, mul and matmul.
#include "ir/ops/einsum.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/ops/common.h"

namespace pelton::ir {

namespace {

Equation resolve(const InferContext& c) {
  std::vector<size_t> ranks;
  for (size_t i = 0; i < c.input_count(); ++i) ranks.push_back(c.shape(i).size());
  try {
    return parse_equation(c.node.get_text("equation"), ranks);
  } catch (const Error& e) {
    c.refuse(e.code(), "C2", cat(": ", e.message()));
  }
}

void infer_einsum(InferContext& c) {
  DType t = c.dtype(0);
  for (size_t i = 0; i < c.input_count(); ++i)
    c.require(supports_number(c.dtype(i)) && c.dtype(i) == t, ErrorCode::bad_type, "C1",
              cat("needs operands of one number type, not ", name(t), " and ", name(c.dtype(i))));
  Equation e = resolve(c);
  std::vector<std::optional<Dim>> sizes(e.labels());
  for (size_t i = 0; i < c.input_count(); ++i)
    for (size_t d = 0; d < e.operands[i].size(); ++d) {
      size_t label = e.operands[i][d];
      const Dim& size = c.shape(i)[d];
      auto& known = sizes[label];
      if (!known)
        known = size;
      else if (e.spread[label])
        known = c.broadcast({*known}, {size}, "C3")[0];
      else
        known = c.same(*known, size, "C3");
    }
  Shape out;
  for (size_t label : e.output) out.push_back(*sizes[label]);
  c.output(0, t, out);
}

// An operand on its way through the decomposition: a value and the label of each of its axes.
struct Term {
  ValueId value;
  std::vector<size_t> labels;
};

bool has(const std::vector<size_t>& labels, size_t label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// Keeps the diagonal of axes that share a label: everything else becomes 0 and one of them is summed away.
void take_diagonals(Builder& b, Term& t) {
  for (size_t i = 0; i < t.labels.size(); ++i)
    for (size_t j = t.labels.size(); j-- > i + 1;) {
      if (t.labels[i] != t.labels[j]) continue;
      auto counting = [&](size_t axis) {
        Shape dims(t.labels.size(), Dim(1));
        dims[axis] = b.shape(t.value)[axis];
        return b.op("iota", {},
                    {{"dims", dims}, {"axis", static_cast<int64_t>(axis)}, {"dtype", DType::i64}});
      };
      ValueId diagonal = b.op("eq", {counting(i), counting(j)});
      t.value = b.select(diagonal, t.value, b.like(t.value, 0));
      t.value = b.reduce("reduce_sum", t.value, {static_cast<int64_t>(j)}, false);
      t.labels.erase(t.labels.begin() + static_cast<std::ptrdiff_t>(j));
    }
}

void sum_away(Builder& b, Term& t, const std::vector<size_t>& needed) {
  Ints axes;
  std::vector<size_t> kept;
  for (size_t d = 0; d < t.labels.size(); ++d) {
    if (has(needed, t.labels[d]))
      kept.push_back(t.labels[d]);
    else
      axes.push_back(static_cast<int64_t>(d));
  }
  if (axes.empty()) return;
  t.value = b.reduce("reduce_sum", t.value, axes, false);
  t.labels = kept;
}

// The value with axes [labels of `order` that it has..., in that order].
ValueId arranged(Builder& b, const Term& t, const std::vector<size_t>& order) {
  Ints perm;
  for (size_t label : order) {
    auto at = std::find(t.labels.begin(), t.labels.end(), label);
    if (at != t.labels.end()) perm.push_back(at - t.labels.begin());
  }
  return b.transpose(t.value, perm);
}

// The value as [size of each batch label (1 where it lacks it)..., product of rows, product of columns].
ValueId as_matrices(Builder& b, const Term& t, const std::vector<size_t>& batch,
                    const std::vector<size_t>& rows, const std::vector<size_t>& columns) {
  std::vector<size_t> order = batch;
  order.insert(order.end(), rows.begin(), rows.end());
  order.insert(order.end(), columns.begin(), columns.end());
  ValueId v = arranged(b, t, order);
  Shape from = b.shape(v), to;
  size_t at = 0;
  for (size_t label : batch) to.push_back(has(t.labels, label) ? from[at++] : Dim(1));
  for (const auto* group : {&rows, &columns}) {
    Dim size = 1;
    for (size_t i = 0; i < group->size(); ++i) size = size * from[at++];
    to.push_back(size);
  }
  return b.reshape(v, to);
}

Term contract(Builder& b, const Term& x, const Term& y, const std::vector<size_t>& needed) {
  std::vector<size_t> batch, rows, columns, summed;
  for (size_t label : x.labels)
    (!has(y.labels, label) ? rows : has(needed, label) ? batch : summed).push_back(label);
  for (size_t label : y.labels)
    if (!has(x.labels, label)) columns.push_back(label);
  ValueId left = as_matrices(b, x, batch, rows, summed), right = as_matrices(b, y, batch, summed, columns);
  ValueId product = summed.empty() ? b.mul(left, right) : b.matmul(left, right);
  Shape out = b.shape(product);
  out.resize(batch.size());
  auto size_of = [&](const Term& t, size_t label) {
    return b.shape(
        t.value)[static_cast<size_t>(std::find(t.labels.begin(), t.labels.end(), label) - t.labels.begin())];
  };
  for (size_t label : rows) out.push_back(size_of(x, label));
  for (size_t label : columns) out.push_back(size_of(y, label));
  Term result{b.reshape(product, out), batch};
  result.labels.insert(result.labels.end(), rows.begin(), rows.end());
  result.labels.insert(result.labels.end(), columns.begin(), columns.end());
  return result;
}

std::vector<ValueId> decompose_einsum(Builder& b, const Node& node) {
  std::vector<size_t> ranks;
  for (ValueId v : node.inputs) ranks.push_back(b.shape(v).size());
  Equation e = parse_equation(node.get_text("equation"), ranks);
  DType t = b.dtype(node.inputs[0]);
  bool narrow = t == DType::i8 || t == DType::u8;  // whose products matmul yields in i32
  std::vector<Term> terms;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    terms.push_back({narrow ? b.cast(node.inputs[i], DType::i32) : node.inputs[i], e.operands[i]});
    take_diagonals(b, terms.back());
  }
  auto needed_after = [&](size_t last) {
    std::vector<size_t> needed = e.output;
    for (size_t i = last + 1; i < terms.size(); ++i)
      needed.insert(needed.end(), terms[i].labels.begin(), terms[i].labels.end());
    return needed;
  };
  Term acc = terms[0];
  sum_away(b, acc, needed_after(0));
  for (size_t i = 1; i < terms.size(); ++i) {
    std::vector<size_t> needed = needed_after(i), alone = needed;
    alone.insert(alone.end(), acc.labels.begin(), acc.labels.end());
    sum_away(b, terms[i], alone);
    acc = contract(b, acc, terms[i], needed);
    sum_away(b, acc, needed);
  }
  ValueId y = arranged(b, acc, e.output);
  return {narrow ? b.cast(y, t) : y};
}

double einsum_flops(const Graph&, const Node& node, const std::vector<Dims>& in, const std::vector<Dims>&) {
  std::vector<size_t> ranks;
  for (const Dims& d : in) ranks.push_back(d.size());
  Equation e = parse_equation(node.get_text("equation"), ranks);
  std::vector<double> sizes(e.labels(), 1);
  for (size_t i = 0; i < in.size(); ++i)
    for (size_t d = 0; d < in[i].size(); ++d)
      sizes[e.operands[i][d]] = std::max(sizes[e.operands[i][d]], static_cast<double>(in[i][d]));
  double total = static_cast<double>(in.size());
  for (double s : sizes) total *= s;
  return total;
}

}  // namespace

void add_einsum(OpRows& rows) {
  OpDef row;
  row.name = "einsum";
  row.family = Family::contraction;
  row.max_inputs = -1;
  row.attrs = {{"equation", AttrKind::text, {}}};
  row.constraints = {"C1: operands have one number type",
                     "C2: the equation is well formed and fits the ranks", "C3: sizes of one label agree"};
  row.infer = infer_einsum;
  row.eval = eval_einsum;
  row.flops = einsum_flops;
  row.decompose = decompose_einsum;
  row.precision = Precision::accumulates;
  row.sharding = "equation";
  row.batching = "equation";
  rows.push_back(std::move(row));
}

}  // namespace pelton::ir
