// SPDX-License-Identifier: Apache-2.0
#include "train/evaluate.h"

#include <cmath>
#include <deque>

#include "base/interrupt.h"
#include "ir/op.h"

namespace pelton::train {

namespace {

constexpr int64_t kMostConfusionClasses = 1024;

}  // namespace

Confusion::Confusion(int64_t classes) : classes_(classes), counts_(static_cast<size_t>(classes * classes)) {}

void Confusion::add(const Tensor& labels, const Tensor& predictions, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) {
    int64_t label = labels.get_int(i), guess = predictions.get_int(i);
    if (label >= 0 && label < classes_ && guess >= 0 && guess < classes_)
      ++counts_[static_cast<size_t>(label * classes_ + guess)];
  }
}

double Confusion::macro_f1() const {
  double sum = 0, present = 0;
  for (int64_t c = 0; c < classes_; ++c) {
    int64_t hit = counts_[static_cast<size_t>(c * classes_ + c)], labelled = 0, guessed = 0;
    for (int64_t k = 0; k < classes_; ++k) {
      labelled += counts_[static_cast<size_t>(c * classes_ + k)];
      guessed += counts_[static_cast<size_t>(k * classes_ + c)];
    }
    if (labelled + guessed == 0) continue;
    present += 1;
    sum += 2.0 * static_cast<double>(hit) / static_cast<double>(labelled + guessed);
  }
  return present > 0 ? sum / present : 0;
}

Values evaluate(Program& program, Loader& loader, int64_t classes, bool tokens, int64_t update) {
  double loss = 0, count = 0, correct = 0, top5 = 0;
  bool f1 = classes > 1 && classes <= kMostConfusionClasses && !tokens;
  Confusion confusion(f1 ? classes : 1);
  std::deque<std::vector<Tensor>> on_way;
  auto take = [&] {
    std::map<std::string, Tensor> out = program.finish();
    const std::vector<Tensor> in = std::move(on_way.front());
    on_way.pop_front();
    if (!std::isfinite(out.at("loss_sum").get_double(0))) {
      while (program.running() > 0) program.finish();
      const std::string node = program.first_not_finite(in, {});
      fail(ErrorCode::numeric, cat("the loss of the evaluation after update ", update, " is not finite"),
           node.empty() ? "no node before it" : cat("first not finite: ", node),
           "lower the learning rate, or check the data of the evaluation for NaN; the last checkpoint is "
           "unchanged");
    }
    loss += out.at("loss_sum").get_double(0);
    count += out.at("count").get_double(0);
    if (!classes) return;
    correct += out.at("correct").get_double(0);
    top5 += out.at("top5").get_double(0);
    if (f1) confusion.add(out.at("labels"), out.at("predictions"), out.at("labels").count());
  };
  TrainBatch b;
  while (loader.next(b)) {
    throw_if_interrupted();
    std::vector<Tensor> in = b.inputs;
    in.push_back(b.target);
    in.push_back(Tensor::scalar<int64_t>(b.valid));
    program.start(in, {});
    on_way.push_back(std::move(in));
    if (program.running() == program.most_running()) take();
  }
  while (program.running() > 0) take();
  double n = std::max(count, 1.0);
  Values v = {{"loss", loss / n}};
  if (!classes) return v;
  v.emplace_back("accuracy", correct / n);
  if (classes > 5) v.emplace_back("top5", top5 / n);
  if (f1) v.emplace_back("f1", confusion.macro_f1());
  if (tokens) v.emplace_back("perplexity", std::exp(loss / n));
  return v;
}

double step_flops(const ir::Graph& g) {
  double sum = 0;
  for (ir::NodeId id : g.order()) {
    const ir::Node& n = g[id];
    if (n.has_attr("body")) {
      const ir::Graph& body = n.get_graph("body");
      sum += step_flops(body);
      continue;
    }
    if (!n.op->flops) continue;
    std::vector<Dims> in, out;
    bool known = true;
    auto collect = [&](const std::vector<ir::ValueId>& values, std::vector<Dims>& into) {
      for (ir::ValueId v : values) {
        std::optional<Dims> dims = v && g.type(v).is_tensor() ? as_dims(g.type(v).shape) : Dims{};
        known &= dims.has_value();
        into.push_back(dims.value_or(Dims{}));
      }
    };
    collect(n.inputs, in);
    collect(n.outputs, out);
    if (known) sum += n.op->flops(g, n, in, out);
  }
  return sum;
}

}  // namespace pelton::train
