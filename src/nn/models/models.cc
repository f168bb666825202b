// SPDX-License-Identifier: Apache-2.0
#include "nn/models/models.h"

namespace pelton::nn {

using ir::AttrDef;
using ir::AttrKind;

std::vector<ModelDef> all_models() {
  return {mlp_model(),
          small_cnn_model(),
          resnet_model("resnet18"),
          resnet_model("resnet34"),
          resnet_model("resnet50"),
          resnet_model("resnet152"),
          mobilenet_v2_model(),
          efficientnet_b0_model(),
          inception_v3_model(),
          vit_model(),
          bert_model(),
          gpt2_model(),
          unet_model(),
          autoencoder_model(),
          recurrent_model()};
}

AttrDef integer_option(std::string_view name, int64_t value) {
  return {name, AttrKind::integer, ir::Attr(value)};
}
AttrDef real_option(std::string_view name, double value) {
  return {name, AttrKind::real, ir::Attr(value)};
}
AttrDef flag_option(std::string_view name, bool value) {
  return {name, AttrKind::boolean, ir::Attr(value)};
}
AttrDef text_option(std::string_view name, std::string_view value) {
  return {name, AttrKind::text, ir::Attr(std::string(value))};
}
AttrDef ints_option(std::string_view name, ir::Ints values) {
  return {name, AttrKind::ints, ir::Attr(std::move(values))};
}

std::vector<AttrDef> picture_options(int64_t classes, int64_t channels, int64_t size) {
  return {integer_option("classes", classes), integer_option("channels", channels),
          integer_option("size", size)};
}
std::vector<ModelInput> picture_input(const ModelOptions& o) {
  return {{"image", DType::f32, {o.integer("channels"), o.integer("size"), o.integer("size")}}};
}

}  // namespace pelton::nn
