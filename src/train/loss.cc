// SPDX-License-Identifier: Apache-2.0
#include "train/loss.h"

#include "base/nearest.h"

namespace pelton::train {

using namespace ir;
using nn::Net;

namespace {

size_t axis_of(const Type& output, int64_t class_axis) {
  return static_cast<size_t>(class_axis < 0 ? output.rank() + class_axis : class_axis);
}

ValueId sum_all(Builder& b, ValueId x) {
  Ints axes;
  for (int64_t a = 0; a < b.rank(x); ++a) axes.push_back(a);
  return b.reduce("reduce_sum", x, axes, false);
}

ValueId number(Builder& b, ValueId condition) {
  return b.cast(condition, DType::f32);
}

// [N, S..., C] from classes on any axis, then one row an element.
ValueId rows_of(Builder& b, ValueId x, size_t axis) {
  Ints perm;
  for (int64_t a = 0; a < b.rank(x); ++a)
    if (a != static_cast<int64_t>(axis)) perm.push_back(a);
  perm.push_back(static_cast<int64_t>(axis));
  x = b.transpose(x, perm);
  const Shape shape = b.shape(x);
  Dim count = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) count = count * shape[i];
  return b.reshape(x, {count, shape.back()});
}

// Labels with those of rows that do not count set to `ignore`.
ValueId counted_labels(Net& net, ValueId labels, const LossOptions& o) {
  Builder& b = net.builder();
  ValueId rows = net.valid_rows(labels, b.rank(labels));
  return rows ? b.select(rows, labels, b.scalar(DType::i64, static_cast<double>(o.ignore))) : labels;
}

// The same logits for a cross entropy, less a whole number near the largest of their row. The logarithm of
// the sum, which the gradient is computed from, is then near 0 where a row is certain: near 20 it would be
// known to 2e-6 only, which outweighs what such a row has left to say. Of many classes that costs more than
// it gains.
ValueId near_zero(Builder& b, ValueId logits) {
  constexpr int64_t kMostClasses = 1024;
  const Dim& classes = b.shape(logits)[1];
  if (!classes.is_const() || classes.value() < 1 || classes.value() > kMostClasses) return logits;
  return b.sub(logits, b.op("floor", {b.reduce("reduce_max", logits, {1}, true)}));  // no gradient by it
}

Loss cross_entropy(Net& net, ValueId output, ValueId labels, int64_t class_axis, const LossOptions& o) {
  Builder& b = net.builder();
  ValueId ignore = b.scalar(DType::i64, static_cast<double>(o.ignore));
  Loss loss;
  loss.count = count_elements(net, labels, o);
  labels = counted_labels(net, labels, o);
  loss.logits = b.cast(rows_of(b, output, axis_of(b.type(output), class_axis)), DType::f32);
  loss.labels = b.reshape(labels, {b.shape(loss.logits)[0]});
  if (o.label_smoothing == 0) {
    loss.sum = b.op("cross_entropy", {near_zero(b, loss.logits), loss.labels},
                    {{"reduction", std::string("sum")}, {"ignore", o.ignore}});
    return loss;
  }
  // Part of the target is spread evenly over the classes.
  ValueId log_p = b.op("log_softmax", {loss.logits}, {{"axis", int64_t{1}}});
  ValueId picked =
      b.op("nll_loss", {log_p, loss.labels}, {{"reduction", std::string("sum")}, {"ignore", o.ignore}});
  ValueId even = b.op("neg", {b.reduce("reduce_mean", log_p, {1}, false)});
  ValueId counted = b.op("ne", {loss.labels, ignore});
  ValueId spread = sum_all(b, b.select(counted, even, b.like(even, 0)));
  loss.sum = b.add(b.mul(picked, b.like(picked, 1 - o.label_smoothing)),
                   b.mul(spread, b.like(spread, o.label_smoothing)));
  return loss;
}

// Shares of rows that count; the others are zero.
ValueId counted_shares(Net& net, ValueId shares) {
  Builder& b = net.builder();
  ValueId rows = net.valid_rows(shares, b.rank(shares));
  return rows ? b.select(rows, shares, b.like(shares, 0)) : shares;
}

Loss soft_cross_entropy(Net& net, ValueId output, ValueId shares, const LossOptions& o) {
  Builder& b = net.builder();
  Loss loss;
  loss.count = count_elements(net, shares, o);
  shares = counted_shares(net, shares);
  loss.logits = b.cast(output, DType::f32);
  const ValueId all = b.reduce("reduce_sum", shares, {1}, true);
  ValueId target = shares;
  if (o.label_smoothing != 0) {
    const auto classes = static_cast<double>(b.shape(shares)[1].value());
    target = b.add(b.mul(shares, b.like(shares, 1 - o.label_smoothing)),
                   b.mul(all, b.like(all, o.label_smoothing / classes)));
  }
  const ValueId log_p = b.op("log_softmax", {loss.logits}, {{"axis", int64_t{1}}});
  loss.sum = b.op("neg", {sum_all(b, b.mul(target, log_p))});
  // The class of the largest share is what accuracy counts.
  const ValueId counts = b.op("gt", {b.reshape(all, {b.shape(shares)[0]}), b.like(all, 0)});
  loss.labels = b.select(counts, b.op("arg_max", {shares}, {{"axis", int64_t{1}}}),
                         b.scalar(DType::i64, static_cast<double>(o.ignore)));
  return loss;
}

ValueId pointwise_loss(Builder& b, ValueId y, ValueId t, const std::string& kind) {
  if (kind == "mse") return b.op("square", {b.sub(y, t)});
  if (kind == "l1") return b.op("abs", {b.sub(y, t)});
  // max(y, 0) - y t + log(1 + exp(-|y|)): no overflow on either side
  ValueId tail = b.op("log1p", {b.op("exp", {b.op("neg", {b.op("abs", {y})})})});
  return b.add(b.sub(b.op("relu", {y}), b.mul(y, t)), tail);
}

}  // namespace

bool has_classes(const LossOptions& o) {
  return o.kind == "cross_entropy";
}
std::string target_name(const LossOptions& o) {
  return has_classes(o) ? "label" : "target";
}

Type target_type(const LossOptions& o, const Type& output, int64_t class_axis) {
  if (!has_classes(o)) return Type::tensor(DType::f32, output.shape);
  if (output.rank() < 2)
    fail(ErrorCode::bad_shape, cat("cross_entropy needs [N, classes, ...], the model gives ", output.str()));
  if (o.soft) {
    if (output.rank() != 2)
      fail(ErrorCode::bad_shape,
           cat("shares of classes are for outputs [N, classes], the model gives ", output.str()));
    return Type::tensor(DType::f32, output.shape);
  }
  Shape shape = output.shape;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis_of(output, class_axis)));
  return Type::tensor(DType::i64, shape);
}

ValueId count_elements(Net& net, ValueId target, const LossOptions& o) {
  Builder& b = net.builder();
  b.set_name("loss");
  if (has_classes(o) && o.soft) return sum_all(b, counted_shares(net, target));
  if (has_classes(o)) {
    ValueId ignore = b.scalar(DType::i64, static_cast<double>(o.ignore));
    return sum_all(b, number(b, b.op("ne", {counted_labels(net, target, o), ignore})));
  }
  auto known = [&](Dim size) {
    return b.cast(b.reshape(b.op("contents", {}, {{"dims", Shape{size}}}), {}), DType::f32);
  };
  const Shape shape = b.shape(target);
  if (!net.valid()) return known(element_count(shape));
  Dim row = 1;
  for (size_t i = 1; i < shape.size(); ++i) row = row * shape[i];
  return b.mul(b.cast(net.valid(), DType::f32), known(row));
}

Loss build_loss(Net& net, ValueId output, ValueId target, int64_t class_axis, const LossOptions& o) {
  Builder& b = net.builder();
  b.set_name("loss");
  if (has_classes(o) && o.soft) return soft_cross_entropy(net, output, target, o);
  if (has_classes(o)) return cross_entropy(net, output, target, class_axis, o);
  const std::vector<std::string> kinds = {"cross_entropy", "bce", "mse", "l1"};
  if (o.kind != "bce" && o.kind != "mse" && o.kind != "l1") {
    std::string near = nearest(o.kind, kinds);
    fail(ErrorCode::bad_name, cat("there is no loss '", o.kind, "'"), "",
         near.empty() ? "cross_entropy, bce, mse or l1" : cat("did you mean '", near, "'?"));
  }
  ValueId each = pointwise_loss(b, b.cast(output, DType::f32), target, o.kind);
  Loss loss;
  loss.count = count_elements(net, target, o);
  if (ValueId valid = net.valid_rows(each, b.rank(each))) each = b.select(valid, each, b.like(each, 0));
  loss.sum = sum_all(b, each);
  return loss;
}

ValueId count_correct(Net& net, const Loss& loss) {
  Builder& b = net.builder();
  b.set_name("accuracy");
  ValueId best = b.op("arg_max", {loss.logits}, {{"axis", int64_t{1}}});
  return sum_all(b, number(b, b.op("eq", {best, loss.labels})));
}

ValueId count_top5(Net& net, const Loss& loss) {
  Builder& b = net.builder();
  b.set_name("top5");
  const Shape shape = b.shape(loss.logits);
  ValueId counted = b.op("ge", {loss.labels, b.scalar(DType::i64, 0)});
  ValueId label = b.select(counted, loss.labels, b.scalar(DType::i64, 0));
  ValueId own =
      b.op("gather_elements", {loss.logits, b.reshape(label, {shape[0], 1})}, {{"axis", int64_t{1}}});
  ValueId above = b.reduce("reduce_sum", number(b, b.op("gt", {loss.logits, own})), {1}, false);
  ValueId hit = b.op("and", {counted, b.op("lt", {above, b.scalar(DType::f32, 5)})});
  return sum_all(b, number(b, hit));
}

}  // namespace pelton::train
