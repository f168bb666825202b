// SPDX-License-Identifier: Apache-2.0
// Small models: multi-layer perceptron, small convolutional network, recurrent classifier, autoencoder.
#include "nn/layers.h"
#include "nn/models/models.h"

namespace pelton::nn {

namespace {

std::vector<ModelInput> features_input(const ModelOptions& o) {
  return {{"features", DType::f32, {o.integer("features")}}};
}

// 0.weight, 0.bias, 2.weight ...: a torch.nn.Sequential of linear layers and activations.
ValueId build_mlp(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  ValueId x = flatten(net, in[0]);
  int64_t step = 0;
  for (int64_t width : o.ints("hidden")) {
    x = activation(net, linear(net, cat(step), x, width), o.text("activation"));
    x = dropout(net, x, o.real("dropout"));
    step += o.real("dropout") > 0 ? 3 : 2;
  }
  return linear(net, cat(step), x, o.integer("classes"));
}

// Blocks of convolution, batch norm, ReLU and a halving pool, then a linear head:
// features.B.{conv,bn}, head.fc1, head.fc2.
ValueId build_small_cnn(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  ValueId x = in[0];
  int64_t size = o.integer("size"), block = 0;
  for (int64_t width : o.ints("widths")) {
    auto at = net.scope(cat("features.", block++));
    x = conv(net, "conv", x, width, {.kernel = {3}, .padding = {1}, .bias = !o.flag("batch_norm")});
    if (o.flag("batch_norm")) x = batch_norm(net, "bn", x);
    x = activation(net, x, "relu");
    if (size >= 2) x = max_pool(net, x, {.kernel = {2}});
    size /= size >= 2 ? 2 : 1;
  }
  auto at = net.scope("head");
  x = activation(net, linear(net, "fc1", flatten(net, x), o.integer("hidden")), "relu");
  x = dropout(net, x, o.real("dropout"));
  return linear(net, "fc2", x, o.integer("classes"));
}

std::vector<ModelInput> series_input(const ModelOptions& o) {
  return {{"series", DType::f32, {o.integer("length"), o.integer("features")}}};
}

// The last position of an LSTM or GRU, then a linear head: rnn, head.
ValueId build_recurrent(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  const std::string& cell = o.text("cell");
  if (cell != "lstm" && cell != "gru")
    fail(ErrorCode::usage, cat("option 'cell' is \"", cell, "\", not \"lstm\" or \"gru\""),
         "model 'recurrent'");
  ValueId h = cell == "lstm" ? lstm(net, "rnn", in[0], o.integer("hidden"))
                             : gru(net, "rnn", in[0], o.integer("hidden"));
  Builder& b = net.builder();
  ValueId last = b.op("slice", {h},
                      {{"axes", Ints{1}},
                       {"starts", Shape{o.integer("length") - 1}},
                       {"sizes", Shape{1}},
                       {"steps", Ints{1}}});
  last = b.reshape(last, {b.shape(h)[0], o.integer("hidden")});
  return linear(net, "head", last, o.integer("classes"));
}

// Linear layers down to the code and back: encoder.0, encoder.2 ..., decoder.0 ...
ValueId build_autoencoder(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  const Ints& hidden = o.ints("hidden");
  auto stack = [&](const char* part, ValueId x, const Ints& widths) {
    auto at = net.scope(part);
    for (size_t i = 0; i < widths.size(); ++i) {
      x = linear(net, cat(2 * i), x, widths[i]);
      if (i + 1 < widths.size()) x = activation(net, x, "relu");
    }
    return x;
  };
  Ints down = hidden, up(hidden.rbegin(), hidden.rend());
  down.push_back(o.integer("code"));
  up.push_back(o.integer("features"));
  return stack("decoder", stack("encoder", in[0], down), up);
}

}  // namespace

ModelDef mlp_model() {
  return {"mlp",
          "linear layers with activations between them",
          {integer_option("features", 784), integer_option("classes", 10), ints_option("hidden", {256, 256}),
           text_option("activation", "relu"), real_option("dropout", 0)},
          features_input,
          build_mlp};
}

ModelDef small_cnn_model() {
  std::vector<ir::AttrDef> options = picture_options(10, 1, 28);
  options.push_back(ints_option("widths", {32, 64}));
  options.push_back(integer_option("hidden", 128));
  options.push_back(flag_option("batch_norm", true));
  options.push_back(real_option("dropout", 0));
  return {"small_cnn", "convolution blocks with pooling and a two-layer head", options, picture_input,
          build_small_cnn};
}

ModelDef recurrent_model() {
  return {"recurrent",
          "an LSTM or GRU over a series of fixed length, classified at its end",
          {integer_option("length", 16), integer_option("features", 8), integer_option("hidden", 64),
           integer_option("classes", 2), text_option("cell", "lstm")},
          series_input,
          build_recurrent};
}

ModelDef autoencoder_model() {
  return {"autoencoder",
          "linear layers down to a code and back; trained with loss mse",
          {integer_option("features", 784), ints_option("hidden", {128}), integer_option("code", 16)},
          features_input,
          build_autoencoder,
          "reconstruction"};
}

}  // namespace pelton::nn
