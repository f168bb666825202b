// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/sequence.h"

#include "ir/ops/common.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

void yield(EvalContext& c, std::vector<HostValue> items) {
  c.outputs[0] = HostValue::sequence(std::move(items));
}
size_t position_of(const EvalContext& c, size_t input, size_t count, size_t otherwise, size_t limit) {
  if (!c.has(input)) return otherwise;
  int64_t i = c.in(input).get_int(0), at = i < 0 ? i + static_cast<int64_t>(count) : i;
  if (at < 0 || at >= static_cast<int64_t>(limit))
    c.refuse(kShape, cat("has index ", i, " in a sequence of ", count));
  return static_cast<size_t>(at);
}

// Copies `part` into `out` from index `start` of `axis` on.
void paste(Tensor& out, const Tensor& part, size_t axis, int64_t start) {
  Dims strides = row_major_strides(out.dims());
  int64_t i = 0;
  for_each_index(part.dims(), [&](const Dims& index) {
    int64_t at = start * strides[axis];
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
    copy_element(out, at, part, i++);
  });
}

}  // namespace

void eval_seq_make(EvalContext& c) {
  yield(c, c.inputs);
}
void eval_seq_empty(EvalContext& c) {
  yield(c, {});
}
void eval_seq_insert(EvalContext& c) {
  std::vector<HostValue> items = c.inputs[0].items;
  size_t at = position_of(c, 2, items.size(), items.size(), items.size() + 1);
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), c.inputs[1]);
  yield(c, std::move(items));
}
void eval_seq_erase(EvalContext& c) {
  std::vector<HostValue> items = c.inputs[0].items;
  if (items.empty()) c.refuse(kShape, "takes from an empty sequence");
  size_t at = position_of(c, 1, items.size(), items.size() - 1, items.size());
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  yield(c, std::move(items));
}
void eval_seq_at(EvalContext& c) {
  const std::vector<HostValue>& items = c.inputs[0].items;
  c.outputs[0] = items[position_of(c, 1, items.size(), 0, items.size())];
}
void eval_seq_length(EvalContext& c) {
  c.out(0, Tensor::scalar<int64_t>(static_cast<int64_t>(c.inputs[0].items.size())));
}

void eval_seq_concat(EvalContext& c) {
  std::vector<Tensor> parts;
  bool new_axis = c.node.get_bool("new_axis");
  if (c.inputs[0].items.empty()) c.refuse(kShape, "joins the items of an empty sequence");
  int64_t rank = c.inputs[0].items[0].tensor.rank() + new_axis, axis = c.node.get_int("axis");
  auto at = static_cast<size_t>(axis < 0 ? axis + rank : axis);
  Dims dims;
  for (const HostValue& item : c.inputs[0].items) {
    Dims d = item.tensor.dims();
    if (new_axis) d.insert(d.begin() + static_cast<std::ptrdiff_t>(at), 1);
    if (dims.empty()) {
      dims = d;
      dims[at] = 0;
    }
    Dims expected = d;
    expected[at] = dims[at];
    if (expected != dims) c.refuse(kShape, cat("joins items of shapes ", dims, " and ", d));
    dims[at] += d[at];
    parts.push_back(item.tensor.reshaped(d));
  }
  DType t = parts[0].dtype();
  Tensor out = t == DType::string ? Tensor(t, dims) : Tensor::zeros(t, dims);
  int64_t start = 0;
  for (const Tensor& p : parts) {
    paste(out, p, at, start);
    start += p.dims()[at];
  }
  c.out(0, std::move(out));
}

void eval_seq_split(EvalContext& c) {
  const Tensor& x = c.in(0);
  int64_t axis = c.node.get_int("axis");
  auto at = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
  int64_t size = x.dims()[at];
  std::vector<int64_t> sizes;
  if (!c.has(1) || c.in(1).rank() == 0) {
    int64_t run = c.has(1) ? c.in(1).get_int(0) : 1;
    if (run <= 0) c.refuse(kShape, cat("splits into runs of ", run));
    for (int64_t start = 0; start < size; start += run) sizes.push_back(std::min(run, size - start));
  } else {
    sizes = to_ints(c.in(1));
  }
  int64_t start = 0;
  std::vector<HostValue> items;
  Dims strides = row_major_strides(x.dims());
  for (int64_t s : sizes) {
    if (s < 0 || start + s > size) c.refuse(kShape, cat("splits size ", size, " into ", cat(sizes)));
    Dims dims = x.dims();
    dims[at] = s;
    Tensor part = gather_elements_by(x, dims, [&](const Dims& index) {
      int64_t offset = start * strides[at];
      for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
      return offset;
    });
    if (!c.has(1) && !c.node.get_bool("keep_dims")) {
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(at));
      part = part.reshaped(dims);
    }
    items.emplace_back(std::move(part));
    start += s;
  }
  if (start != size) c.refuse(kShape, cat("splits size ", size, " into ", cat(sizes)));
  yield(c, std::move(items));
}

void eval_opt_make(EvalContext& c) {
  c.outputs[0] =
      HostValue::optional(c.has(0) ? std::vector<HostValue>{c.inputs[0]} : std::vector<HostValue>{});
}
void eval_opt_has(EvalContext& c) {
  c.out(0, Tensor::scalar<bool>(!c.inputs[0].items.empty()));
}
void eval_opt_get(EvalContext& c) {
  if (c.inputs[0].items.empty()) c.refuse(ErrorCode::usage, "takes the value of an optional that has none");
  c.outputs[0] = c.inputs[0].items[0];
}

}  // namespace pelton::ir
