// SPDX-License-Identifier: Apache-2.0
// ResNet (He et al. 2015), the variant with the stride on the 3x3 convolution. Names as in torchvision and
// timm.
#include "nn/layers.h"
#include "nn/models/models.h"

namespace pelton::nn {

namespace {

struct Size {
  std::string_view name;
  int64_t blocks[4];
  bool bottleneck;
};
constexpr Size kSizes[] = {{"resnet18", {2, 2, 2, 2}, false},
                           {"resnet34", {3, 4, 6, 3}, false},
                           {"resnet50", {3, 4, 6, 3}, true},
                           {"resnet152", {3, 8, 36, 3}, true}};

const Size& size_of(std::string_view name) {
  for (const Size& s : kSizes)
    if (s.name == name) return s;
  PELTON_CHECK(false, "no ResNet '", name, "'");
  return kSizes[0];
}

ValueId conv_norm(Net& net, std::string_view conv_name, std::string_view norm_name, ValueId x, int64_t out,
                  int64_t kernel, int64_t stride) {
  Dims shape{out, net.builder().shape(x)[1].value(), kernel, kernel};
  x = conv(net, conv_name, x, out,
           {.kernel = {kernel},
            .stride = {stride},
            .padding = {kernel / 2},
            .bias = false,
            .weight_init = kaiming_normal(shape, 0, Fan::out)});
  return batch_norm(net, norm_name, x);
}

ValueId block(Net& net, ValueId x, int64_t width, int64_t stride, bool bottleneck) {
  int64_t out = bottleneck ? 4 * width : width;
  ValueId y;
  if (bottleneck) {
    y = activation(net, conv_norm(net, "conv1", "bn1", x, width, 1, 1), "relu");
    y = activation(net, conv_norm(net, "conv2", "bn2", y, width, 3, stride), "relu");
    y = conv_norm(net, "conv3", "bn3", y, out, 1, 1);
  } else {
    y = activation(net, conv_norm(net, "conv1", "bn1", x, width, 3, stride), "relu");
    y = conv_norm(net, "conv2", "bn2", y, out, 3, 1);
  }
  if (stride != 1 || net.builder().shape(x)[1] != Dim(out))
    x = conv_norm(net, "downsample.0", "downsample.1", x, out, 1, stride);
  return activation(net, net.builder().add(y, x), "relu");
}

// `small_stem`: 3x3 without stride or pool, as CIFAR-sized pictures need.
ValueId build(Net& net, const Size& size, const ModelOptions& o, ValueId x) {
  if (o.flag("small_stem")) {
    x = activation(net, conv_norm(net, "conv1", "bn1", x, 64, 3, 1), "relu");
  } else {
    x = activation(net, conv_norm(net, "conv1", "bn1", x, 64, 7, 2), "relu");
    x = max_pool(net, x, {.kernel = {3}, .stride = {2}, .padding = {1}});
  }
  for (int64_t stage = 0; stage < 4; ++stage) {
    auto at = net.scope(cat("layer", stage + 1));
    for (int64_t i = 0; i < size.blocks[stage]; ++i) {
      auto inner = net.scope(cat(i));
      x = block(net, x, int64_t{64} << stage, i == 0 && stage > 0 ? 2 : 1, size.bottleneck);
    }
  }
  return linear(net, "fc", global_avg_pool(net, x), o.integer("classes"));
}

template <size_t i>
ValueId build_size(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  return build(net, kSizes[i], o, in[0]);
}

}  // namespace

ModelDef resnet_model(std::string_view name) {
  static constexpr decltype(&build_size<0>) builders[] = {build_size<0>, build_size<1>, build_size<2>,
                                                          build_size<3>};
  const Size& size = size_of(name);
  std::vector<ir::AttrDef> options = picture_options(1000, 3, 224);
  options.push_back(flag_option("small_stem", false));
  return {size.name, "residual network", options, picture_input, builders[&size - kSizes]};
}

}  // namespace pelton::nn
