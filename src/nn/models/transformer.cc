// SPDX-License-Identifier: Apache-2.0
// GPT-2 and BERT with transformers' names, ViT with timm's.
#include <cmath>

#include "nn/layers.h"
#include "nn/models/models.h"

namespace pelton::nn {

namespace {

const Init kSmall = Init::normal(0.02);

LinearOptions small() {
  return {.weight_init = kSmall, .bias_init = Init::zeros()};
}

std::vector<ModelInput> token_input(const ModelOptions& o) {
  return {{"tokens", DType::i64, {o.integer("length")}}};
}

ValueId columns(Builder& b, ValueId x, int64_t axis, int64_t start, int64_t size) {
  return b.op("slice", {x},
              {{"axes", Ints{axis}}, {"starts", Shape{start}}, {"sizes", Shape{size}}, {"steps", Ints{1}}});
}

// The first `length` rows of a table of positions [P, D], as [1, L, D].
ValueId positions(Net& net, std::string_view name, int64_t table_rows, int64_t length, int64_t width) {
  Builder& b = net.builder();
  if (length > table_rows)
    fail(ErrorCode::bad_shape, cat("length ", length, " is more than the ", table_rows, " positions"),
         net.path(name), "raise option 'positions'");
  auto at = net.scope(name);
  ValueId table = net.parameter("weight", {table_rows, width}, kSmall);
  if (length < table_rows) table = columns(b, table, 0, 0, length);
  return b.reshape(table, {1, length, width});
}

// x[N, L, D] * table[V, D]^T: the embedding table as the head.
ValueId tied_head(Net& net, std::string_view table, ValueId x, int64_t vocabulary, int64_t width) {
  Builder& b = net.builder();
  const Shape s = b.shape(x);
  b.set_name(net.path("head"));
  ValueId w = net.parameter(table, {vocabulary, width}, kSmall);
  ValueId y = b.op("matmul", {b.reshape(x, {s[0] * s[1], width}), w}, {{"transpose_b", true}});
  return b.reshape(y, {s[0], s[1], vocabulary});
}

ValueId build_gpt2(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  Builder& b = net.builder();
  int64_t width = o.integer("width"), layers = o.integer("layers"), vocabulary = o.integer("vocabulary");
  double ratio = o.real("dropout");
  auto conv1d = [&](std::string_view name, ValueId x, int64_t out, double deviation) {
    return linear(net, name, x, out,
                  {.weight_init = Init::normal(deviation), .bias_init = Init::zeros(), .transposed = true});
  };
  double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(layers));
  ValueId x;
  {
    auto at = net.scope("transformer");
    ValueId tokens = embedding(net, "wte", in[0], vocabulary, width, kSmall);
    x = b.add(tokens, positions(net, "wpe", o.integer("positions"), o.integer("length"), width));
    x = dropout(net, x, ratio);
    for (int64_t i = 0; i < layers; ++i) {
      auto layer = net.scope(cat("h.", i));
      ValueId all = conv1d("attn.c_attn", layer_norm(net, "ln_1", x), 3 * width, 0.02);
      ValueId y = attend(net, columns(b, all, 2, 0, width), columns(b, all, 2, width, width),
                         columns(b, all, 2, 2 * width, width),
                         {.heads = o.integer("heads"), .causal = true, .dropout = ratio});
      x = b.add(x, dropout(net, conv1d("attn.c_proj", y, width, residual), ratio));
      y = conv1d("mlp.c_fc", layer_norm(net, "ln_2", x), 4 * width, 0.02);
      y = conv1d("mlp.c_proj", activation(net, y, "gelu_tanh"), width, residual);
      x = b.add(x, dropout(net, y, ratio));
    }
    x = layer_norm(net, "ln_f", x);
  }
  return tied_head(net, "transformer.wte.weight", x, vocabulary, width);
}

std::vector<ModelInput> bert_inputs(const ModelOptions& o) {
  Dims line{o.integer("length")};
  return {{"tokens", DType::i64, line}, {"mask", DType::f32, line}};
}

// Encoder with post-norm layers. Token types are all 0. Head "mlm": the masked-LM transform with the tied
// table; "classify": pooler and classifier.
ValueId build_bert(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  Builder& b = net.builder();
  int64_t width = o.integer("width"), length = o.integer("length"), vocabulary = o.integer("vocabulary");
  double ratio = o.real("dropout"), eps = 1e-12;
  const std::string& head = o.text("head");
  if (head != "mlm" && head != "classify")
    fail(ErrorCode::usage, cat("option 'head' is \"", head, "\", not \"mlm\" or \"classify\""),
         "model 'bert'");
  ValueId x;
  {
    auto at = net.scope("bert");
    {
      auto inner = net.scope("embeddings");
      x = embedding(net, "word_embeddings", in[0], vocabulary, width, kSmall);
      x = b.add(x, positions(net, "token_type_embeddings", 2, 1, width));
      x = b.add(x, positions(net, "position_embeddings", o.integer("positions"), length, width));
      x = dropout(net, layer_norm(net, "LayerNorm", x, eps), ratio);
    }
    // 0 where a key counts, very negative where it is padding.
    const Shape s = b.shape(in[1]);
    ValueId hidden = b.sub(in[1], b.like(in[1], 1));
    ValueId mask = b.reshape(b.mul(hidden, b.like(hidden, 1e9)), {s[0], 1, 1, length});
    for (int64_t i = 0; i < o.integer("layers"); ++i) {
      auto layer = net.scope(cat("encoder.layer.", i));
      ValueId q = linear(net, "attention.self.query", x, width, small());
      ValueId k = linear(net, "attention.self.key", x, width, small());
      ValueId v = linear(net, "attention.self.value", x, width, small());
      ValueId y = attend(net, q, k, v, {.heads = o.integer("heads"), .dropout = ratio, .mask = mask});
      y = dropout(net, linear(net, "attention.output.dense", y, width, small()), ratio);
      x = layer_norm(net, "attention.output.LayerNorm", b.add(x, y), eps);
      y = activation(net, linear(net, "intermediate.dense", x, o.integer("inner"), small()), "gelu");
      y = dropout(net, linear(net, "output.dense", y, width, small()), ratio);
      x = layer_norm(net, "output.LayerNorm", b.add(x, y), eps);
    }
    if (head == "classify") {
      ValueId first = b.reshape(columns(b, x, 1, 0, 1), {b.shape(x)[0], width});
      x = activation(net, linear(net, "pooler.dense", first, width, small()), "tanh");
    }
  }
  if (head == "classify")
    return linear(net, "classifier", dropout(net, x, ratio), o.integer("classes"), small());
  {
    auto at = net.scope("cls.predictions.transform");
    x = activation(net, linear(net, "dense", x, width, small()), "gelu");
    x = layer_norm(net, "LayerNorm", x, eps);
  }
  ValueId y = tied_head(net, "bert.embeddings.word_embeddings.weight", x, vocabulary, width);
  return b.add(y, net.parameter("cls.predictions.bias", {vocabulary}, Init::zeros()));
}

ValueId build_vit(Net& net, const ModelOptions& o, const std::vector<ValueId>& in) {
  Builder& b = net.builder();
  int64_t width = o.integer("width"), patch = o.integer("patch"), size = o.integer("size");
  if (patch < 1 || size % patch)
    fail(ErrorCode::bad_shape, cat("patches of ", patch, " do not divide pictures of ", size), "model 'vit'");
  int64_t count = (size / patch) * (size / patch);
  Init weight = Init::truncated_normal(0.02);
  LinearOptions dense{.weight_init = weight, .bias_init = Init::zeros()};
  ValueId x = conv(net, "patch_embed.proj", in[0], width, {.kernel = {patch}, .stride = {patch}});
  Dim n = b.shape(x)[0];
  x = b.transpose(b.reshape(x, {n, width, count}), {0, 2, 1});
  ValueId first =
      b.broadcast_to(net.parameter("cls_token", {1, 1, width}, Init::normal(1e-6)), {n, 1, width});
  x = b.op("concat", {first, x}, {{"axis", int64_t{1}}});
  x = b.add(x, net.parameter("pos_embed", {1, count + 1, width}, weight));
  for (int64_t i = 0; i < o.integer("layers"); ++i) {
    auto layer = net.scope(cat("blocks.", i));
    ValueId all = linear(net, "attn.qkv", layer_norm(net, "norm1", x, 1e-6), 3 * width, dense);
    ValueId y = attend(net, columns(b, all, 2, 0, width), columns(b, all, 2, width, width),
                       columns(b, all, 2, 2 * width, width), {.heads = o.integer("heads")});
    x = b.add(x, linear(net, "attn.proj", y, width, dense));
    y = activation(net, linear(net, "mlp.fc1", layer_norm(net, "norm2", x, 1e-6), 4 * width, dense), "gelu");
    x = b.add(x, linear(net, "mlp.fc2", dropout(net, y, o.real("dropout")), width, dense));
  }
  x = layer_norm(net, "norm", x, 1e-6);
  ValueId token = b.reshape(columns(b, x, 1, 0, 1), {n, width});
  return linear(net, "head", token, o.integer("classes"),
                {.weight_init = Init::zeros(), .bias_init = Init::zeros()});
}

}  // namespace

ModelDef gpt2_model() {
  return {"gpt2",
          "decoder of tokens (GPT-2); the defaults are the 124M configuration",
          {integer_option("vocabulary", 50257), integer_option("length", 1024),
           integer_option("positions", 1024), integer_option("width", 768), integer_option("layers", 12),
           integer_option("heads", 12), real_option("dropout", 0.1)},
          token_input,
          build_gpt2,
          "logits",
          -1};
}

ModelDef bert_model() {
  return {"bert",
          "encoder of tokens (BERT); the defaults are the base configuration. head: mlm or classify",
          {integer_option("vocabulary", 30522), integer_option("length", 128),
           integer_option("positions", 512), integer_option("width", 768), integer_option("inner", 3072),
           integer_option("layers", 12), integer_option("heads", 12), text_option("head", "mlm"),
           integer_option("classes", 2), real_option("dropout", 0.1)},
          bert_inputs,
          build_bert,
          "logits",
          -1};
}

ModelDef vit_model() {
  std::vector<ir::AttrDef> options = picture_options(1000, 3, 224);
  for (const ir::AttrDef& d :
       {integer_option("patch", 16), integer_option("width", 768), integer_option("layers", 12),
        integer_option("heads", 12), real_option("dropout", 0)})
    options.push_back(d);
  return {"vit", "vision transformer; the defaults are ViT-B/16", options, picture_input, build_vit};
}

}  // namespace pelton::nn
