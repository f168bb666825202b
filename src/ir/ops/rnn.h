// SPDX-License-Identifier: Apache-2.0
// Recurrent layers with ONNX's layouts. L steps, N batch, I inputs, H hidden, D directions (1 or 2), G gates:
//   x[L,N,I]  w[D,G*H,I]  r[D,G*H,H]  b[D,2*G*H] (input biases, then recurrent)  lengths[N]  h0[D,N,H]
//   results: y[L,D,N,H], last h[D,N,H], for lstm also last c[D,N,H]
// Gate order: rnn i; gru z r h; lstm i o f c, with peepholes p[D,3*H] in order i o f.
#pragma once

#include "ir/builder.h"
#include "ir/eval.h"

namespace pelton::ir {

// Input positions.
namespace rnn_input {
constexpr size_t x = 0, w = 1, r = 2, b = 3, lengths = 4, h0 = 5, c0 = 6, p = 7;
}

// Activation with its numbers; names as in ONNX, any case.
struct RnnActivation {
  std::string name;  // lower case
  double alpha = 0, beta = 0;
  double operator()(double x) const;
};
// `count` activations a direction, defaults filled in; `alpha` and `beta` are handed out in order to those
// that take one. A name that does not exist is bad_type.
std::vector<RnnActivation> rnn_activations(const Node& n, size_t directions);
ValueId apply(Builder& b, const RnnActivation& a, ValueId x);
size_t rnn_directions(const Node& n);
size_t rnn_gates(const Node& n);  // 1, 3 or 4

void eval_rnn(EvalContext& c);
void eval_gru(EvalContext& c);
void eval_lstm(EvalContext& c);

std::vector<ValueId> decompose_rnn(Builder& b, const Node& n);  // all three

}  // namespace pelton::ir
