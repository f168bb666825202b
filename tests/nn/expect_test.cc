// SPDX-License-Identifier: Apache-2.0
// Layers against torch's on weights by formula (expect/make_layers.py).
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "interp/interpreter.h"
#include "nn/layers.h"
#include "train/formula.h"

using namespace pelton;
using namespace pelton::nn;
using Layer = std::function<ValueId(Net&, ValueId)>;

namespace {

std::map<std::string, Layer> layers() {
  auto scaled = [](const char* kind, double factor) {
    return [=](Net& n, ValueId x) {
      return activation(n, n.builder().mul(x, n.builder().like(x, factor)), kind);
    };
  };
  ConvOptions conv1{.kernel = {3}, .stride = {2}, .padding = {1}, .groups = 2};
  ConvOptions conv2{.kernel = {3, 2}, .padding = {2, 1}, .dilation = {2, 1}};
  ConvOptions conv3{.kernel = {2}, .bias = false};
  ConvOptions grow{.kernel = {3}, .stride = {2}, .padding = {1}, .groups = 2, .output_padding = {1}};
  PoolOptions largest{.kernel = {3}, .stride = {2}, .padding = {1}, .ceil = true};
  PoolOptions mean{.kernel = {3}, .stride = {2}, .padding = {1}};
  PoolOptions inside = mean;
  inside.count_padding = false;
  return {
      {"conv1d", [=](Net& n, ValueId x) { return conv(n, "", x, 6, conv1); }},
      {"conv2d", [=](Net& n, ValueId x) { return conv(n, "", x, 4, conv2); }},
      {"conv3d", [=](Net& n, ValueId x) { return conv(n, "", x, 3, conv3); }},
      {"conv_transpose2d", [=](Net& n, ValueId x) { return conv_transpose(n, "", x, 6, grow); }},
      {"group_norm", [](Net& n, ValueId x) { return group_norm(n, "", x, 2); }},
      {"instance_norm", [](Net& n, ValueId x) { return instance_norm(n, "", x); }},
      {"layer_norm", [](Net& n, ValueId x) { return layer_norm(n, "", x); }},
      {"rms_norm", [](Net& n, ValueId x) { return rms_norm(n, "", x); }},
      {"local_response_norm", [](Net& n, ValueId x) { return local_response_norm(n, x, 3, 0.5, 0.7, 1.5); }},
      {"attention", [](Net& n, ValueId x) { return multihead_attention(n, "", x, {.heads = 3}); }},
      {"attention_causal",
       [](Net& n, ValueId x) { return multihead_attention(n, "", x, {.heads = 3, .causal = true}); }},
      {"max_pool", [=](Net& n, ValueId x) { return max_pool(n, x, largest); }},
      {"avg_pool", [=](Net& n, ValueId x) { return avg_pool(n, x, mean); }},
      {"avg_pool_inside", [=](Net& n, ValueId x) { return avg_pool(n, x, inside); }},
      {"upsample_nearest", [](Net& n, ValueId x) { return upsample(n, x, 2, "nearest"); }},
      {"upsample_linear", [](Net& n, ValueId x) { return upsample(n, x, 2, "linear"); }},
      {"relu6", scaled("relu6", 10)},
      {"gelu", scaled("gelu", 1)},
      {"gelu_tanh", scaled("gelu_tanh", 1)},
      {"silu", scaled("silu", 1)},
      {"leaky_relu", scaled("leaky_relu", 1)},
      {"elu", scaled("elu", 1)},
      {"hard_swish", scaled("hard_swish", 5)},
  };
}

}  // namespace

TEST_CASE("layers: outputs and parameter names are those of torch") {
  auto all = nlohmann::json::parse(read_file("tests/nn/expect/layers.json"));
  std::map<std::string, Layer> known = layers();
  CHECK(all.size() == known.size());
  for (const auto& [name, c] : all.items()) {
    CAPTURE(name);
    REQUIRE(known.count(name));
    Dims dims = c["input"].get<Dims>();
    Graph g;
    Net net(g, {.draw = false});
    ValueId x = g.add_input(ir::Type::tensor(DType::f32, to_shape(dims)), "x");
    g.add_output(known[name](net, x), "y");
    test::fill(g);
    std::vector<std::string> names;
    for (const auto& slot : net.slots()) names.push_back(slot.first);
    CHECK(names == c["names"].get<std::vector<std::string>>());
    Tensor y = interp::run(g, {test::uniform_tensor("x", dims)}).outputs[0].tensor;
    REQUIRE(y.dims() == c["shape"].get<Dims>());
    // Values of size 1; torch sums in f32.
    for (int64_t i = 0; i < y.count(); ++i)
      CHECK(std::abs(y.get_double(i) - c["values"][static_cast<size_t>(i)].get<double>()) < 1e-5);
  }
}
