// SPDX-License-Identifier: Apache-2.0
// lstm and gru with ONNX's layouts (ir/ops/rnn.h has the letters). The input product of all steps is one
// matrix product; the recurrent product of a step covers the batch.
#include <cstring>

#include "backend/cpu/implementations.h"
#include "backend/cpu/own/gemm.h"
#include "backend/cpu/support.h"
#include "backend/cpu/tile/step.h"
#include "ir/op.h"
#include "ir/ops/rnn.h"

namespace pelton::backend::cpu {
namespace {

namespace at = ir::rnn_input;

// [rows, columns] to [columns, rows]
void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  constexpr int64_t kTile = 16;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < columns; c0 += kTile)
      for (int64_t c = c0; c < std::min(columns, c0 + kTile); ++c)
        for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r) to[c * rows + r] = from[r * columns + c];
}

class RecurrentKernel final : public Kernel {
 public:
  RecurrentKernel(const Instance& instance, const device::Target& target) {
    const ir::Node& n = instance.node();
    const Dims &x = instance.inputs[at::x].dims, &r = instance.inputs[at::r].dims;
    lstm_ = n.is("lstm");
    steps_ = x[0];
    batch_ = x[1];
    inputs_ = x[2];
    hidden_ = r[2];
    gates_ = lstm_ ? 4 : 3;
    rows_ = gates_ * hidden_;
    directions_ = static_cast<int64_t>(ir::rnn_directions(n));
    reverse_ = n.get_text("direction") == "reverse";
    linear_ = !lstm_ && n.get_bool("linear_before_reset");
    for (size_t i = 0; i < 6 + 2; ++i) has_[i] = instance.has(i);
    if (has_[at::lengths]) lengths_type_ = instance.inputs[at::lengths].dtype;
    outputs_ = instance.outputs.size();
    gemm_ = gemm_function(target.isa);
    sigmoid_ = f32_step(Code::sigmoid, target.isa);
    tanh_ = f32_step(Code::tanh, target.isa);
    const auto &w = instance.constants[at::w], &rec = instance.constants[at::r];
    if (w.defined() && rec.defined()) {
      packed_ = Tensor(DType::f32, {directions_ * (inputs_ + hidden_) * rows_});
      auto* to = static_cast<float*>(packed_.mutable_data());
      pack(static_cast<const float*>(w.data()), static_cast<const float*>(rec.data()), to);
    }
  }
  int64_t packed_bytes() const override { return packed_.defined() ? packed_.bytes() : 0; }
  int64_t scratch_bytes() const override {
    const int64_t weights = packed_.defined() ? 0 : directions_ * (inputs_ + hidden_) * rows_;
    // Input products [L, N, G*H], recurrent products [N, G*H], reset state and candidate [N, H], h and c [N,
    // H].
    return 4 * (weights + steps_ * batch_ * rows_ + batch_ * (rows_ + 4 * hidden_) + 64);
  }
  void run(const RunArgs& args) const override {
    auto* memory = static_cast<float*>(args.scratch);
    const float* weights;
    if (packed_.defined()) {
      weights = static_cast<const float*>(packed_.data());
    } else {
      pack(static_cast<const float*>(args.in[at::w]), static_cast<const float*>(args.in[at::r]), memory);
      weights = memory;
      memory += directions_ * (inputs_ + hidden_) * rows_;
    }
    for (int64_t d = 0; d < directions_; ++d)
      direction(d, args, weights + d * (inputs_ + hidden_) * rows_, memory);
  }

 private:
  void pack(const float* w, const float* r, float* to) const {
    for (int64_t d = 0; d < directions_; ++d, to += (inputs_ + hidden_) * rows_) {
      transpose(w + d * rows_ * inputs_, rows_, inputs_, to);
      transpose(r + d * rows_ * hidden_, rows_, hidden_, to + inputs_ * rows_);
    }
  }
  static void apply(StepFunction f, float* p, int64_t n) {
    Step s;
    s.in[0] = p;
    s.out = p;
    f(s, n);
  }
  int64_t length(const RunArgs& args, int64_t n) const {
    if (!has_[at::lengths]) return steps_;
    const int64_t v = lengths_type_ == DType::i64 ? static_cast<const int64_t*>(args.in[at::lengths])[n]
                                                  : static_cast<const int32_t*>(args.in[at::lengths])[n];
    if (v < 0 || v > steps_)
      fail(ErrorCode::bad_shape, cat("a sequence of length ", v, " in ", steps_, " steps"),
           lstm_ ? "lstm" : "gru");
    return v;
  }

  void direction(int64_t d, const RunArgs& args, const float* weights, float* memory) const {
    float* from_input = memory;
    float* from_state = from_input + steps_ * batch_ * rows_;
    float* reset = from_state + batch_ * rows_;
    float* h = reset + batch_ * hidden_;
    float* c = h + batch_ * hidden_;
    float* spare = c + batch_ * hidden_;
    const float* bias = has_[at::b] ? static_cast<const float*>(args.in[at::b]) + d * 2 * rows_ : nullptr;
    const float* recurrent = weights + inputs_ * rows_;
    start(h, has_[at::h0] ? args.in[at::h0] : nullptr, d);
    start(c, lstm_ && has_[at::c0] ? args.in[at::c0] : nullptr, d);
    const auto* x = static_cast<const float*>(args.in[at::x]);
    const int64_t all = steps_ * batch_;
    parallel_for(0, all, std::max<int64_t>(6, grain_for(all, inputs_ * rows_ / 8)),
                 [&](int64_t begin, int64_t end) {
                   gemm_(end - begin, rows_, inputs_, x + begin * inputs_, inputs_, weights, rows_,
                         from_input + begin * rows_, rows_, false);
                   if (bias)
                     for (int64_t i = begin; i < end; ++i)
                       for (int64_t g = 0; g < rows_; ++g) from_input[i * rows_ + g] += bias[g];
                 });
    auto* y = outputs_ > 0 ? static_cast<float*>(args.out[0]) : nullptr;
    const bool backwards = d == 1 || reverse_;
    for (int64_t k = 0; k < steps_; ++k) {
      // The gru without linear_before_reset needs its third product after the reset gate.
      const int64_t columns = lstm_ || linear_ ? rows_ : 2 * hidden_;
      gemm_(batch_, columns, hidden_, h, hidden_, recurrent, rows_, from_state, rows_, false);
      for (int64_t n = 0; n < batch_; ++n) {
        const int64_t steps = length(args, n);
        if (k >= steps) continue;
        const int64_t t = backwards ? steps - 1 - k : k;
        float* gates = from_input + (t * batch_ + n) * rows_;
        const float* state = from_state + n * rows_;
        if (lstm_)
          lstm_step(gates, state, bias ? bias + rows_ : nullptr, h + n * hidden_, c + n * hidden_);
        else
          gru_step(gates, state, bias ? bias + rows_ : nullptr, recurrent, h + n * hidden_, reset, spare);
        if (y)
          std::memcpy(y + ((t * directions_ + d) * batch_ + n) * hidden_, h + n * hidden_,
                      static_cast<size_t>(hidden_) * 4);
      }
    }
    // Steps beyond a sequence's end are zeros.
    if (y)
      for (int64_t n = 0; n < batch_; ++n)
        for (int64_t t = length(args, n); t < steps_; ++t)
          std::memset(y + ((t * directions_ + d) * batch_ + n) * hidden_, 0,
                      static_cast<size_t>(hidden_) * 4);
    finish(h, args, 1, d);
    if (lstm_) finish(c, args, 2, d);
  }
  void start(float* state, const void* initial, int64_t d) const {
    const int64_t count = batch_ * hidden_;
    if (initial)
      std::memcpy(state, static_cast<const float*>(initial) + d * count, static_cast<size_t>(count) * 4);
    else
      std::memset(state, 0, static_cast<size_t>(count) * 4);
  }
  void finish(const float* state, const RunArgs& args, size_t output, int64_t d) const {
    const int64_t count = batch_ * hidden_;
    if (output < outputs_ && args.out[output])
      std::memcpy(static_cast<float*>(args.out[output]) + d * count, state, static_cast<size_t>(count) * 4);
  }
  // gates: i o f c
  void lstm_step(float* gates, const float* state, const float* bias, float* h, float* c) const {
    for (int64_t g = 0; g < rows_; ++g) gates[g] += bias ? state[g] + bias[g] : state[g];
    apply(sigmoid_, gates, 3 * hidden_);
    apply(tanh_, gates + 3 * hidden_, hidden_);
    const float *i = gates, *o = gates + hidden_, *f = o + hidden_, *candidate = f + hidden_;
    for (int64_t j = 0; j < hidden_; ++j) c[j] = f[j] * c[j] + i[j] * candidate[j];
    std::memcpy(h, c, static_cast<size_t>(hidden_) * 4);
    apply(tanh_, h, hidden_);
    for (int64_t j = 0; j < hidden_; ++j) h[j] *= o[j];
  }
  // gates: z r h
  void gru_step(float* gates, const float* state, const float* bias, const float* recurrent, float* h,
                float* reset, float* spare) const {
    for (int64_t g = 0; g < 2 * hidden_; ++g) gates[g] += bias ? state[g] + bias[g] : state[g];
    apply(sigmoid_, gates, 2 * hidden_);
    const float *z = gates, *r = gates + hidden_;
    float* candidate = gates + 2 * hidden_;
    const float* b = bias ? bias + 2 * hidden_ : nullptr;
    if (linear_) {
      const float* s = state + 2 * hidden_;
      for (int64_t j = 0; j < hidden_; ++j) candidate[j] += r[j] * (b ? s[j] + b[j] : s[j]);
    } else {
      for (int64_t j = 0; j < hidden_; ++j) reset[j] = r[j] * h[j];
      gemm_(1, hidden_, hidden_, reset, hidden_, recurrent + 2 * hidden_, rows_, spare, hidden_, false);
      for (int64_t j = 0; j < hidden_; ++j) candidate[j] += b ? spare[j] + b[j] : spare[j];
    }
    apply(tanh_, candidate, hidden_);
    for (int64_t j = 0; j < hidden_; ++j) h[j] = (1 - z[j]) * candidate[j] + z[j] * h[j];
  }

  bool lstm_ = false, reverse_ = false, linear_ = false, has_[8] = {};
  int64_t steps_, batch_, inputs_, hidden_, gates_, rows_, directions_;
  size_t outputs_ = 0;
  DType lengths_type_ = DType::i32;
  Tensor packed_;
  GemmFunction gemm_ = nullptr;
  StepFunction sigmoid_ = nullptr, tanh_ = nullptr;
};

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (std::string why = refuse_layouts(graph, node); !why.empty()) return why;
  const ir::Node& n = graph[node];
  if (const DType t = input_dtype(graph, node, 0); t != DType::f32) return cat("needs f32, got ", name(t));
  if (n.get_real("clip") != 0) return "does not clip";
  if (n.is("lstm") && n.get_bool("input_forget")) return "does not couple input and forget gates";
  if (n.inputs.size() > at::p && n.inputs[at::p]) return "has no peepholes";
  if (n.inputs.size() > at::lengths && n.inputs[at::lengths])
    if (const DType t = input_dtype(graph, node, at::lengths); t != DType::i32 && t != DType::i64)
      return cat("needs i32 or i64 lengths, got ", name(t));
  const size_t each = n.is("lstm") ? 3 : 2;
  const std::vector<ir::RnnActivation> f = ir::rnn_activations(n, ir::rnn_directions(n));
  for (size_t i = 0; i < f.size(); ++i)
    if (f[i].name != (i % each == 0 ? "sigmoid" : "tanh")) return cat("has no activation ", f[i].name);
  return {};
}
std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  return std::make_unique<RecurrentKernel>(instance, target);
}

}  // namespace

void add_recurrent(Registry& registry) {
  registry.add({"cpu.recurrent", {"lstm", "gru"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
