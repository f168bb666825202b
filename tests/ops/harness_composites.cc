// SPDX-License-Identifier: Apache-2.0
#include "ops/harness_composites.h"

#include "ir/builder.h"

namespace pelton::test {

using namespace pelton::ir;

namespace {

Instance activation(Draw& d, DType t) {
  return {{d.normal(t, d.dims(d.below(4)))}, {}};
}
Instance with_axis(Draw& d, DType t) {
  int64_t rank = 1 + d.below(3);
  return {{d.normal(t, d.dims(rank))}, {{"axis", d.below(2 * rank) - rank}}};
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

}  // namespace

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
  return draw_backward(op, d, t);
}

}  // namespace pelton::test
