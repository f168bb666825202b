// SPDX-License-Identifier: Apache-2.0
// Recurrent layers. Layout 0: x[L,N,I], states [D,N,H], y[L,D,N,H]; layout 1 swaps L and N. D is 1 or 2.
#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

std::vector<ValueId> inputs_of(NodeContext& c, size_t limit) {
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < limit; ++i) inputs.push_back(i < 3 ? c.in(i) : c.opt(i));
  return inputs;
}

void recurrent(NodeContext& c, std::string_view op, std::vector<ValueId> inputs, size_t results, bool gru) {
  bool batch_first = c.get_int("layout", 0) != 0;
  const size_t input_limit = inputs.size();
  auto swap = [&](size_t i) {
    if (batch_first && inputs[i]) inputs[i] = c.b.transpose(inputs[i], {1, 0, 2});
  };
  swap(0);
  for (size_t i = 5; i < input_limit && i < 7; ++i) swap(i);
  while (!inputs.back()) inputs.pop_back();
  if (c.has_attr("hidden_size") && c.need_int("hidden_size") < 1)
    c.refuse(ErrorCode::bad_shape, cat("hidden_size is ", c.need_int("hidden_size")));
  Attrs attrs{
      {"hidden", c.get_int("hidden_size", c.need_const(c.b.shape(inputs[2]).at(2), "the hidden size"))},
      {"direction", c.get_text("direction", "forward")}};
  if (Strings v = c.get_texts("activations"); !v.empty()) attrs["activations"] = v;
  if (Floats v = c.get_reals("activation_alpha"); !v.empty()) attrs["alpha"] = v;
  if (Floats v = c.get_reals("activation_beta"); !v.empty()) attrs["beta"] = v;
  if (c.has_attr("clip")) attrs["clip"] = c.get_real("clip", 0);
  if (gru) attrs["linear_before_reset"] = c.get_int("linear_before_reset", 0) != 0;
  if (op == "lstm") attrs["input_forget"] = c.get_int("input_forget", 0) != 0;
  auto y = c.b.ops(op, inputs, std::move(attrs), results);
  if (batch_first) {
    y[0] = c.b.transpose(y[0], {2, 0, 1, 3});
    for (size_t i = 1; i < results; ++i) y[i] = c.b.transpose(y[i], {1, 0, 2});
  }
  for (size_t i = 0; i < results; ++i) c.out(i, y[i]);
}

void lstm(NodeContext& c) {
  recurrent(c, "lstm", inputs_of(c, 8), 3, false);
}
void gru(NodeContext& c) {
  recurrent(c, "gru", inputs_of(c, 6), 2, true);
}
void rnn(NodeContext& c) {
  recurrent(c, "rnn", inputs_of(c, 6), 2, false);
}

// An LSTM whose 8-bit weights lie the other way round, w[D,I,4H] and r[D,H,4H], with a scale and a zero point
// a direction or a column. Runtimes round x and the state to 8 bits at each step, here they stay as they are.
void dynamic_quantize_lstm(NodeContext& c) {
  auto weights = [&](size_t i, size_t scale_at) {
    ValueId w = c.in(i);
    const Dim directions = c.b.shape(w).at(0);
    auto columns = [&](ValueId v) {
      const Dim count = c.b.rank(v) == 2 ? c.b.shape(v)[1] : Dim(1);
      return c.b.reshape(c.b.cast(v, DType::f32), {directions, 1, count});
    };
    ValueId real = c.b.cast(w, DType::f32);
    if (c.has(scale_at + 1)) real = c.b.sub(real, columns(c.in(scale_at + 1)));
    return c.b.transpose(c.b.mul(real, columns(c.in(scale_at))), {0, 2, 1});
  };
  std::vector<ValueId> inputs{c.in(0), weights(1, 8), weights(2, 10)};
  for (size_t i = 3; i < 8; ++i) inputs.push_back(c.opt(i));
  recurrent(c, "lstm", inputs, 3, false);
}

}  // namespace

void add_rnn(ImportTable& table) {
  table.add("LSTM", lstm);
  table.add("GRU", gru);
  table.add("RNN", rnn);
  table.add(kMsDomain, "DynamicQuantizeLSTM", dynamic_quantize_lstm);
}

}  // namespace pelton::onnx
