// SPDX-License-Identifier: Apache-2.0
// Every composite equals its decomposition on random shapes, sizes 0 and 1 included, and attributes.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "base/philox.h"
#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verify.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

// Draws of one case, a pure function of its number.
class Draw {
 public:
  explicit Draw(uint64_t number) : stream_{7, number, 1} {}
  int64_t below(int64_t n) { return static_cast<int64_t>(stream_.bits(next_++) % static_cast<uint64_t>(n)); }
  bool coin() { return below(2) != 0; }
  // 0 in one of eight, 1 in two of eight, else up to 5.
  int64_t size(int64_t least = 0) {
    int64_t d = below(8);
    return std::max(least, d == 0 ? 0 : d < 3 ? 1 : 1 + below(5));
  }
  Dims dims(int64_t rank, int64_t least = 0) {
    Dims out;
    for (int64_t i = 0; i < rank; ++i) out.push_back(size(least));
    return out;
  }
  double real(double low, double high) {
    return low + (high - low) * static_cast<double>(stream_.uniform(next_++));
  }
  Tensor normal(DType t, const Dims& dims) {
    Tensor x = Tensor::zeros(t, dims);
    for (int64_t i = 0; i < x.count(); ++i) x.set_double(i, stream_.normal(next_++));
    return x;
  }
  Tensor uniform(DType t, const Dims& dims, double low, double high) {
    Tensor x = Tensor::zeros(t, dims);
    for (int64_t i = 0; i < x.count(); ++i) x.set_double(i, real(low, high));
    return x;
  }
  Tensor ints(DType t, const Dims& dims, int64_t limit) {
    Tensor x = Tensor::zeros(t, dims);
    for (int64_t i = 0; i < x.count(); ++i) x.set_int(i, below(limit));
    return x;
  }
  template <class T>
  const T& one_of(const std::vector<T>& items) {
    return items[static_cast<size_t>(below(static_cast<int64_t>(items.size())))];
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

struct Instance {
  std::vector<Tensor> inputs;  // undefined: absent
  Attrs attrs;
  size_t outputs = 1;
};

Tensor maybe(Draw& d, Tensor t) {
  return d.coin() ? t : Tensor();
}

Instance activation(Draw& d, DType t) {
  return {{d.normal(t, d.dims(d.below(4)))}, {}};
}
Instance with_axis(Draw& d, DType t) {
  int64_t rank = 1 + d.below(3);
  return {{d.normal(t, d.dims(rank))}, {{"axis", d.below(2 * rank) - rank}}};
}
Instance norm_tail(Draw& d, DType t, size_t operands, size_t outputs) {
  Dims dims = d.dims(1 + d.below(3), 1);
  int64_t rank = static_cast<int64_t>(dims.size()), axis = d.below(rank);
  Dims tail(dims.begin() + axis, dims.end());
  Instance i{{d.normal(t, dims)}, {{"axis", axis}, {"eps", 1e-3}}, outputs};
  for (size_t k = 0; k < operands; ++k) i.inputs.push_back(maybe(d, d.normal(t, tail)));
  return i;
}
Instance channels(Draw& d, DType t, size_t parameters, size_t outputs, int64_t least) {
  Dims dims = d.dims(2 + d.below(3), least);
  Instance i{{d.normal(t, dims)}, {{"eps", 1e-3}}, outputs};
  for (size_t k = 0; k < parameters; ++k) i.inputs.push_back(d.uniform(t, {dims[1]}, 0.2, 2));
  return i;
}
Instance group_norm(Draw& d, DType t) {
  int64_t groups = 1 + d.below(3), channels_each = 1 + d.below(3);
  Dims dims{d.size(), groups * channels_each};
  for (int64_t k = d.below(3); k > 0; --k) dims.push_back(d.size(1));
  return {{d.normal(t, dims), d.normal(t, {dims[1]}), d.normal(t, {dims[1]})}, {{"groups", groups}}, 3};
}
Instance attention(Draw& d, DType t) {
  int64_t groups = 1 + d.below(2), heads = groups * (1 + d.below(3)), batch = d.size(), queries = d.size(),
          keys = d.size();
  int64_t depth = 1 + d.below(4), width = d.size();
  Instance i{{d.normal(t, {batch, heads, queries, depth}), d.normal(t, {batch, groups, keys, depth}),
              d.normal(t, {batch, groups, keys, width})},
             {},
             2};
  if (d.coin())
    i.inputs.push_back(d.coin() ? d.ints(DType::boolean, {queries, keys}, 2) : d.normal(t, {heads, 1, keys}));
  if (d.coin()) i.attrs["causal"] = true;
  if (d.coin()) i.attrs["softcap"] = 2.0;
  if (d.coin()) i.attrs["scale"] = 0.7;
  return i;
}
Instance rotary(Draw& d, DType t) {
  int64_t half = 1 + d.below(3), extra = d.below(3), length = d.size(), batch = d.size(),
          heads = 1 + d.below(3);
  bool flat = d.coin(), table = d.coin();
  int64_t size = 2 * half + extra;
  Instance i{{d.normal(t, flat ? Dims{batch, length, heads * size} : Dims{batch, heads, length, size})},
             {{"interleaved", d.coin()}, {"dims", 2 * half}}};
  if (flat) i.attrs["heads"] = heads;
  Dims cache = table ? Dims{7, half} : Dims{batch, length, half};
  i.inputs.push_back(d.normal(t, cache));
  i.inputs.push_back(d.normal(t, cache));
  if (table) i.inputs.push_back(d.ints(DType::i64, {batch, length}, 7));
  return i;
}
Instance recurrent(Draw& d, DType t, int64_t gates, size_t outputs) {
  int64_t steps = d.size(), batch = d.size(), input = 1 + d.below(3), hidden = 1 + d.below(3);
  std::string direction = d.one_of(Strings{"forward", "reverse", "bidirectional"});
  int64_t directions = direction == "bidirectional" ? 2 : 1;
  Instance i{
      {d.normal(t, {steps, batch, input}), d.normal(t, {directions, gates * hidden, input}),
       d.normal(t, {directions, gates * hidden, hidden}),
       maybe(d, d.normal(t, {directions, 2 * gates * hidden})),
       maybe(d, d.ints(DType::i32, {batch}, steps + 1)), maybe(d, d.normal(t, {directions, batch, hidden}))},
      {{"hidden", hidden}, {"direction", direction}},
      outputs};
  if (gates == 4) {
    i.inputs.push_back(maybe(d, d.normal(t, {directions, batch, hidden})));
    i.inputs.push_back(maybe(d, d.normal(t, {directions, 3 * hidden})));
    if (d.coin()) i.attrs["input_forget"] = true;
  }
  if (gates == 3 && d.coin()) i.attrs["linear_before_reset"] = true;
  if (d.coin()) i.attrs["clip"] = 0.8;
  return i;
}
Instance loss(Draw& d, DType t, size_t outputs) {
  Dims dims = d.dims(2 + d.below(2), 1);
  Dims places = dims;
  places.erase(places.begin() + 1);
  Instance i{
      {d.normal(t, dims), d.ints(DType::i64, places, dims[1]), maybe(d, d.uniform(t, {dims[1]}, 0.2, 2))},
      {{"reduction", d.one_of(Strings{"none", "sum", "mean"})}},
      outputs};
  if (d.coin()) i.attrs["ignore"] = int64_t{0};
  return i;
}

// g, x, statistics (of f32 or wider), [scale].
Instance tail_backward(Draw& d, DType t, size_t statistics) {
  Instance i = norm_tail(d, t, 0, statistics + 1);
  Dims dims = i.inputs[0].dims(), stats = dims;
  auto axis = static_cast<std::ptrdiff_t>(std::get<int64_t>(i.attrs["axis"]));
  for (auto k = static_cast<size_t>(axis); k < stats.size(); ++k) stats[k] = 1;
  i.attrs.erase("eps");
  i.inputs.push_back(d.normal(t, dims));
  for (size_t k = 0; k < statistics; ++k) i.inputs.push_back(d.uniform(t, stats, 0.2, 2));
  i.inputs.push_back(maybe(d, d.normal(t, Dims(dims.begin() + axis, dims.end()))));
  return i;
}
Instance channels_backward(Draw& d, DType t, bool groups) {
  Instance i = groups ? group_norm(d, t) : channels(d, t, 1, 3, 1);
  Dims dims = i.inputs[0].dims(), stats{dims[1]};
  i.attrs.erase("eps");
  if (groups) stats = {dims[0], std::get<int64_t>(i.attrs["groups"])};
  i.inputs = {d.normal(t, dims), d.normal(t, dims), d.normal(t, {dims[1]}), d.normal(t, stats),
              d.uniform(t, stats, 0.2, 2)};
  return i;
}
Instance loss_backward(Draw& d, DType t) {
  Instance i = loss(d, t, 1);
  Dims places = i.inputs[1].dims();
  bool none = std::get<std::string>(i.attrs["reduction"]) == "none";
  i.inputs = {d.normal(t, none ? places : Dims{}), i.inputs[0], i.inputs[1], d.normal(t, places),
              i.inputs[2]};
  return i;
}
Instance attention_backward(Draw& d, DType t) {
  Instance i = attention(d, t);
  Dims q = i.inputs[0].dims(), y{q[0], q[1], q[2], i.inputs[2].dims()[3]};
  Tensor mask = i.inputs.size() > 3 ? i.inputs[3] : Tensor();
  i.inputs = {d.normal(t, y),
              i.inputs[0],
              i.inputs[1],
              i.inputs[2],
              d.normal(t, y),
              d.uniform(t, {q[0], q[1], q[2]}, 1, 3),
              mask};
  i.outputs = 3;
  return i;
}
Instance pool_backward(Draw& d, DType t) {
  int64_t rows = 3 + d.below(4), columns = 3 + d.below(4), stride = 1 + d.below(2), pad = d.below(2);
  Dims x{d.size(), d.size(1), rows, columns},
      g{x[0], x[1], (rows + pad - 2) / stride + 1, (columns - 3) / stride + 1};
  return {{d.normal(t, g), d.normal(t, x)},
          {{"kernel", Ints{2, 3}}, {"strides", Ints{stride, stride}}, {"low", Shape{pad, 0}}}};
}

Instance avg_pool_backward(Draw& d, DType t) {
  Instance i = pool_backward(d, t);
  i.attrs["dims"] = to_shape(i.inputs[1].dims());
  i.attrs["count_padding"] = d.coin();
  i.inputs.pop_back();
  return i;
}
// g and, for the data's gradient, w, else x.
Instance conv_backward(Draw& d, DType t, bool data) {
  int64_t groups = 1 + d.below(2), spatial = 1 + d.below(2);
  Dims x{1 + d.below(2), groups * (1 + d.below(2))}, w{groups * (1 + d.below(3)), x[1] / groups},
      g{x[0], w[0]};
  Ints strides, dilations, kernel;
  Shape low, high;
  for (int64_t k = 0; k < spatial; ++k) {
    strides.push_back(1 + d.below(3));
    dilations.push_back(1 + d.below(2));
    kernel.push_back(1 + d.below(3));
    low.emplace_back(d.below(2));
    high.emplace_back(d.below(3));
    int64_t extent = (kernel.back() - 1) * dilations.back() + 1;
    x.push_back(extent + d.below(5));
    w.push_back(kernel.back());
    g.push_back((x.back() + low.back().value() + high.back().value() - extent) / strides.back() + 1);
  }
  Instance i{
      {d.normal(t, g), d.normal(t, data ? w : x)},
      {{"strides", strides}, {"dilations", dilations}, {"low", low}, {"high", high}, {"groups", groups}}};
  if (data)
    i.attrs["dims"] = to_shape(x);
  else
    i.attrs["kernel"] = kernel;
  return i;
}

// Pictures of any size to any other, whole or a window; the default mode alone decomposes.
Instance picture(Draw& d) {
  const int64_t channels = d.below(2) ? 3 : 1, h = 1 + d.below(12), w = 1 + d.below(12);
  const int64_t out_h = 1 + d.below(14), out_w = 1 + d.below(14);
  Dims dims{h, w, channels};
  Shape out{out_h, out_w, channels};
  if (const int64_t n = d.below(3)) dims.insert(dims.begin(), n), out.insert(out.begin(), Dim(n));
  std::vector<int64_t> levels(static_cast<size_t>(element_count(dims)));
  for (int64_t& v : levels) v = d.below(256);
  const char* filters[] = {"nearest", "box", "linear", "hamming", "cubic", "lanczos"};
  Instance i{{from_ints(DType::u8, dims, levels)},
             {{"dims", out}, {"filter", std::string(filters[d.below(6)])}, {"antialias", d.below(3) > 0}}};
  if (d.below(3) == 0) {
    const int64_t y = d.below(4), x = d.below(4);
    i.attrs["size"] = Shape{out_h + y + d.below(3), out_w + x + d.below(3)};
    i.attrs["origin"] = Shape{y, x};
  }
  return i;
}

// An instance of a composite; none if this file does not know the op.
// Up to three operands over five labels, repeated ones included; the result takes any of them in any order.
Instance contraction(Draw& d, DType t) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < 5; ++i) sizes.push_back(d.size());
  std::string equation, used, out;
  Instance instance;
  for (int64_t k = 0, count = 1 + d.below(3); k < count; ++k) {
    if (k) equation += ',';
    Dims dims;
    for (int64_t r = 0, rank = d.below(4); r < rank; ++r) {
      int64_t label = d.below(5);
      char letter = static_cast<char>('a' + label);
      equation += letter;
      dims.push_back(sizes[static_cast<size_t>(label)]);
      if (used.find(letter) == used.npos) used += letter;
    }
    instance.inputs.push_back(d.normal(t, dims));
  }
  for (char letter : used)
    if (d.coin()) out.insert(out.begin() + d.below(static_cast<int64_t>(out.size()) + 1), letter);
  instance.attrs = {{"equation", cat(equation, "->", out)}};
  return instance;
}
Instance resize(Draw& d, DType t) {
  Dims from = d.dims(3, 1), to = from;
  Ints axes;
  for (int64_t a = 0; a < 3; ++a)
    if (d.coin()) {
      axes.push_back(a);
      to[static_cast<size_t>(a)] = d.size();
    }
  Attrs attrs{{"dims", to_shape(to)},
              {"axes", axes},
              {"mode", d.one_of<std::string>({"nearest", "linear", "cubic"})},
              {"coordinates", d.one_of<std::string>({"half_pixel", "align_corners", "asymmetric"})},
              {"antialias", d.coin()},
              {"exclude_outside", d.coin()}};
  return {{d.normal(t, from)}, std::move(attrs)};
}
Instance grid(Draw& d, DType t) {
  Dims dims = d.dims(4 + d.below(2));
  auto rank = static_cast<int64_t>(dims.size()) - 2;
  return {{d.normal(t, {dims[0], rank, rank + 1})}, {{"dims", to_shape(dims)}, {"align_corners", d.coin()}}};
}

std::optional<Instance> draw(std::string_view op, Draw& d, DType t) {
  if (op == "softmax" || op == "log_softmax") return with_axis(d, t);
  if (op == "lp_norm") {
    Instance i = with_axis(d, t);
    i.attrs["p"] = 1 + d.below(2);
    return i;
  }
  if (op == "layer_norm") return norm_tail(d, t, 2, 3);
  if (op == "rms_norm") return norm_tail(d, t, 1, 2);
  if (op == "batch_norm") return channels(d, t, 4, 1, 0);
  if (op == "batch_norm_train") return channels(d, t, 4, 5, 1);
  if (op == "group_norm") return group_norm(d, t);
  if (op == "lrn") {
    Instance i = channels(d, t, 0, 1, 0);
    i.attrs = {{"size", 1 + d.below(5)}, {"alpha", 0.3}};
    return i;
  }
  if (op == "prelu") {
    Instance i = activation(d, t);
    i.inputs.push_back(d.normal(t, {}));
    return i;
  }
  if (op == "clamp") {
    Instance i = activation(d, t);
    i.inputs.push_back(maybe(d, Tensor::full(t, {}, -0.5)));
    i.inputs.push_back(maybe(d, Tensor::full(t, {1}, 0.5)));
    return i;
  }
  if (op == "gelu") {
    Instance i = activation(d, t);
    i.attrs["tanh"] = d.coin();
    return i;
  }
  for (std::string_view name :
       {"silu", "hard_sigmoid", "hard_swish", "leaky_relu", "elu", "selu", "celu", "mish", "softsign"})
    if (op == name) return activation(d, t);
  if (op == "attention") return attention(d, t);
  if (op == "rotary") return rotary(d, t);
  if (op == "rnn") return recurrent(d, t, 1, 2);
  if (op == "gru") return recurrent(d, t, 3, 2);
  if (op == "lstm") return recurrent(d, t, 4, 3);
  if (op == "einsum") return contraction(d, t);
  if (op == "resample") return resize(d, t);
  if (op == "picture_resample") return picture(d);
  if (op == "affine_grid") return grid(d, t);
  if (op == "cross_entropy") return loss(d, t, 2);
  if (op == "nll_loss") return loss(d, t, 1);
  if (op == "layer_norm_backward") return tail_backward(d, t, 2);
  if (op == "rms_norm_backward") return tail_backward(d, t, 1);
  if (op == "batch_norm_backward") return channels_backward(d, t, false);
  if (op == "group_norm_backward") return channels_backward(d, t, true);
  if (op == "cross_entropy_backward") return loss_backward(d, t);
  if (op == "attention_backward") return attention_backward(d, t);
  if (op == "max_pool_backward") return pool_backward(d, t);
  if (op == "avg_pool_backward") return avg_pool_backward(d, t);
  if (op == "conv_backward_data") return conv_backward(d, t, true);
  if (op == "conv_backward_weights") return conv_backward(d, t, false);
  return std::nullopt;
}

double largest(const Tensor& t) {
  double top = 0;
  for (int64_t i = 0; i < t.count(); ++i)
    if (double v = std::fabs(t.get_double(i)); std::isfinite(v)) top = std::max(top, v);
  return top;
}

}  // namespace

TEST_CASE("composites equal their decompositions") {
  // Bounds relative to the largest element: f64 1e-11, f32 1e-5 (a few dozen roundings of 6e-8 that cancel).
  constexpr double bound_f64 = 1e-11, bound_f32 = 1e-5;
  // Their operands are sub-graphs or offsets, which stored cases draw; a custom op's come with its plug-in.
  const std::set<std::string_view> elsewhere{"fused", "embedding_bag", "custom"};
  uint64_t number = 0;
  for (const OpDef* row : all_ops()) {
    if (!row->decompose || elsewhere.count(row->name)) continue;
    for (uint64_t k = 0; k < 40; ++k) {
      DType t = k % 2 ? DType::f64 : DType::f32;
      Draw d(++number);
      std::optional<Instance> instance = draw(row->name, d, t);
      CAPTURE(row->name);
      REQUIRE(instance);
      Graph g;
      std::vector<ValueId> operands;
      std::vector<HostValue> values;
      for (const Tensor& x : instance->inputs) {
        operands.push_back(x.defined() ? g.add_input(Type::tensor(x.dtype(), to_shape(x.dims())))
                                       : ValueId{});
        if (x.defined()) values.emplace_back(x);
      }
      g.outputs = Builder(g).ops(row->name, operands, instance->attrs, instance->outputs);
      std::string text = print(g);
      CAPTURE(text);
      auto want = interp::run(g, values).outputs;
      REQUIRE(expand(g, g.order().back()));
      verify(g, "decomposition");
      auto got = interp::run(g, values).outputs;
      for (size_t i = 0; i < want.size(); ++i) {
        const Tensor &a = got[i].tensor, &b = want[i].tensor;
        REQUIRE(a.str() == b.str());
        const bool wide = t == DType::f64 && b.dtype() != DType::f32;
        double bound = (wide ? bound_f64 : bound_f32) * std::max(1.0, largest(b));
        for (int64_t e = 0; e < b.count(); ++e) {
          double x = a.get_double(e), y = b.get_double(e);
          CAPTURE(x);
          CAPTURE(y);
          CHECK((std::isnan(y) ? std::isnan(x) : x == y || std::fabs(x - y) <= bound));
        }
      }
    }
  }
}
