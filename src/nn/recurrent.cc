// SPDX-License-Identifier: Apache-2.0
// Recurrent layers, unrolled over the positions: one product for the inputs of all of them, then one step of
// H-wide work each. weight_ih_l0[G*H, I], weight_hh_l0[G*H, H], bias_ih_l0, bias_hh_l0[G*H]; gates in
// PyTorch's order (LSTM: in, forget, cell, out; GRU: reset, update, new).
#include <cmath>

#include "nn/layers.h"

namespace pelton::nn {

namespace {

struct Cell {
  int64_t length, hidden;
  Dim batch;
  ValueId from_input;  // [N, L, G*H], bias_ih included
  ValueId weight, bias;
};

Cell prepare(Net& net, ValueId x, int64_t gates, int64_t hidden) {
  Builder& b = net.builder();
  b.set_name(net.path(""));
  const Shape s = b.shape(x);
  if (s.size() != 3 || !s[1].is_const() || !s[2].is_const())
    fail(ErrorCode::bad_shape,
         cat("expected [N, L, I] with L and I known when the layer is made, got ", b.type(x).str()),
         net.path(""));
  Init u =
      Init::uniform(-1 / std::sqrt(static_cast<double>(hidden)), 1 / std::sqrt(static_cast<double>(hidden)));
  int64_t in = s[2].value(), rows = gates * hidden;
  ValueId w_in = net.parameter("weight_ih_l0", {rows, in}, u);
  ValueId w_hidden = net.parameter("weight_hh_l0", {rows, hidden}, u);
  ValueId b_in = net.parameter("bias_ih_l0", {rows}, u), b_hidden = net.parameter("bias_hh_l0", {rows}, u);
  ValueId flat = b.reshape(x, {s[0] * s[1], in});
  ValueId all = b.add(b.op("matmul", {flat, w_in}, {{"transpose_b", true}}), b_in);
  return {s[1].value(), hidden, s[0], b.reshape(all, {s[0], s[1], rows}), w_hidden, b_hidden};
}

ValueId part(Builder& b, ValueId x, int64_t axis, int64_t start, int64_t size) {
  return b.op("slice", {x},
              {{"axes", Ints{axis}}, {"starts", Shape{start}}, {"sizes", Shape{size}}, {"steps", Ints{1}}});
}

ValueId position(Builder& b, const Cell& c, int64_t t) {
  ValueId at = part(b, c.from_input, 1, t, 1);
  return b.reshape(at, {c.batch, b.shape(at)[2]});
}

ValueId stack(Builder& b, const std::vector<ValueId>& steps) {
  std::vector<ValueId> rows;
  for (ValueId h : steps) rows.push_back(b.unsqueeze(h, {1}));
  return rows.size() == 1 ? rows[0] : b.op("concat", rows, {{"axis", int64_t{1}}});
}

}  // namespace

ValueId lstm(Net& net, std::string_view name, ValueId x, int64_t hidden) {
  auto at = net.scope(name);
  Builder& b = net.builder();
  Cell c = prepare(net, x, 4, hidden);
  ValueId h, cell;
  std::vector<ValueId> steps;
  for (int64_t t = 0; t < c.length; ++t) {
    ValueId gates = b.add(position(b, c, t), c.bias);
    if (h) gates = b.add(gates, b.op("matmul", {h, c.weight}, {{"transpose_b", true}}));
    auto gate = [&](int64_t i, const char* squash) {
      return b.op(squash, {part(b, gates, 1, i * hidden, hidden)});
    };
    ValueId fresh = b.mul(gate(0, "sigmoid"), gate(2, "tanh"));
    cell = cell ? b.add(b.mul(gate(1, "sigmoid"), cell), fresh) : fresh;
    h = b.mul(gate(3, "sigmoid"), b.op("tanh", {cell}));
    steps.push_back(h);
  }
  return stack(b, steps);
}

ValueId gru(Net& net, std::string_view name, ValueId x, int64_t hidden) {
  auto at = net.scope(name);
  Builder& b = net.builder();
  Cell c = prepare(net, x, 3, hidden);
  ValueId h;
  std::vector<ValueId> steps;
  for (int64_t t = 0; t < c.length; ++t) {
    ValueId in = position(b, c, t);
    ValueId from_h = h ? b.add(b.op("matmul", {h, c.weight}, {{"transpose_b", true}}), c.bias)
                       : b.broadcast_to(c.bias, {c.batch, 3 * hidden});
    auto both = [&](int64_t i) {
      return b.add(part(b, in, 1, i * hidden, hidden), part(b, from_h, 1, i * hidden, hidden));
    };
    ValueId reset = b.op("sigmoid", {both(0)}), update = b.op("sigmoid", {both(1)});
    ValueId fresh = b.op("tanh", {b.add(part(b, in, 1, 2 * hidden, hidden),
                                        b.mul(reset, part(b, from_h, 1, 2 * hidden, hidden)))});
    ValueId kept = h ? b.mul(update, b.sub(h, fresh)) : b.op("neg", {b.mul(update, fresh)});
    h = b.add(fresh, kept);
    steps.push_back(h);
  }
  return stack(b, steps);
}

}  // namespace pelton::nn
