// SPDX-License-Identifier: Apache-2.0
// Recurrent layers as one scan a direction: the product of x and W for all steps at once before it, the
// product with R inside. Steps past a sequence's length keep the state and yield zero.
#include "ir/ops/composite.h"
#include "ir/ops/rnn.h"

namespace pelton::ir {
namespace {

namespace in = rnn_input;
using Values = std::vector<ValueId>;

ValueId slice(Builder& b, ValueId x, int64_t axis, Dim start, Dim size) {
  return b.op("slice", {x},
              {{"axes", Ints{axis}},
               {"starts", Shape{std::move(start)}},
               {"sizes", Shape{std::move(size)}},
               {"steps", Ints{1}}});
}

class Decomposition {
 public:
  Decomposition(Builder& b, const Node& n)
      : b_(b),
        n_(n),
        type_(b.dtype(n.inputs[0])),
        steps_(b.shape(n.inputs[in::x])[0]),
        batch_(b.shape(n.inputs[in::x])[1]),
        hidden_(b.shape(n.inputs[in::r])[2]),
        gates_(static_cast<int64_t>(rnn_gates(n))) {}

  Values run() {
    size_t directions = rnn_directions(n_);
    std::vector<Values> all;  // y[L,N,H], h[N,H], c[N,H] a direction
    for (size_t d = 0; d < directions; ++d) all.push_back(direction(d));
    Values out;
    for (size_t i = 0; i < n_.outputs.size(); ++i) {
      int64_t axis = i == 0 ? 1 : 0;
      Values parts;
      for (const Values& v : all) parts.push_back(b_.unsqueeze(v[i], {axis}));
      if (parts.size() == 1)
        out.push_back(parts[0]);
      else
        out.push_back(b_.op("concat", parts, {{"axis", axis}}));
    }
    return out;
  }

 private:
  bool has(size_t i) const { return i < n_.inputs.size() && n_.inputs[i]; }
  // Input i of direction d without the leading axis; zeros of `shape` if absent.
  ValueId part(size_t i, size_t d, const Shape& shape) {
    if (!has(i)) return b_.op("fill", {b_.scalar(type_, 0)}, {{"dims", shape}});
    return b_.reshape(slice(b_, n_.inputs[i], 0, Dim(static_cast<int64_t>(d)), 1), shape);
  }

  Values direction(size_t d) {
    Dim rows = hidden_ * gates_;
    const Shape& x_shape = b_.shape(n_.inputs[in::x]);
    ValueId w = part(in::w, d, {rows, x_shape[2]}), r = part(in::r, d, {rows, hidden_});
    ValueId bias = part(in::b, d, {rows * 2});
    ValueId projected =
        b_.add(b_.matmul(n_.inputs[in::x], b_.transpose(w, {1, 0})), slice(b_, bias, 0, 0, rows));
    bool with_cell = n_.is("lstm"), with_lengths = has(in::lengths);
    Values carried{part(in::h0, d, {batch_, hidden_})};
    if (with_cell) carried.push_back(part(in::c0, d, {batch_, hidden_}));
    // Position of each step, for sequences shorter than L.
    ValueId position =
        b_.op("iota", {}, {{"dims", Shape{steps_}}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
    Values scanned{projected, position};
    Values captured{b_.transpose(r, {1, 0}), slice(b_, bias, 0, rows, rows)};
    if (has(in::p)) captured.push_back(part(in::p, d, {hidden_ * 3}));
    if (with_lengths)
      captured.push_back(b_.reshape(b_.cast(n_.inputs[in::lengths], DType::i64), {batch_, 1}));
    Values inputs = carried;
    inputs.insert(inputs.end(), scanned.begin(), scanned.end());
    inputs.insert(inputs.end(), captured.begin(), captured.end());
    bool reverse = d == 1 || n_.get_text("direction") == "reverse";
    Ints flags(2, reverse);
    Attrs attrs{{"body", step(d, inputs, carried.size())},
                {"carried", static_cast<int64_t>(carried.size())},
                {"scanned", int64_t{2}}};
    if (reverse) {
      attrs["reverse"] = flags;
      attrs["out_reverse"] = Ints{1};
    }
    Values results = b_.ops("scan", inputs, std::move(attrs), carried.size() + 1);
    Values out{results.back()};
    out.insert(out.end(), results.begin(), results.end() - 1);
    return out;
  }

  GraphPtr step(size_t d, const Values& inputs, size_t carried) {
    auto body = std::make_shared<Graph>("step");
    body->symbols = b_.graph().symbols;
    Builder s(*body);
    s.set_name(b_.node_name());
    Values v;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Type t = b_.type(inputs[i]);
      if (i == carried || i == carried + 1) t.shape.erase(t.shape.begin());  // one step of a scanned input
      v.push_back(body->add_input(t));
    }
    ValueId h = v[0], x = v[carried], position = v[carried + 1], r = v[carried + 2], bias = v[carried + 3];
    size_t next = carried + 4;
    ValueId peepholes = has(in::p) ? v[next++] : ValueId{};
    std::vector<RnnActivation> all = rnn_activations(n_, rnn_directions(n_));
    size_t each = all.size() / rnn_directions(n_);
    std::vector<RnnActivation> f(all.begin() + static_cast<std::ptrdiff_t>(d * each),
                                 all.begin() + static_cast<std::ptrdiff_t>((d + 1) * each));
    Values state = n_.is("rnn")   ? rnn_step(s, f, x, h, r, bias)
                   : n_.is("gru") ? gru_step(s, f, x, h, r, bias)
                                  : lstm_step(s, f, x, h, v[1], r, bias, peepholes);
    ValueId y = state[0];
    if (has(in::lengths)) {
      ValueId alive = s.op("lt", {position, v[next]});  // [N,1]
      y = s.select(alive, y, s.like(y, 0));
      for (size_t i = 0; i < state.size(); ++i) state[i] = s.select(alive, state[i], v[i]);
    }
    body->outputs = state;
    body->outputs.push_back(y);
    return body;
  }

  ValueId activate(Builder& s, const RnnActivation& f, ValueId v) {
    if (double clip = n_.get_real("clip"); clip > 0)
      v = s.op("clamp", {v, s.like(v, -clip), s.like(v, clip)});
    return apply(s, f, v);
  }
  ValueId gate(Builder& s, ValueId all, int64_t g) { return slice(s, all, 1, hidden_ * g, hidden_); }

  Values rnn_step(Builder& s, const std::vector<RnnActivation>& f, ValueId x, ValueId h, ValueId r,
                  ValueId bias) {
    return {activate(s, f[0], s.add(x, s.add(s.matmul(h, r), bias)))};
  }

  Values gru_step(Builder& s, const std::vector<RnnActivation>& f, ValueId x, ValueId h, ValueId r,
                  ValueId bias) {
    ValueId recurrent = s.add(s.matmul(h, r), bias);
    auto sum = [&](int64_t g) { return s.add(gate(s, x, g), gate(s, recurrent, g)); };
    ValueId z = activate(s, f[0], sum(0)), reset = activate(s, f[0], sum(1)), candidate;
    if (n_.get_bool("linear_before_reset")) {
      candidate = s.add(gate(s, x, 2), s.mul(reset, gate(s, recurrent, 2)));
    } else {
      ValueId from_reset = s.matmul(s.mul(reset, h), slice(s, r, 1, hidden_ * 2, hidden_));
      candidate = s.add(gate(s, x, 2), s.add(from_reset, slice(s, bias, 0, hidden_ * 2, hidden_)));
    }
    candidate = activate(s, f[1], candidate);
    return {s.add(s.mul(s.sub(s.like(z, 1), z), candidate), s.mul(z, h))};
  }

  Values lstm_step(Builder& s, const std::vector<RnnActivation>& f, ValueId x, ValueId h, ValueId c,
                   ValueId r, ValueId bias, ValueId peepholes) {
    ValueId sums = s.add(x, s.add(s.matmul(h, r), bias));
    auto with_peephole = [&](int64_t g, int64_t index, ValueId cell) {
      ValueId v = gate(s, sums, g);
      return peepholes ? s.add(v, s.mul(slice(s, peepholes, 0, hidden_ * index, hidden_), cell)) : v;
    };
    ValueId i = activate(s, f[0], with_peephole(0, 0, c));
    ValueId forget =
        n_.get_bool("input_forget") ? s.sub(s.like(i, 1), i) : activate(s, f[0], with_peephole(2, 2, c));
    ValueId candidate = activate(s, f[1], gate(s, sums, 3));
    ValueId cell = s.add(s.mul(forget, c), s.mul(i, candidate));
    ValueId o = activate(s, f[0], with_peephole(1, 1, cell));
    return {s.mul(o, apply(s, f[2], cell)), cell};
  }

  Builder& b_;
  const Node& n_;
  DType type_;
  Dim steps_, batch_, hidden_;
  int64_t gates_;
};

}  // namespace

Values decompose_rnn(Builder& b, const Node& n) {
  return Decomposition(b, n).run();
}

}  // namespace pelton::ir
