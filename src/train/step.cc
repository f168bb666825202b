// SPDX-License-Identifier: Apache-2.0
#include "train/step.h"

#include <algorithm>
#include <cmath>

#include "autodiff/autodiff.h"
#include "train/step_inputs.h"

namespace pelton::train {

using namespace ir;
using nn::Mode;
using nn::Net;

bool matches(std::string_view pattern, std::string_view name) {
  size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name;
  if (name.substr(0, star) != pattern.substr(0, star)) return false;
  std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at)
    if (matches(rest, name.substr(at))) return true;
  return false;
}

namespace {

const ParameterGroup* group_of(const StepOptions& o, std::string_view name) {
  for (const ParameterGroup& g : o.groups)
    for (const std::string& pattern : g.match)
      if (matches(pattern, name)) return &g;
  return nullptr;
}

ValueId rows(Builder& b, ValueId x, int64_t start, int64_t size) {
  if (b.shape(x)[0] == Dim(size)) return x;
  return b.op("slice", {x},
              {{"axes", Ints{0}}, {"starts", Shape{start}}, {"sizes", Shape{size}}, {"steps", Ints{1}}});
}

// weight * x + (1 - weight) * x reversed over the batch, for float inputs.
ValueId blend_reversed(Builder& b, ValueId x, ValueId weight) {
  if (!is_float(b.dtype(x))) return x;
  ValueId back = b.op("reverse", {x}, {{"axes", Ints{0}}});
  return b.add(back, b.mul(b.sub(x, back), b.cast(weight, b.dtype(x))));
}

class StepBuilder {
 public:
  StepBuilder(const Trainable& model, const StepOptions& o, StepGraph& s)
      : model_(model),
        o_(o),
        s_(s),
        net_(s.graph, {.mode = Mode::train, .seed = o.seed, .draw = o.draw}),
        b_(net_.builder()),
        def_(find_optimizer(o.optimizer)),
        args_(def_.schema, o.optimizer_options, cat("optimizer '", o.optimizer, "'")) {}

  void build() {
    add_inputs();
    count();
    if (o_.scaling.on) add_scale();
    for (size_t m = 0; m < targets_.size(); ++m) {
      size_t first = s_.graph.node_count();
      forward(m);
      size_t forward_end = s_.graph.node_count();
      backward(m);
      passes_.push_back({s_.graph.order()[first], s_.graph.order()[forward_end]});
    }
    sum_up();
    measure_gradients();
    update();
    if (o_.memory_budget_bytes > 0) fit_memory();
  }

 private:
  void add_inputs() {
    given_ = add_model_inputs(s_, model_, o_, o_.batch);
    auto add = [&](Type type, const std::string& name) {
      s_.inputs.push_back(name);
      return s_.graph.add_input(std::move(type), name);
    };
    target_ = add(find_target_type(model_, o_, o_.batch), target_name(o_.loss));
    if (o_.masked) valid_ = add(Type::tensor(DType::i64, {}), "valid");
    if (o_.mix) mix_ = add(Type::tensor(DType::f32, {}), "mix");
  }

  void output(ValueId v, const std::string& name) {
    s_.graph.add_output(v, name);
    s_.outputs.push_back(name);
  }

  ValueId slot(const std::string& name, DType dtype, std::optional<double> initial) {
    Slot s;
    s.name = name;
    s.kind = SlotKind::counter;
    s.type = Type::tensor(dtype, {});
    if (initial) s.initial = from_doubles(dtype, {}, {*initial});
    return s_.graph.add_slot(std::move(s));
  }
  void store(const std::string& name, ValueId next) {
    for (Slot& s : s_.graph.slots)
      if (s.name == name) s.next = next;
  }

  // Rows of the batch that count in a micro-batch.
  void set_valid(size_t m) {
    if (!valid_) return;
    ValueId left =
        b_.sub(valid_, b_.scalar(DType::i64, static_cast<double>(static_cast<int64_t>(m) * size_)));
    net_.set_valid(b_.op("min", {b_.op("max", {left, b_.scalar(DType::i64, 0)}),
                                 b_.scalar(DType::i64, static_cast<double>(size_))}));
  }

  // What counts in all micro-batches is known before the first of them runs: the gradients of each are those
  // of its part of the mean.
  void count() {
    if (o_.accumulate < 1 || o_.batch % o_.accumulate)
      fail(ErrorCode::usage,
           cat("a batch of ", o_.batch, " does not split into ", o_.accumulate, " micro-batches"),
           "step.accumulate", "use a divisor of data.batch");
    size_ = o_.batch / o_.accumulate;
    std::vector<ValueId> counts;
    for (int64_t m = 0; m < o_.accumulate; ++m) {
      targets_.push_back(rows(b_, target_, m * size_, size_));
      set_valid(static_cast<size_t>(m));
      counts.push_back(count_elements(net_, targets_.back(), o_.loss));
    }
    count_ = total(counts);
    // At least 1, so that an empty step gives zeros and not NaN.
    divisor_ = b_.op("max", {count_, b_.like(count_, 1)});
  }

  void add_scale() {
    scale_ = slot("loss_scale", DType::f32, o_.scaling.initial);
    good_ = slot("loss_scale.good", DType::f32, {});
  }

  // Micro-batches share parameters and hand statistics on to one another.
  void forward(size_t m) {
    Given part = given_;
    auto cut = [&](ValueId& v) { v = rows(b_, v, static_cast<int64_t>(m) * size_, size_); };
    std::ranges::for_each(part.raw, cut);
    if (part.indices) cut(part.indices);
    std::vector<ValueId> in = adapted(net_, model_, o_, part);
    set_valid(m);
    if (o_.mix)
      for (ValueId& v : in) v = blend_reversed(b_, v, mix_);
    ValueId y = with_classes(b_, model_.build(net_, in), model_, o_);
    Loss loss = build_loss(net_, y, targets_[m], model_.class_axis(), o_.loss);
    ValueId sum = loss.sum;
    if (o_.mix) {
      ValueId back = b_.op("reverse", {targets_[m]}, {{"axes", Ints{0}}});
      Loss other = build_loss(net_, y, back, model_.class_axis(), o_.loss);
      sum = b_.add(other.sum, b_.mul(b_.sub(loss.sum, other.sum), mix_));
    }
    sums_.push_back(sum);
    if (o_.accuracy && has_classes(o_.loss)) correct_.push_back(count_correct(net_, loss));
    if (m == 0) find_trained();
  }

  void find_trained() {
    for (const Slot& slot : s_.graph.slots) {
      if (slot.kind != SlotKind::parameter) continue;
      const ParameterGroup* g = group_of(o_, slot.name);
      if (g && (g->frozen || o_.epoch < g->from_epoch)) continue;
      s_.trained.push_back(slot.name);
      values_.push_back(slot.old_value);
    }
    if (values_.empty())
      fail(ErrorCode::usage, "every parameter is frozen, nothing is left to train", model_.name(),
           "loosen the [[group]] patterns");
  }

  // The backward pass of a micro-batch follows its forward pass, so that only one of them is in memory.
  void backward(size_t m) {
    ValueId loss = b_.div(sums_[m], divisor_);
    std::vector<ValueId> grads = autodiff::gradient(s_.graph, loss, values_, {.seed = scale_});
    if (grads_.empty())
      grads_ = grads;
    else
      for (size_t i = 0; i < grads.size(); ++i) grads_[i] = b_.add(grads_[i], grads[i]);
  }

  void sum_up() {
    b_.set_name("loss");
    loss_ = b_.div(total(sums_), divisor_);
    output(loss_, "loss");
    output(count_, "count");
    if (!correct_.empty()) output(total(correct_), "correct");
  }

  ValueId total(const std::vector<ValueId>& parts) {
    ValueId sum = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) sum = b_.add(sum, parts[i]);
    return sum;
  }

  // The norm of all gradients, which clipping and the search for overflows need, and the factor that takes
  // them to what the optimizer gets.
  void measure_gradients() {
    if (o_.clip_norm <= 0 && !scale_) return;
    b_.set_name(o_.clip_norm > 0 ? "clip" : "overflow");
    std::vector<ValueId> squares;
    for (ValueId g : grads_) {
      Ints axes;
      for (int64_t a = 0; a < b_.rank(g); ++a) axes.push_back(a);
      squares.push_back(b_.reduce("reduce_sum", b_.op("square", {g}), axes, false));
    }
    norm_ = b_.op("sqrt", {total(squares)});
    if (scale_) {
      factor_ = b_.div(b_.like(scale_, 1), scale_);
      norm_ = b_.mul(norm_, factor_);
      output(scale_, "loss_scale");
    }
    output(norm_, "grad_norm");
    if (o_.clip_norm <= 0) return;
    ValueId limit = b_.div(b_.like(norm_, o_.clip_norm), b_.add(norm_, b_.like(norm_, 1e-6)));
    ValueId clip = b_.op("min", {limit, b_.like(norm_, 1)});
    factor_ = factor_ ? b_.mul(factor_, clip) : clip;
  }

  ValueId is_finite(ValueId v) { return b_.op("lt", {b_.op("abs", {v}), b_.like(v, INFINITY)}); }

  // finite_: whether this step changes parameters.
  void judge() {
    ValueId loss_fine = is_finite(loss_), fine = loss_fine;
    if (norm_) fine = b_.op("and", {fine, is_finite(norm_)});
    finite_ = fine;
    if (scale_) judge_scale(loss_fine, fine);
    if (!o_.ahead) return;
    ValueId failed = slot("failed", DType::boolean, {});
    ValueId fails = b_.op("not", {scale_ ? tolerable_ : fine});
    store("failed", b_.op("or", {failed, fails}));
    finite_ = b_.op("and", {fine, b_.op("not", {failed})});
  }

  void judge_scale(ValueId loss_fine, ValueId fine) {
    const LossScaling& s = o_.scaling;
    auto number = [&](double v) { return b_.scalar(DType::f32, v); };
    ValueId above = b_.op("gt", {scale_, number(s.floor)});
    tolerable_ = b_.op("or", {fine, b_.op("and", {loss_fine, above})});
    ValueId good = b_.add(good_, number(1));
    ValueId full = b_.op("ge", {good, number(static_cast<double>(s.interval))});
    ValueId grown = b_.select(full, b_.op("min", {b_.mul(scale_, number(2)), number(s.ceiling)}), scale_);
    ValueId halved = b_.op("max", {b_.mul(scale_, number(0.5)), number(s.floor)});
    // A step that is an error leaves the scale as well.
    store("loss_scale", b_.select(tolerable_, b_.select(fine, grown, halved), scale_));
    store(
        "loss_scale.good",
        b_.select(tolerable_, b_.select(b_.op("and", {fine, b_.op("not", {full})}), good, number(0)), good_));
  }

  void update() {
    // Of the layers, before anything else is stored.
    std::vector<size_t> statistics;
    for (size_t i = 0; i < s_.graph.slots.size(); ++i)
      if (s_.graph.slots[i].next) statistics.push_back(i);
    ValueId done = slot("updates", DType::i64, {});
    ValueId rate = schedule_rate(b_, o_.schedule, done);
    output(rate, "lr");
    b_.set_name("updates");
    judge();
    ValueId next = b_.add(done, b_.scalar(DType::i64, 1));
    ValueId count = b_.cast(next, DType::f64);
    store("updates", b_.select(finite_, next, done));
    // Statistics are small and chosen as they are. Parameters and their state are kept by factors of zero and
    // one on what the step adds.
    for (size_t i : statistics) {
      b_.set_name(cat(kUpdate, "/", s_.graph.slots[i].name));
      s_.graph.slots[i].next = b_.select(finite_, s_.graph.slots[i].next, s_.graph.slots[i].old_value);
    }
    ValueId zero = b_.scalar(DType::f32, 0), guarded_rate = b_.select(finite_, rate, zero);
    std::vector<Update> updates;
    std::vector<Update*> all;
    updates.reserve(values_.size());
    for (size_t i = 0; i < values_.size(); ++i) {
      const std::string& name = s_.trained[i];
      const ParameterGroup* g = group_of(o_, name);
      b_.set_name(cat(kUpdate, "/", name));
      Update& u = updates.emplace_back(b_, args_, name);
      all.push_back(&u);
      u.value = values_[i];
      ValueId grad = b_.cast(grads_[i], DType::f32);
      u.grad = b_.select(finite_, factor_ ? b_.mul(grad, factor_) : grad, zero);
      u.finite = finite_;
      u.lr = g && g->lr_scale != 1 ? b_.mul(guarded_rate, b_.like(rate, g->lr_scale)) : guarded_rate;
      u.count = count;
      u.weight_decay = g && g->weight_decay ? *g->weight_decay : args_.number("weight_decay");
    }
    b_.set_name(kUpdate);
    if (def_.prepare) def_.prepare(all);
    for (Update& u : updates) {
      b_.set_name(cat(kUpdate, "/", u.name));
      ValueId fresh = def_.update(u);
      for (auto [slot, v] : u.next) s_.graph.slots[slot].next = v;
      s_.graph.slots[net_.slots().at(u.name)].next = fresh;
      if (o_.average > 0) average(u, fresh);
    }
  }

  // State has its old and its new value at once, and each trained parameter a gradient.
  void fit_memory() {
    auto bytes = [](const Type& t) { return physical_bytes(t, *as_dims(t.shape)); };
    int64_t left = o_.memory_budget_bytes;
    for (const Slot& slot : s_.graph.slots) left -= 2 * bytes(slot.type);
    for (ValueId v : values_) left -= bytes(b_.type(v));
    s_.activation_budget_bytes = std::max<int64_t>(left, 0);
    // From the last micro-batch to the first: what is put in does not move those before it.
    for (auto pass = passes_.rbegin(); pass != passes_.rend(); ++pass) {
      auto place = [&](NodeId id) {
        const std::vector<NodeId>& order = s_.graph.order();
        return static_cast<size_t>(std::find(order.begin(), order.end(), id) - order.begin());
      };
      autodiff::Recomputation r = autodiff::recompute(s_.graph, place(pass->second),
                                                      s_.activation_budget_bytes, {}, place(pass->first));
      s_.recomputed.kept_bytes = std::max(s_.recomputed.kept_bytes, r.kept_bytes);
      s_.recomputed.kept_bytes_before = std::max(s_.recomputed.kept_bytes_before, r.kept_bytes_before);
      s_.recomputed.values += r.values;
      s_.recomputed.flops += r.flops;
    }
  }

  void average(const Update& u, ValueId fresh) {
    Slot slot;
    slot.name = cat("average.", u.name);
    slot.kind = SlotKind::statistic;
    slot.type = b_.type(fresh);
    slot.initial = s_.graph.slots[net_.slots().at(u.name)].initial;
    ValueId old = s_.graph.add_slot(slot);
    ValueId kept = b_.mul(old, u.guarded(o_.average, 1)), added = b_.mul(fresh, u.guarded(1 - o_.average, 0));
    s_.graph.slots.back().next = b_.add(kept, added);
  }

  const Trainable& model_;
  const StepOptions& o_;
  StepGraph& s_;
  Net net_;
  Builder& b_;
  const OptimizerDef& def_;
  data::Args args_;
  int64_t size_ = 0;                               // of a micro-batch
  std::vector<std::pair<NodeId, NodeId>> passes_;  // first nodes of forward and backward, by micro-batch
  std::vector<ValueId> targets_, sums_, correct_;  // by micro-batch
  Given given_;
  std::vector<ValueId> values_, grads_;
  ValueId target_, valid_, mix_, loss_, count_, divisor_, norm_, finite_;
  ValueId scale_, good_, tolerable_;  // of loss scaling
  ValueId factor_;                    // of the gradients; none: 1
};

}  // namespace

StepGraph build_train_step(const Trainable& model, const StepOptions& o) {
  StepGraph s{Graph(cat(model.name(), "_train")), {}, {}, {}, {}, 0};
  StepBuilder(model, o, s).build();
  return s;
}

}  // namespace pelton::train
