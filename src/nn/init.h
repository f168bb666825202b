// SPDX-License-Identifier: Apache-2.0
// How a parameter starts. Draws are a pure function of (seed, name, element), so a layer's initial value does
// not depend on which other layers a model has or in which order they are made.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/tensor.h"

namespace pelton::nn {

struct Init {
  enum class Kind : uint8_t { constant, uniform, normal, truncated_normal } kind = Kind::constant;
  double a = 0;  // constant: the value; uniform: lower bound; the normals: mean
  double b = 0;  // uniform: upper bound; the normals: standard deviation

  static Init constant(double value) { return {Kind::constant, value, 0}; }
  static Init zeros() { return constant(0); }
  static Init ones() { return constant(1); }
  static Init uniform(double low, double high) { return {Kind::uniform, low, high}; }
  static Init normal(double deviation, double mean = 0) { return {Kind::normal, mean, deviation}; }
  // Cut at two standard deviations from the mean.
  static Init truncated_normal(double deviation) { return {Kind::truncated_normal, 0, deviation}; }
};

// Elements that one output (fan_in) or one input (fan_out) of a weight touches: [out, in, kernel...].
struct Fans {
  double in = 1, out = 1;
};
Fans fans(const Dims& weight);

enum class Fan : uint8_t { in, out };
// He et al. 2015, with the gain of leaky ReLU of slope `a` (0: ReLU).
Init kaiming_uniform(const Dims& weight, double a = 0, Fan fan = Fan::in);
Init kaiming_normal(const Dims& weight, double a = 0, Fan fan = Fan::in);
// Glorot and Bengio 2010.
Init xavier_uniform(const Dims& weight, double gain = 1);
Init xavier_normal(const Dims& weight, double gain = 1);
// What PyTorch gives weights and biases of linear layers and convolutions: U(-1/sqrt(fan_in),
// 1/sqrt(fan_in)).
Init by_fan_in(const Dims& weight);

Tensor draw(const Init& init, const Dims& dims, DType dtype, uint64_t seed, std::string_view name);

}  // namespace pelton::nn
