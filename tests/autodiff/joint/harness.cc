// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "autodiff/autodiff.h"
#include "autodiff/joint/nets.h"
#include "base/philox.h"

namespace pelton::test {

using namespace ir;

namespace {

class Net {
 public:
  explicit Net(const char* name) : graph(name), b(graph) {}

  Tensor draw(Dims dims, double scale) {
    Tensor t = Tensor::zeros(DType::f32, std::move(dims));
    for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, scale * stream_.normal(next_++));
    return t;
  }
  ValueId slot(std::string name, Tensor initial, SlotKind kind = SlotKind::parameter) {
    Slot s;
    s.name = std::move(name);
    s.kind = kind;
    s.type = Type::tensor(initial.dtype(), to_shape(initial.dims()));
    s.initial = std::move(initial);
    ValueId v = graph.add_slot(std::move(s));
    if (kind == SlotKind::parameter) parameters_.push_back(v);
    return v;
  }
  ValueId weight(std::string name, Dims dims, double scale) {
    return slot(std::move(name), draw(std::move(dims), scale));
  }
  ValueId filled(std::string name, int64_t n, double value, SlotKind kind = SlotKind::parameter) {
    return slot(std::move(name), Tensor::full(DType::f32, {n}, value), kind);
  }
  ValueId input(std::string name, Tensor value) {
    inputs_.push_back(value);
    return graph.add_input(Type::tensor(value.dtype(), to_shape(value.dims())), std::move(name));
  }
  ValueId labels(std::string name, Dims dims, int64_t limit) {
    Tensor t = Tensor::zeros(DType::i64, std::move(dims));
    for (int64_t i = 0; i < t.count(); ++i)
      t.set_int(i, static_cast<int64_t>(stream_.bits(next_++) % static_cast<uint64_t>(limit)));
    return input(std::move(name), t);
  }
  void next(ValueId old, ValueId value) {
    for (Slot& s : graph.slots)
      if (s.old_value == old) s.next = value;
  }

  TrainingStep finish(ValueId loss) {
    TrainingStep out;
    out.forward_nodes = graph.node_count();
    graph.add_output(loss, "loss");
    std::vector<ValueId> grads = autodiff::gradient(graph, loss, parameters_);
    b.set_name("update");
    for (size_t i = 0; i < grads.size(); ++i)
      next(parameters_[i], b.sub(parameters_[i], b.mul(grads[i], b.like(grads[i], 0.05))));
    out.graph = std::move(graph);
    out.inputs = std::move(inputs_);
    return out;
  }

  Graph graph;
  Builder b;

 private:
  RandomStream stream_{3, 1, 4};
  uint64_t next_ = 0;
  std::vector<ValueId> parameters_;
  std::vector<Tensor> inputs_;
};

ValueId mean_loss(Net& n, ValueId logits, ValueId labels) {
  n.b.set_name("loss");
  return n.b.op("cross_entropy", {logits, labels});
}

ValueId conv(Net& n, const std::string& name, ValueId x, int64_t in, int64_t out, int64_t kernel,
             int64_t stride) {
  n.b.set_name(name);
  int64_t pad = kernel / 2;
  ValueId w = n.weight(name + "/w", {out, in, kernel, kernel},
                       1 / std::sqrt(static_cast<double>(in * kernel * kernel)));
  return n.b.op("conv", {x, w},
                {{"strides", Ints{stride, stride}}, {"low", Shape{pad, pad}}, {"high", Shape{pad, pad}}});
}
ValueId norm(Net& n, const std::string& name, ValueId x, int64_t channels) {
  n.b.set_name(name);
  ValueId mean = n.filled(name + "/mean", channels, 0, SlotKind::statistic),
          var = n.filled(name + "/var", channels, 1, SlotKind::statistic);
  std::vector<ValueId> all = n.b.ops(
      "batch_norm_train",
      {x, n.filled(name + "/scale", channels, 1), n.filled(name + "/bias", channels, 0), mean, var}, {}, 3);
  n.next(mean, all[1]);
  n.next(var, all[2]);
  return all[0];
}

ValueId linear(Net& n, const std::string& name, ValueId x, int64_t in, int64_t out) {
  n.b.set_name(name);
  ValueId w = n.weight(name + "/w", {in, out}, 1 / std::sqrt(static_cast<double>(in)));
  return n.b.add(n.b.matmul(x, w), n.filled(name + "/b", out, 0));
}
ValueId layer_norm(Net& n, const std::string& name, ValueId x, int64_t width) {
  n.b.set_name(name);
  return n.b.op("layer_norm", {x, n.filled(name + "/scale", width, 1), n.filled(name + "/bias", width, 0)});
}

}  // namespace

TrainingStep mlp_step() {
  Net n("mlp");
  ValueId x = n.input("x", n.draw({32, 40}, 1)), y = n.labels("y", {32}, 10);
  x = n.b.op("relu", {linear(n, "fc1", x, 40, 64)});
  x = n.b.op("gelu", {linear(n, "fc2", x, 64, 64)});
  return n.finish(mean_loss(n, linear(n, "fc3", x, 64, 10), y));
}

TrainingStep chain_step() {
  Net n("chain");
  ValueId x = n.input("x", n.draw({512, 32}, 1)), y = n.labels("y", {512}, 10);
  for (int i = 0; i < 10; ++i) {
    x = linear(n, cat("fc", i), x, 32, 32);
    x = n.b.op("tanh", {n.b.mul(x, n.b.op("sigmoid", {x}))});
  }
  return n.finish(mean_loss(n, linear(n, "head", x, 32, 10), y));
}

TrainingStep cnn_step() {
  Net n("cnn");
  ValueId x = n.input("x", n.draw({4, 3, 24, 24}, 1)), y = n.labels("y", {4}, 10);
  x = n.b.op("relu", {norm(n, "bn1", conv(n, "conv1", x, 3, 16, 3, 1), 16)});
  n.b.set_name("pool");
  x = n.b.op("max_pool", {x},
             {{"kernel", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"low", Shape{1, 1}}, {"high", Shape{1, 1}}});
  ValueId shortcut = norm(n, "bn4", conv(n, "conv4", x, 16, 32, 1, 2), 32);
  ValueId z = n.b.op("relu", {norm(n, "bn2", conv(n, "conv2", x, 16, 32, 3, 2), 32)});
  z = norm(n, "bn3", conv(n, "conv3", z, 32, 32, 3, 1), 32);
  x = n.b.op("relu", {n.b.add(z, shortcut)});
  n.b.set_name("head");
  x = n.b.op("avg_pool", {x}, {{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  x = n.b.reduce("reduce_mean", x, {2, 3}, false);
  x = n.b.op("dropout", {x, n.b.scalar(DType::f32, 0.2)});
  return n.finish(mean_loss(n, linear(n, "fc", x, 32, 10), y));
}

TrainingStep transformer_step() {
  constexpr int64_t batch = 2, length = 16, width = 32, heads = 4, vocabulary = 50;
  Net n("transformer");
  ValueId tokens = n.labels("tokens", {batch, length}, vocabulary),
          y = n.labels("y", {batch * length}, vocabulary);
  n.b.set_name("embed");
  ValueId table = n.weight("embed", {vocabulary, width}, 0.5),
          positions = n.weight("positions", {length, width}, 0.1);
  ValueId x = n.b.add(n.b.op("gather", {table, tokens}, {{"axis", int64_t{0}}}), positions);
  auto split = [&](ValueId v) {
    return n.b.transpose(n.b.reshape(v, {batch, length, heads, width / heads}), {0, 2, 1, 3});
  };
  ValueId h = layer_norm(n, "ln1", x, width);
  ValueId q = linear(n, "q", h, width, width), k = linear(n, "k", h, width, width),
          v = linear(n, "v", h, width, width);
  n.b.set_name("attention");
  ValueId a = n.b.op("attention", {split(q), split(k), split(v)}, {{"causal", true}});
  a = n.b.reshape(n.b.transpose(a, {0, 2, 1, 3}), {batch, length, width});
  x = n.b.add(x, linear(n, "proj", a, width, width));
  h = n.b.op("gelu", {linear(n, "up", layer_norm(n, "ln2", x, width), width, 4 * width)}, {{"tanh", true}});
  x = n.b.add(x, linear(n, "down", h, 4 * width, width));
  x = layer_norm(n, "ln3", x, width);
  n.b.set_name("head");
  ValueId logits =
      n.b.op("matmul", {n.b.reshape(x, {batch * length, width}), table}, {{"transpose_b", true}});
  return n.finish(mean_loss(n, logits, y));
}

}  // namespace pelton::test
