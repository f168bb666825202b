// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/control.h"

#include "ir/builder.h"
#include "ir/custom.h"
#include "ir/ops/common.h"
#include "ir/ops/lanes.h"

namespace pelton::ir {
namespace {

using HostValues = std::vector<HostValue>;

// The slice of x at `index` along `axis`, without that axis.
Tensor take_slice(const Tensor& x, int64_t axis, int64_t index) {
  Dims dims = x.dims(), strides = row_major_strides(x.dims());
  dims.erase(dims.begin() + axis);
  return gather_elements_by(x, dims, [&](const Dims& at) {
    int64_t offset = index * strides[static_cast<size_t>(axis)];
    for (size_t d = 0; d < at.size(); ++d)
      offset += at[d] * strides[d < static_cast<size_t>(axis) ? d : d + 1];
    return offset;
  });
}

// Parts of equal dims joined on a new axis. Without parts: an empty tensor of the type of result `i`, unknown
// sizes 0.
Tensor stack(const EvalContext& c, size_t i, const std::vector<Tensor>& parts, int64_t axis, bool backwards) {
  if (parts.empty()) {
    Dims dims;
    for (const Dim& d : c.graph.type(c.node.outputs[i]).shape) {
      std::set<std::string> names;
      d.collect_symbols(names);
      bool known = true;
      for (const std::string& n : names) known &= c.symbols.count(n) != 0;
      dims.push_back(known ? d.eval(c.symbols) : 0);
    }
    dims[static_cast<size_t>(axis)] = 0;
    return c.out_dtype(i) == DType::string ? Tensor(DType::string, dims)
                                           : Tensor::zeros(c.out_dtype(i), dims);
  }
  for (const Tensor& p : parts)
    if (p.dims() != parts[0].dims())
      c.refuse(ErrorCode::bad_shape, cat("stacks results of shapes ", parts[0].dims(), " and ", p.dims()));
  Dims dims = parts[0].dims();
  Lanes lanes(dims, axis, axis);  // outer and inner of the new axis
  auto count = static_cast<int64_t>(parts.size());
  dims.insert(dims.begin() + axis, count);
  DType t = parts[0].dtype();
  Tensor out = t == DType::string ? Tensor(t, dims) : Tensor::zeros(t, dims);
  for (int64_t p = 0; p < count; ++p) {
    const Tensor& part = parts[static_cast<size_t>(backwards ? count - 1 - p : p)];
    for (int64_t o = 0; o < lanes.outer; ++o)
      for (int64_t k = 0; k < lanes.inner; ++k)
        copy_element(out, (o * count + p) * lanes.inner + k, part, o * lanes.inner + k);
  }
  return out;
}

bool truth(const HostValue& v) {
  return v.tensor.get_int(0) != 0;
}
int64_t item(const Ints& values, size_t i) {
  return values.empty() ? 0 : values[i];
}

}  // namespace

void eval_if(EvalContext& c) {
  HostValues captured(c.inputs.begin() + 1, c.inputs.end());
  c.outputs = c.run(c.node.get_graph(truth(c.inputs[0]) ? "then" : "else"), std::move(captured));
}

void eval_loop(EvalContext& c) {
  const Graph& body = c.node.get_graph("body");
  auto carried = static_cast<std::ptrdiff_t>(c.node.get_int("carried"));
  int64_t trips = c.has(0) ? c.in(0).get_int(0) : INT64_MAX;
  bool go_on = !c.has(1) || truth(c.inputs[1]);
  HostValues state, captured;
  if (c.inputs.size() > 2) {
    state.assign(c.inputs.begin() + 2, c.inputs.begin() + 2 + carried);
    captured.assign(c.inputs.begin() + 2 + carried, c.inputs.end());
  }
  std::vector<std::vector<Tensor>> stacks(c.outputs.size() - state.size());
  for (int64_t i = 0; i < trips && go_on; ++i) {
    HostValues arguments{Tensor::scalar<int64_t>(i), Tensor::scalar<bool>(true)};
    arguments.insert(arguments.end(), state.begin(), state.end());
    arguments.insert(arguments.end(), captured.begin(), captured.end());
    HostValues results = c.run(body, std::move(arguments));
    go_on = truth(results[0]);
    for (size_t k = 0; k < state.size(); ++k) state[k] = results[1 + k];
    for (size_t k = 0; k < stacks.size(); ++k) stacks[k].push_back(results[1 + state.size() + k].tensor);
  }
  for (size_t k = 0; k < state.size(); ++k) c.outputs[k] = state[k];
  for (size_t k = 0; k < stacks.size(); ++k) {
    size_t i = state.size() + k;
    c.outputs[i] = stack(c, i, stacks[k], 0, false);
  }
}

void eval_scan(EvalContext& c) {
  const Graph& body = c.node.get_graph("body");
  auto carried = static_cast<size_t>(c.node.get_int("carried"));
  auto scanned = static_cast<size_t>(c.node.get_int("scanned"));
  const Ints &axes = c.node.get_ints("axes"), &reverse = c.node.get_ints("reverse");
  const Ints &out_axes = c.node.get_ints("out_axes"), &out_reverse = c.node.get_ints("out_reverse");
  auto axis_of = [&](size_t i) {
    int64_t axis = item(axes, i);
    return axis < 0 ? axis + c.in(carried + i).rank() : axis;
  };
  HostValues state(c.inputs.begin(), c.inputs.begin() + static_cast<std::ptrdiff_t>(carried));
  int64_t count = c.in(carried).dims()[static_cast<size_t>(axis_of(0))];
  std::vector<std::vector<Tensor>> stacks(c.outputs.size() - carried);
  for (int64_t t = 0; t < count; ++t) {
    HostValues arguments = state;
    for (size_t i = 0; i < scanned; ++i)
      arguments.emplace_back(take_slice(c.in(carried + i), axis_of(i), item(reverse, i) ? count - 1 - t : t));
    arguments.insert(arguments.end(), c.inputs.begin() + static_cast<std::ptrdiff_t>(carried + scanned),
                     c.inputs.end());
    HostValues results = c.run(body, std::move(arguments));
    for (size_t k = 0; k < carried; ++k) state[k] = results[k];
    for (size_t k = 0; k < stacks.size(); ++k) stacks[k].push_back(results[carried + k].tensor);
  }
  for (size_t k = 0; k < carried; ++k) c.outputs[k] = state[k];
  for (size_t k = 0; k < stacks.size(); ++k) {
    size_t i = carried + k;
    int64_t axis = item(out_axes, k);
    if (axis < 0) axis += c.graph.type(c.node.outputs[i]).rank();
    c.outputs[i] = stack(c, i, stacks[k], axis, item(out_reverse, k) != 0);
  }
}

void eval_fused(EvalContext& c) {
  c.outputs = c.run(c.node.get_graph("body"), c.inputs);
}
void eval_token(EvalContext& c) {
  c.outputs[0] = HostValue::token();
}

void eval_custom(EvalContext& c) {
  const CustomOp* op = find_custom_op(c.node);
  if (op && op->eval) return op->eval(c);
  if (!op || !op->decompose)
    c.refuse(ErrorCode::unsupported_op,
             cat(c.node.get_text("domain"), "::", c.node.get_text("name"), " has no reference function"));
  Graph body("custom");
  std::vector<ValueId> operands;
  std::vector<HostValue> values;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    operands.push_back(c.has(i) ? body.add_input(Type::tensor(c.in(i).dtype(), to_shape(c.in(i).dims())))
                                : ValueId{});
    if (c.has(i)) values.push_back(c.inputs[i]);
  }
  const NodeId id = body.add_node(*c.node.op, operands, c.node.attrs, c.node.outputs.size(), c.node.name);
  infer(body, id);
  for (ValueId v : std::vector<ValueId>(body[id].outputs)) body.add_output(v);
  expand(body, id);
  c.outputs = c.run(body, std::move(values));
}

}  // namespace pelton::ir
