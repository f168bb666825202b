// SPDX-License-Identifier: Apache-2.0
// Reference of the recurrent layers: states stay f64 from step to step.
#include "ir/ops/composite.h"
#include "ir/ops/rnn.h"

namespace pelton::ir {
namespace {

namespace in = rnn_input;

// One direction: weights as f64 and the walk over steps. `gates` rows of pre-activations are those of ONNX.
class Direction {
 public:
  Direction(const EvalContext& c, size_t d)
      : steps_(size(c, in::x, 0)),
        batch_(size(c, in::x, 1)),
        input_(size(c, in::x, 2)),
        hidden_(size(c, in::r, 2)),
        rows_(rnn_gates(c.node) * hidden_),
        clip_(c.node.get_real("clip")),
        reverse_(d == 1 || c.node.get_text("direction") == "reverse"),
        x_(to_doubles(c.in(in::x))) {
    w_ = part(c, in::w, d, rows_ * input_);
    r_ = part(c, in::r, d, rows_ * hidden_);
    b_ = part(c, in::b, d, 2 * rows_);
    h_ = part(c, in::h0, d, batch_ * hidden_);
    c_ = part(c, in::c0, d, batch_ * hidden_);
    if (c.has(in::p)) p_ = part(c, in::p, d, 3 * hidden_);
    lengths_.assign(batch_, static_cast<int64_t>(steps_));
    if (c.has(in::lengths)) lengths_ = to_ints(c.in(in::lengths));
    for (int64_t l : lengths_)
      if (l < 0 || l > static_cast<int64_t>(steps_))
        c.refuse(ErrorCode::bad_shape, cat("has a sequence of length ", l, " in ", steps_, " steps"));
    size_t each = rnn_activations(c.node, 1).size(), directions = rnn_directions(c.node);
    std::vector<RnnActivation> all = rnn_activations(c.node, directions);
    if (!c.node.get_strings("activations").empty()) each = all.size() / directions;
    f_.assign(all.begin() + static_cast<std::ptrdiff_t>(d * each),
              all.begin() + static_cast<std::ptrdiff_t>((d + 1) * each));
  }

  // step(n, t): updates h (and c) of batch entry n from input row t; y gets h after each step.
  template <class F>
  void walk(std::vector<double>& y, size_t d, size_t directions, F&& step) {
    for (size_t n = 0; n < batch_; ++n)
      for (int64_t k = 0; k < lengths_[n]; ++k) {
        auto t = static_cast<size_t>(reverse_ ? lengths_[n] - 1 - k : k);
        step(n, t);
        for (size_t j = 0; j < hidden_; ++j)
          y[((t * directions + d) * batch_ + n) * hidden_ + j] = h_[n * hidden_ + j];
      }
  }

  double clipped(double v) const { return clip_ > 0 ? std::min(std::max(v, -clip_), clip_) : v; }
  // Row `g` of W x + Wb, of R h + Rb.
  double from_input(size_t n, size_t t, size_t g) const {
    const double* x = &x_[(t * batch_ + n) * input_];
    double sum = b_[g];
    for (size_t i = 0; i < input_; ++i) sum += w_[g * input_ + i] * x[i];
    return sum;
  }
  double from_state(const double* h, size_t g) const {
    double sum = b_[rows_ + g];
    for (size_t i = 0; i < hidden_; ++i) sum += r_[g * hidden_ + i] * h[i];
    return sum;
  }
  double* h(size_t n) { return &h_[n * hidden_]; }
  double* c(size_t n) { return &c_[n * hidden_]; }
  // What a cell adds to a gate: nothing where no peepholes are given, of a cell that is infinite, too.
  double peephole(size_t gate, size_t j, double cell) const {
    return p_.empty() ? 0 : p_[gate * hidden_ + j] * cell;
  }
  double activate(size_t i, double v) const { return f_[i](clipped(v)); }
  double plain(size_t i, double v) const { return f_[i](v); }
  size_t hidden() const { return hidden_; }
  const std::vector<double>& last_h() const { return h_; }
  const std::vector<double>& last_c() const { return c_; }

 private:
  static size_t size(const EvalContext& c, size_t input, size_t axis) {
    return static_cast<size_t>(c.in(input).dims()[axis]);
  }
  // `count` values of direction d; zeros if the input is absent.
  static std::vector<double> part(const EvalContext& c, size_t input, size_t d, size_t count) {
    if (!c.has(input)) return std::vector<double>(count, 0);
    std::vector<double> all = to_doubles(c.in(input));
    auto from = all.begin() + static_cast<std::ptrdiff_t>(d * count);
    return {from, from + static_cast<std::ptrdiff_t>(count)};
  }

  size_t steps_, batch_, input_, hidden_, rows_;
  double clip_;
  bool reverse_;
  std::vector<double> x_, w_, r_, b_, h_, c_, p_;
  std::vector<int64_t> lengths_;
  std::vector<RnnActivation> f_;
};

// Runs `step(direction, n, t)` over all directions and stores the results.
template <class F>
void run_directions(EvalContext& c, F&& step) {
  const Dims &x = c.in(in::x).dims(), &r = c.in(in::r).dims();
  size_t directions = rnn_directions(c.node);
  Dims y_dims{x[0], static_cast<int64_t>(directions), x[1], r[2]}, last{y_dims[1], x[1], r[2]};
  std::vector<double> y(static_cast<size_t>(element_count(y_dims)), 0), h, cell;
  for (size_t d = 0; d < directions; ++d) {
    Direction direction(c, d);
    direction.walk(y, d, directions, [&](size_t n, size_t t) { step(direction, n, t); });
    h.insert(h.end(), direction.last_h().begin(), direction.last_h().end());
    cell.insert(cell.end(), direction.last_c().begin(), direction.last_c().end());
  }
  DType t = c.in(in::x).dtype();
  c.out(0, from_doubles(t, y_dims, y));
  c.out(1, from_doubles(t, last, h));
  c.out(2, from_doubles(t, last, cell));
}

}  // namespace

// h = f(W x + R h + b)
void eval_rnn(EvalContext& c) {
  run_directions(c, [](Direction& d, size_t n, size_t t) {
    std::vector<double> old(d.h(n), d.h(n) + d.hidden());
    for (size_t j = 0; j < d.hidden(); ++j)
      d.h(n)[j] = d.activate(0, d.from_input(n, t, j) + d.from_state(old.data(), j));
  });
}

// z, r = f(...); candidate = g(Wh x + Rh (r . h) + b), or g(Wh x + r . (Rh h + Rbh)) with
// linear_before_reset; h = (1 - z) . candidate + z . h
void eval_gru(EvalContext& c) {
  bool linear = c.node.get_bool("linear_before_reset");
  run_directions(c, [&](Direction& d, size_t n, size_t t) {
    size_t hidden = d.hidden();
    std::vector<double> old(d.h(n), d.h(n) + hidden), z(hidden), r(hidden), reset(hidden);
    for (size_t j = 0; j < hidden; ++j) {
      z[j] = d.activate(0, d.from_input(n, t, j) + d.from_state(old.data(), j));
      r[j] = d.activate(0, d.from_input(n, t, hidden + j) + d.from_state(old.data(), hidden + j));
      reset[j] = r[j] * old[j];
    }
    for (size_t j = 0; j < hidden; ++j) {
      size_t row = 2 * hidden + j;
      double recurrent = linear ? r[j] * d.from_state(old.data(), row) : d.from_state(reset.data(), row);
      double candidate = d.activate(1, d.from_input(n, t, row) + recurrent);
      d.h(n)[j] = (1 - z[j]) * candidate + z[j] * old[j];
    }
  });
}

// i, f = f(... + P . c); c = f . c + i . g(...); o = f(... + Po . new c); h = o . h(c)
void eval_lstm(EvalContext& c) {
  bool coupled = c.node.get_bool("input_forget");
  run_directions(c, [&](Direction& d, size_t n, size_t t) {
    size_t hidden = d.hidden();
    std::vector<double> old(d.h(n), d.h(n) + hidden);
    auto gate = [&](size_t g, size_t j) {
      return d.from_input(n, t, g * hidden + j) + d.from_state(old.data(), g * hidden + j);
    };
    for (size_t j = 0; j < hidden; ++j) {
      double& cell = d.c(n)[j];
      double i = d.activate(0, gate(0, j) + d.peephole(0, j, cell));
      double f = coupled ? 1 - i : d.activate(0, gate(2, j) + d.peephole(2, j, cell));
      cell = f * cell + i * d.activate(1, gate(3, j));
      double o = d.activate(0, gate(1, j) + d.peephole(1, j, cell));
      d.h(n)[j] = o * d.plain(2, cell);
    }
  });
}

}  // namespace pelton::ir
