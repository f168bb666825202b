// SPDX-License-Identifier: Apache-2.0
// MobileNetV2 (Sandler et al. 2018) and EfficientNet-B0 (Tan and Le 2019). Names as in torchvision.
#include <cmath>

#include "nn/layers.h"
#include "nn/models/models.h"

namespace pelton::nn {

namespace {

struct ConvNorm {
  int64_t out, kernel = 1, stride = 1, groups = 1;
  std::string_view act = "relu6";
  double eps = 1e-5;
};

// A Sequential of convolution ("0"), batch norm ("1") and activation.
ValueId conv_norm(Net& net, std::string_view name, ValueId x, const ConvNorm& c) {
  auto at = net.scope(name);
  Dims shape{c.out, net.builder().shape(x)[1].value() / c.groups, c.kernel, c.kernel};
  x = conv(net, "0", x, c.out,
           {.kernel = {c.kernel},
            .stride = {c.stride},
            .padding = {(c.kernel - 1) / 2},
            .groups = c.groups,
            .bias = false,
            .weight_init = kaiming_normal(shape, 0, Fan::out)});
  x = batch_norm(net, "1", x, {.eps = c.eps});
  return activation(net, x, c.act);
}

int64_t round_to_8(double width) {
  int64_t rounded = std::max<int64_t>(8, static_cast<int64_t>(width + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * width ? rounded + 8 : rounded;
}

ValueId inverted_residual(Net& net, ValueId x, int64_t out, int64_t stride, int64_t expand) {
  auto at = net.scope("conv");
  int64_t in = net.builder().shape(x)[1].value(), hidden = in * expand, step = 0;
  ValueId y = x;
  if (expand != 1) y = conv_norm(net, cat(step++), y, {.out = hidden});
  y = conv_norm(net, cat(step++), y, {.out = hidden, .kernel = 3, .stride = stride, .groups = hidden});
  y = conv(net, cat(step), y, out,
           {.kernel = {1}, .bias = false, .weight_init = kaiming_normal({out, hidden, 1, 1}, 0, Fan::out)});
  y = batch_norm(net, cat(step + 1), y);
  return stride == 1 && in == out ? net.builder().add(x, y) : y;
}

ValueId build_mobilenet(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  struct Group {
    int64_t expand, out, count, stride;
  };
  constexpr Group groups[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                              {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  double width = o.real("width");
  ValueId x = in[0];
  {
    auto at = net.scope("features");
    x = conv_norm(net, "0", x, {.out = round_to_8(32 * width), .kernel = 3, .stride = 2});
    int64_t index = 1;
    for (const Group& g : groups)
      for (int64_t i = 0; i < g.count; ++i) {
        auto inner = net.scope(cat(index++));
        x = inverted_residual(net, x, round_to_8(static_cast<double>(g.out) * width), i ? 1 : g.stride,
                              g.expand);
      }
    x = conv_norm(net, cat(index), x, {.out = round_to_8(1280 * std::max(1.0, width))});
  }
  x = dropout(net, global_avg_pool(net, x), o.real("dropout"));
  return linear(net, "classifier.1", x, o.integer("classes"),
                {.weight_init = Init::normal(0.01), .bias_init = Init::zeros()});
}

// Channel weights from the mean of each channel (Hu et al. 2018).
ValueId squeeze_excite(Net& net, std::string_view name, ValueId x, int64_t squeezed) {
  auto at = net.scope(name);
  Builder& b = net.builder();
  int64_t channels = b.shape(x)[1].value();
  auto pointwise = [&](const char* part, ValueId v, int64_t in, int64_t out) {
    return conv(net, part, v, out,
                {.kernel = {1}, .weight_init = kaiming_normal({out, in, 1, 1}, 0, Fan::out)});
  };
  ValueId s = b.reduce("reduce_mean", x, {2, 3}, true);
  s = activation(net, pointwise("fc1", s, channels, squeezed), "silu");
  s = activation(net, pointwise("fc2", s, squeezed, channels), "sigmoid");
  return b.mul(x, s);
}

ValueId build_efficientnet(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  struct Stage {
    int64_t expand, kernel, stride, out, count;
  };
  constexpr Stage stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                              {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
  constexpr double blocks = 16;
  ValueId x = in[0];
  auto unit = [&](std::string_view name, ValueId v, ConvNorm c) { return conv_norm(net, name, v, c); };
  {
    auto at = net.scope("features");
    x = unit("0", x, {.out = 32, .kernel = 3, .stride = 2, .act = "silu"});
    int64_t index = 1;
    double done = 0;
    for (const Stage& s : stages) {
      auto stage = net.scope(cat(index++));
      for (int64_t i = 0; i < s.count; ++i) {
        auto inner = net.scope(cat(i, ".block"));
        int64_t width = net.builder().shape(x)[1].value(), hidden = width * s.expand, part = 0;
        int64_t stride = i ? 1 : s.stride;
        ValueId y = x;
        if (s.expand != 1) y = unit(cat(part++), y, {.out = hidden, .act = "silu"});
        y = unit(cat(part++), y,
                 {.out = hidden, .kernel = s.kernel, .stride = stride, .groups = hidden, .act = "silu"});
        y = squeeze_excite(net, cat(part++), y, std::max<int64_t>(1, width / 4));
        y = unit(cat(part), y, {.out = s.out, .act = "identity"});
        if (stride == 1 && width == s.out)
          y = net.builder().add(drop_path(net, y, o.real("drop_path") * done / blocks), x);
        x = y;
        done += 1;
      }
    }
    x = unit(cat(index), x, {.out = 1280, .act = "silu"});
  }
  x = dropout(net, global_avg_pool(net, x), o.real("dropout"));
  double limit = 1 / std::sqrt(static_cast<double>(o.integer("classes")));
  return linear(net, "classifier.1", x, o.integer("classes"),
                {.weight_init = Init::uniform(-limit, limit), .bias_init = Init::zeros()});
}

}  // namespace

ModelDef mobilenet_v2_model() {
  std::vector<ir::AttrDef> options = picture_options(1000, 3, 224);
  options.push_back(real_option("width", 1));
  options.push_back(real_option("dropout", 0.2));
  return {"mobilenet_v2", "inverted residuals with depthwise convolutions", options, picture_input,
          build_mobilenet};
}

ModelDef efficientnet_b0_model() {
  std::vector<ir::AttrDef> options = picture_options(1000, 3, 224);
  options.push_back(real_option("dropout", 0.2));
  options.push_back(real_option("drop_path", 0.2));
  return {"efficientnet_b0", "inverted residuals with squeeze and excitation", options, picture_input,
          build_efficientnet};
}

}  // namespace pelton::nn
