// SPDX-License-Identifier: Apache-2.0
// What our own kernels do to each result before they store it: a short list of steps, interpreted on eight
// channels at a time. Shared by host code and kernels; a copy travels as a kernel argument.
#pragma once

#include <cstdint>

namespace pelton::backend::cuda {

enum class Elem : uint8_t { f32, f16, bf16 };
inline constexpr int elem_bytes(Elem e) {
  return e == Elem::f32 ? 4 : 2;
}

struct EpilogueStep {
  enum Op : uint8_t {
    linear,  // a x + b
    relu,
    sigmoid,
    tanh,
    silu,
    gelu,
    gelu_tanh,
    hard_swish,
    hard_sigmoid,  // a x + b, clipped to [0, 1]
    leaky_relu,    // a x for x < 0
    elu,           // a (exp x - 1) for x < 0
    clamp,         // to [a, b]
    mish,
    exp,
    abs,
    square,
    sqrt,
    round,
    add,  // from here on with an operand
    sub,
    mul,
    div,
    max,
    min,
    prelu,
  };
  // Where the operand of result element (image n, channel c, place) is.
  enum Where : uint8_t {
    none,
    one,            // operand[0]
    channel,        // operand[c]
    image_channel,  // operand[n * channels + c]
    full,           // as the result lies
  };
  Op op = linear;
  Where where = none;
  Elem type = Elem::f32;  // of the operand
  float a = 1, b = 0;
  const void* operand = nullptr;
};

inline constexpr int kMaxEpilogueSteps = 8;
struct Epilogue {
  int count = 0;
  EpilogueStep steps[kMaxEpilogueSteps];
};

}  // namespace pelton::backend::cuda
