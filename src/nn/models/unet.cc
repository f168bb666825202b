// SPDX-License-Identifier: Apache-2.0
// U-Net (Ronneberger et al. 2015) with padded convolutions and batch norm: one class a pixel.
#include "nn/layers.h"
#include "nn/models/models.h"

namespace pelton::nn {

namespace {

ValueId twice(Net& net, std::string_view name, ValueId x, int64_t width) {
  auto at = net.scope(name);
  for (int64_t i = 0; i < 2; ++i) {
    x = conv(net, cat("conv", i + 1), x, width, {.kernel = {3}, .padding = {1}, .bias = false});
    x = activation(net, batch_norm(net, cat("bn", i + 1), x), "relu");
  }
  return x;
}

ValueId build_unet(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  int64_t depth = o.integer("depth"), width = o.integer("width"), size = o.integer("size");
  if (depth < 1 || depth > 8 || size % (int64_t{1} << depth))
    fail(ErrorCode::bad_shape, cat("pictures of ", size, " cannot be halved ", depth, " times"),
         "model 'unet'");
  std::vector<ValueId> skips;
  ValueId x = in[0];
  for (int64_t i = 0; i < depth; ++i) {
    x = twice(net, cat("down.", i), x, width << i);
    skips.push_back(x);
    x = max_pool(net, x, {.kernel = {2}});
  }
  x = twice(net, "middle", x, width << depth);
  for (int64_t i = depth; i-- > 0;) {
    x = conv_transpose(net, cat("up.", i, ".grow"), x, width << i, {.kernel = {2}, .stride = {2}});
    x = net.builder().op("concat", {skips[static_cast<size_t>(i)], x}, {{"axis", int64_t{1}}});
    x = twice(net, cat("up.", i), x, width << i);
  }
  return conv(net, "head", x, o.integer("classes"), {.kernel = {1}});
}

}  // namespace

ModelDef unet_model() {
  std::vector<ir::AttrDef> options = picture_options(2, 1, 128);
  options.push_back(integer_option("width", 32));
  options.push_back(integer_option("depth", 4));
  return {"unet", "encoder and decoder with skips; one class a pixel", options, picture_input, build_unet};
}

}  // namespace pelton::nn
