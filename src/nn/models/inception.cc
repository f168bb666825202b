// SPDX-License-Identifier: Apache-2.0
// Inception V3 (Szegedy et al. 2015) without the auxiliary head. Names as in torchvision.
#include "nn/layers.h"
#include "nn/models/models.h"

namespace pelton::nn {

namespace {

struct Unit {
  Ints kernel = {1}, stride = {1}, padding = {0};
};

ValueId unit(Net& net, std::string_view name, ValueId x, int64_t out, const Unit& u = {}) {
  auto at = net.scope(name);
  x = conv(net, "conv", x, out,
           {.kernel = u.kernel,
            .stride = u.stride,
            .padding = u.padding,
            .bias = false,
            .weight_init = Init::truncated_normal(0.1)});
  return activation(net, batch_norm(net, "bn", x, {.eps = 1e-3}), "relu");
}

ValueId join(Net& net, const std::vector<ValueId>& parts) {
  return net.builder().op("concat", parts, {{"axis", int64_t{1}}});
}

ValueId smooth(Net& net, ValueId x) {
  return avg_pool(net, x, {.kernel = {3}, .stride = {1}, .padding = {1}});
}

ValueId shrink(Net& net, ValueId x) {
  return max_pool(net, x, {.kernel = {3}, .stride = {2}});
}

const Unit k3{.kernel = {3}, .padding = {1}}, k5{.kernel = {5}, .padding = {2}},
    k3_halving{.kernel = {3}, .stride = {2}}, row7{.kernel = {1, 7}, .padding = {0, 3}},
    column7{.kernel = {7, 1}, .padding = {3, 0}}, row3{.kernel = {1, 3}, .padding = {0, 1}},
    column3{.kernel = {3, 1}, .padding = {1, 0}};

ValueId block_a(Net& net, std::string_view name, ValueId x, int64_t pooled) {
  auto at = net.scope(name);
  ValueId one = unit(net, "branch1x1", x, 64);
  ValueId five = unit(net, "branch5x5_2", unit(net, "branch5x5_1", x, 48), 64, k5);
  ValueId three = unit(net, "branch3x3dbl_2", unit(net, "branch3x3dbl_1", x, 64), 96, k3);
  three = unit(net, "branch3x3dbl_3", three, 96, k3);
  return join(net, {one, five, three, unit(net, "branch_pool", smooth(net, x), pooled)});
}

ValueId block_b(Net& net, std::string_view name, ValueId x) {
  auto at = net.scope(name);
  ValueId three = unit(net, "branch3x3", x, 384, k3_halving);
  ValueId twice = unit(net, "branch3x3dbl_2", unit(net, "branch3x3dbl_1", x, 64), 96, k3);
  twice = unit(net, "branch3x3dbl_3", twice, 96, k3_halving);
  return join(net, {three, twice, shrink(net, x)});
}

ValueId block_c(Net& net, std::string_view name, ValueId x, int64_t inner) {
  auto at = net.scope(name);
  ValueId one = unit(net, "branch1x1", x, 192);
  ValueId seven = unit(net, "branch7x7_1", x, inner);
  seven = unit(net, "branch7x7_2", seven, inner, row7);
  seven = unit(net, "branch7x7_3", seven, 192, column7);
  ValueId twice = unit(net, "branch7x7dbl_1", x, inner);
  twice = unit(net, "branch7x7dbl_2", twice, inner, column7);
  twice = unit(net, "branch7x7dbl_3", twice, inner, row7);
  twice = unit(net, "branch7x7dbl_4", twice, inner, column7);
  twice = unit(net, "branch7x7dbl_5", twice, 192, row7);
  return join(net, {one, seven, twice, unit(net, "branch_pool", smooth(net, x), 192)});
}

ValueId block_d(Net& net, std::string_view name, ValueId x) {
  auto at = net.scope(name);
  ValueId three = unit(net, "branch3x3_2", unit(net, "branch3x3_1", x, 192), 320, k3_halving);
  ValueId seven = unit(net, "branch7x7x3_1", x, 192);
  seven = unit(net, "branch7x7x3_2", seven, 192, row7);
  seven = unit(net, "branch7x7x3_3", seven, 192, column7);
  seven = unit(net, "branch7x7x3_4", seven, 192, k3_halving);
  return join(net, {three, seven, shrink(net, x)});
}

ValueId block_e(Net& net, std::string_view name, ValueId x) {
  auto at = net.scope(name);
  ValueId one = unit(net, "branch1x1", x, 320);
  ValueId three = unit(net, "branch3x3_1", x, 384);
  three = join(net,
               {unit(net, "branch3x3_2a", three, 384, row3), unit(net, "branch3x3_2b", three, 384, column3)});
  ValueId twice = unit(net, "branch3x3dbl_2", unit(net, "branch3x3dbl_1", x, 448), 384, k3);
  twice = join(net, {unit(net, "branch3x3dbl_3a", twice, 384, row3),
                     unit(net, "branch3x3dbl_3b", twice, 384, column3)});
  return join(net, {one, three, twice, unit(net, "branch_pool", smooth(net, x), 192)});
}

ValueId build_inception(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  if (o.integer("size") < 75)
    fail(ErrorCode::bad_shape, cat("pictures of ", o.integer("size"), " are too small; 75 is the least"),
         "model 'inception_v3'");
  ValueId x = unit(net, "Conv2d_1a_3x3", in[0], 32, k3_halving);
  x = unit(net, "Conv2d_2a_3x3", x, 32, {.kernel = {3}});
  x = shrink(net, unit(net, "Conv2d_2b_3x3", x, 64, k3));
  x = unit(net, "Conv2d_3b_1x1", x, 80);
  x = shrink(net, unit(net, "Conv2d_4a_3x3", x, 192, {.kernel = {3}}));
  x = block_a(net, "Mixed_5b", x, 32);
  x = block_a(net, "Mixed_5c", x, 64);
  x = block_a(net, "Mixed_5d", x, 64);
  x = block_b(net, "Mixed_6a", x);
  x = block_c(net, "Mixed_6b", x, 128);
  x = block_c(net, "Mixed_6c", x, 160);
  x = block_c(net, "Mixed_6d", x, 160);
  x = block_c(net, "Mixed_6e", x, 192);
  x = block_d(net, "Mixed_7a", x);
  x = block_e(net, "Mixed_7b", x);
  x = block_e(net, "Mixed_7c", x);
  x = dropout(net, global_avg_pool(net, x), o.real("dropout"));
  return linear(net, "fc", x, o.integer("classes"), {.weight_init = Init::truncated_normal(0.1)});
}

}  // namespace

ModelDef inception_v3_model() {
  std::vector<ir::AttrDef> options = picture_options(1000, 3, 299);
  options.push_back(real_option("dropout", 0.5));
  return {"inception_v3", "parallel convolutions of several sizes", options, picture_input, build_inception};
}

}  // namespace pelton::nn
