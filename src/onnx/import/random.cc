// SPDX-License-Identifier: Apache-2.0
// Random values. The generator is Pelton's own: seeds choose a sequence, not the one of another runtime.
#include <cmath>
#include <cstring>

#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

int64_t seed_of(NodeContext& c) {
  auto seed = static_cast<float>(c.get_real("seed", 0));
  if (seed == std::floor(seed) && std::fabs(seed) < 1e9f) return static_cast<int64_t>(seed);
  uint32_t bits;
  std::memcpy(&bits, &seed, 4);
  return bits;
}

void uniform(NodeContext& c, DType t, Shape shape) {
  c.out(0, c.b.op("random_uniform", {},
                  {{"dims", std::move(shape)},
                   {"dtype", t},
                   {"low", c.get_real("low", 0)},
                   {"high", c.get_real("high", 1)},
                   {"seed", seed_of(c)}}));
}
void normal(NodeContext& c, DType t, Shape shape) {
  c.out(0, c.b.op("random_normal", {},
                  {{"dims", std::move(shape)},
                   {"dtype", t},
                   {"mean", c.get_real("mean", 0)},
                   {"scale", c.get_real("scale", 1)},
                   {"seed", seed_of(c)}}));
}
void random_uniform(NodeContext& c) {
  uniform(c, c.get_dtype("dtype", DType::f32), to_shape(c.get_ints("shape")));
}
void random_normal(NodeContext& c) {
  normal(c, c.get_dtype("dtype", DType::f32), to_shape(c.get_ints("shape")));
}
void random_uniform_like(NodeContext& c) {
  uniform(c, c.get_dtype("dtype", c.b.dtype(c.in(0))), c.shape_of(c.in(0)));
}
void random_normal_like(NodeContext& c) {
  normal(c, c.get_dtype("dtype", c.b.dtype(c.in(0))), c.shape_of(c.in(0)));
}
void bernoulli(NodeContext& c) {
  ValueId p = c.in(0);
  c.out(0, c.b.op("bernoulli", {p}, {{"dtype", c.get_dtype("dtype", c.b.dtype(p))}, {"seed", seed_of(c)}}));
}
void multinomial(NodeContext& c) {
  c.out(0, c.b.op("multinomial", {c.in(0)},
                  {{"samples", c.get_int("sample_size", 1)},
                   {"dtype", c.get_dtype("dtype", DType::i32)},
                   {"seed", seed_of(c)}}));
}

}  // namespace

void add_random(ImportTable& table) {
  table.add("RandomUniform", random_uniform);
  table.add("RandomNormal", random_normal);
  table.add("RandomUniformLike", random_uniform_like);
  table.add("RandomNormalLike", random_normal_like);
  table.add("Bernoulli", bernoulli);
  table.add("Multinomial", multinomial);
}

}  // namespace pelton::onnx
