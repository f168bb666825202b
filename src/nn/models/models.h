// SPDX-License-Identifier: Apache-2.0
// The list of models, one function a file.
#pragma once

#include "nn/model.h"

namespace pelton::nn {

ModelDef mlp_model();
ModelDef small_cnn_model();
ModelDef resnet_model(std::string_view name);  // resnet18, resnet34, resnet50, resnet152
ModelDef mobilenet_v2_model();
ModelDef efficientnet_b0_model();
ModelDef inception_v3_model();
ModelDef vit_model();
ModelDef bert_model();
ModelDef gpt2_model();
ModelDef unet_model();
ModelDef autoencoder_model();
ModelDef recurrent_model();

std::vector<ModelDef> all_models();

// --- options that models share
ir::AttrDef integer_option(std::string_view name, int64_t value);
ir::AttrDef real_option(std::string_view name, double value);
ir::AttrDef flag_option(std::string_view name, bool value);
ir::AttrDef text_option(std::string_view name, std::string_view value);
ir::AttrDef ints_option(std::string_view name, ir::Ints values);
// classes, channels and size (height and width) of picture models, and their one input.
std::vector<ir::AttrDef> picture_options(int64_t classes, int64_t channels, int64_t size);
std::vector<ModelInput> picture_input(const ModelOptions& o);

}  // namespace pelton::nn
