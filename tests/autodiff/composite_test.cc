// SPDX-License-Identifier: Apache-2.0
// Gradients of composites, indexing and windows, to the second order at least.
#include <doctest/doctest.h>

#include "gradient_check.h"

using namespace pelton;
using namespace pelton::ir;
using test::check_gradient;
using test::Values;

namespace {

Values squares(Builder& b, const Values& values) {
  Values out;
  for (ValueId v : values) out.push_back(b.op("square", {v}));
  return out;
}
ValueId index(Builder& b, Dims dims, const Ints& values) {
  return b.constant(from_ints(DType::i64, std::move(dims), values));
}
std::string text(const char* s) {
  return s;
}

}  // namespace

TEST_CASE("activations, to the third order") {
  for (const char* op : {"gelu", "silu", "hard_sigmoid", "hard_swish", "leaky_relu", "elu", "selu", "celu",
                         "mish", "softsign"})
    check_gradient(
        {op, {{3, 4}}, [&](Builder& b, const Values& x) { return Values{b.op(op, {x[0]})}; }, -4, 4, 3});
  check_gradient({"gelu tanh",
                  {{3, 4}},
                  [](Builder& b, const Values& x) {
                    return Values{b.op("gelu", {x[0]}, {{"tanh", true}})};
                  },
                  -4,
                  4,
                  3});
  check_gradient({"prelu", {{3, 4}, {4}}, [](Builder& b, const Values& x) {
                    return Values{b.op("prelu", {x[0], x[1]})};
                  }});
  for (int bounds = 0; bounds < 4; ++bounds)
    check_gradient({cat("clamp ", bounds), {{3, 4}, {1}, {}}, [&](Builder& b, const Values& x) {
                      ValueId low = b.sub(x[1], b.like(x[1], 1)), high = b.add(x[2], b.like(x[2], 1));
                      return squares(b, {b.op("clamp", {x[0], bounds & 1 ? low : ValueId{},
                                                        bounds & 2 ? high : ValueId{}})});
                    }});
}

TEST_CASE("gather and scatter") {
  for (int64_t axis : {0, 1, -1})
    check_gradient(
        {cat("gather ", axis), {{3, 4, 2}}, [&](Builder& b, const Values& x) {
           return squares(b, {b.op("gather", {x[0], index(b, {2, 2}, {0, -1, 1, 0})}, {{"axis", axis}})});
         }});
  check_gradient({"gather_elements", {{3, 4}}, [](Builder& b, const Values& x) {
                    return squares(
                        b, {b.op("gather_elements", {x[0], index(b, {2, 4}, {0, 1, 2, 0, 0, -1, 2, 1})},
                                 {{"axis", int64_t{0}}})});
                  }});
  check_gradient({"gather_nd", {{3, 4, 2}}, [](Builder& b, const Values& x) {
                    return squares(b, {b.op("gather_nd", {x[0], index(b, {3, 2}, {0, 1, 2, 3, 0, 1})})});
                  }});
  check_gradient({"gather_nd batch", {{2, 3, 2}}, [](Builder& b, const Values& x) {
                    return squares(b, {b.op("gather_nd", {x[0], index(b, {2, 2, 1}, {0, 2, 1, 1})},
                                            {{"batch_dims", int64_t{1}}})});
                  }});
  for (const char* reduction : {"none", "add", "max", "min"}) {
    check_gradient({cat("scatter_elements ", reduction), {{3, 4}, {2, 3}}, [&](Builder& b, const Values& x) {
                      ValueId i = index(b, {2, 3}, {0, 2, 1, 0, 0, 1});
                      return squares(b, {b.op("scatter_elements", {x[0], i, x[1]},
                                              {{"axis", int64_t{0}}, {"reduction", text(reduction)}})});
                    }});
    check_gradient({cat("scatter_nd ", reduction), {{3, 2}, {4, 2}}, [&](Builder& b, const Values& x) {
                      return squares(b, {b.op("scatter_nd", {x[0], index(b, {4, 1}, {0, 2, 0, -1}), x[1]},
                                              {{"reduction", text(reduction)}})});
                    }});
  }
  check_gradient({"embedding_bag", {{5, 3}}, [](Builder& b, const Values& x) {
                    return squares(b, {b.op("embedding_bag",
                                            {x[0], index(b, {4}, {0, 2, 2, 4}), index(b, {2}, {0, 3})})});
                  }});
  check_gradient({"one_hot", {{2}}, [](Builder& b, const Values& x) {
                    return squares(b, {b.op("one_hot", {index(b, {3}, {0, 2, 1}),
                                                        b.constant(Tensor::scalar<int64_t>(4)), x[0]})});
                  }});
  check_gradient({"reverse_sequence", {{3, 2}}, [](Builder& b, const Values& x) {
                    return squares(b, {b.op("reverse_sequence", {x[0], index(b, {2}, {3, 2})},
                                            {{"batch_axis", int64_t{1}}, {"time_axis", int64_t{0}}})});
                  }});
  for (bool circular : {false, true})
    check_gradient({"tensor_scatter", {{2, 4, 2}, {2, 2, 2}}, [&](Builder& b, const Values& x) {
                      return squares(
                          b, {b.op("tensor_scatter", {x[0], x[1], index(b, {2}, {1, circular ? 3 : 2})},
                                   {{"circular", circular}})});
                    }});
  check_gradient(
      {"topk", {{3, 5}}, [](Builder& b, const Values& x) {
         return squares(b, {b.ops("topk", {x[0], b.constant(Tensor::scalar<int64_t>(2))}, {}, 2)[0]});
       }});
  check_gradient({"sort", {{5, 2}}, [](Builder& b, const Values& x) {
                    return squares(b, {b.ops("sort", {x[0]}, {{"axis", int64_t{0}}}, 2)[0]});
                  }});
}

TEST_CASE("softmax and normalisations") {
  for (const char* op : {"softmax", "log_softmax", "lp_norm"})
    for (int64_t axis : {0, -1})
      check_gradient({op,
                      {{3, 4}},
                      [&](Builder& b, const Values& x) {
                        return squares(b, {b.op(op, {x[0]}, {{"axis", axis}})});
                      },
                      -2,
                      2,
                      3,
                      1e-5});
  for (int parameters = 0; parameters < 4; ++parameters)
    check_gradient({cat("layer_norm ", parameters),
                    {{2, 3, 4}, {4}, {1, 4}},
                    [&](Builder& b, const Values& x) {
                      ValueId scale = parameters & 1 ? x[1] : ValueId{},
                              bias = parameters & 2 ? x[2] : ValueId{};
                      return squares(b, {b.op("layer_norm", {x[0], scale, bias})});
                    },
                    -2,
                    2,
                    2,
                    1e-5});
  check_gradient({"layer_norm over two axes, a scale a row",
                  {{2, 3, 2}, {2, 1, 1}},
                  [](Builder& b, const Values& x) {
                    return squares(b, {b.op("layer_norm", {x[0], x[1]}, {{"axis", int64_t{1}}})});
                  },
                  -2,
                  2,
                  2,
                  1e-5});
  check_gradient({"layer_norm, its operand as scale and bias as well",
                  {{4}},
                  [](Builder& b, const Values& x) {
                    return squares(b, {b.op("layer_norm", {x[0], x[0], x[0]})});
                  },
                  -2,
                  2,
                  2,
                  1e-5});
  check_gradient({"rms_norm",
                  {{3, 4}, {4}},
                  [](Builder& b, const Values& x) {
                    return squares(b, {b.op("rms_norm", {x[0], x[1]})});
                  },
                  -2,
                  2,
                  2,
                  1e-5});
  for (const Dims& dims : {Dims{4, 2, 3}, Dims{5, 3}})
    check_gradient({"batch_norm_train",
                    {dims, {dims[1]}, {dims[1]}, {dims[1]}, {dims[1]}},
                    [](Builder& b, const Values& x) {
                      Values all = b.ops("batch_norm_train", {x[0], x[1], x[2], x[3], x[4]}, {}, 3);
                      return squares(b, {all[0]});
                    },
                    0.2,
                    2,
                    2,
                    1e-4});
  check_gradient({"running statistics",
                  {{4, 2}, {2}, {2}, {2}, {2}},
                  [](Builder& b, const Values& x) {
                    return squares(b, b.ops("batch_norm_train", {x[0], x[1], x[2], x[3], x[4]}, {}, 3));
                  },
                  0.2,
                  2,
                  1,
                  1e-5});
  check_gradient({"batch_norm",
                  {{3, 2, 2}, {2}, {2}, {2}, {2}},
                  [](Builder& b, const Values& x) {
                    return squares(b, {b.op("batch_norm", {x[0], x[1], x[2], x[3], x[4]})});
                  },
                  0.3,
                  2});
  for (int64_t groups : {1, 2, 4})
    check_gradient({"group_norm",
                    {{2, 4, 3}, {4}, {4}},
                    [&](Builder& b, const Values& x) {
                      return squares(b, {b.op("group_norm", {x[0], x[1], x[2]}, {{"groups", groups}})});
                    },
                    -2,
                    2,
                    2,
                    1e-5});
  check_gradient({"lrn", {{2, 5, 2}}, [](Builder& b, const Values& x) {
                    return squares(b, {b.op("lrn", {x[0]}, {{"size", int64_t{3}}, {"alpha", 0.5}})});
                  }});
}

TEST_CASE("losses") {
  for (const char* reduction : {"none", "sum", "mean"})
    for (int variant = 0; variant < 4; ++variant)
      for (const char* op : {"cross_entropy", "nll_loss"})
        check_gradient({cat(op, " ", reduction, variant),
                        {{4, 3, 2}, {3}},
                        [&](Builder& b, const Values& x) {
                          Attrs attrs{{"reduction", text(reduction)}};
                          if (variant & 1) attrs["ignore"] = int64_t{1};
                          ValueId labels = index(b, {4, 2}, {0, 1, 2, 0, 1, 1, 2, 2});
                          ValueId weights = variant & 2
                                                ? b.constant(from_doubles(DType::f64, {3}, {0.5, 2, 1}))
                                                : ValueId{};
                          return Values{b.op(op, {x[0], labels, weights}, attrs)};
                        },
                        -2,
                        2,
                        2,
                        1e-5});
  check_gradient({"weights of classes",
                  {{4, 3}, {3}},
                  [](Builder& b, const Values& x) {
                    return Values{b.op("cross_entropy", {x[0], index(b, {4}, {0, 1, 2, 1}), x[1]})};
                  },
                  0.3,
                  2});
}

TEST_CASE("attention") {
  for (int variant = 0; variant < 8; ++variant) {
    bool causal = variant & 1, grouped = variant & 2, masked = variant & 4;
    int64_t heads = grouped ? 4 : 2;
    check_gradient(
        {cat("attention ", variant),
         {{1, heads, 3, 2}, {1, 2, 3, 2}, {1, 2, 3, 2}, {heads, 1, 3}},
         [&](Builder& b, const Values& x) {
           Attrs attrs{{"causal", causal}, {"softcap", masked ? 3.0 : 0.0}};
           return squares(b, {b.op("attention", {x[0], x[1], x[2], masked ? x[3] : ValueId{}}, attrs)});
         },
         -1,
         1,
         2,
         1e-5});
  }
  check_gradient({"a mask of bool with a row that sees no key",
                  {{2, 1, 2, 2}, {2, 1, 3, 2}, {2, 1, 3, 2}},
                  [](Builder& b, const Values& x) {
                    ValueId mask = b.constant(from_ints(DType::boolean, {2, 3}, {1, 0, 1, 0, 0, 0}));
                    return squares(b, {b.op("attention", {x[0], x[1], x[2], mask}, {{"scale", 0.7}})});
                  },
                  -1,
                  1,
                  2,
                  1e-5});
  for (bool interleaved : {false, true})
    check_gradient({"rotary", {{1, 2, 3, 6}, {1, 3, 2}, {1, 3, 2}}, [&](Builder& b, const Values& x) {
                      return squares(b, {b.op("rotary", {x[0], x[1], x[2]},
                                              {{"dims", int64_t{4}}, {"interleaved", interleaved}})});
                    }});
}

TEST_CASE("convolution of one to three axes") {
  struct Conv {
    const char* name;
    Dims x, w;
    Attrs attrs;
  };
  const Conv cases[] = {
      {"plain", {2, 2, 5}, {3, 2, 3}, {}},
      {"strides, pads",
       {1, 2, 5, 6},
       {2, 2, 3, 2},
       {{"strides", Ints{2, 3}}, {"low", Shape{1, 0}}, {"high", Shape{0, 1}}}},
      {"groups, dilations", {2, 4, 6, 5}, {4, 2, 2, 2}, {{"groups", int64_t{2}}, {"dilations", Ints{2, 1}}}},
      {"depthwise",
       {1, 3, 4, 4},
       {3, 1, 3, 3},
       {{"groups", int64_t{3}}, {"low", Shape{1, 1}}, {"high", Shape{1, 1}}}},
      {"three axes", {1, 2, 3, 3, 3}, {2, 2, 2, 2, 2}, {{"strides", Ints{1, 2, 1}}}},
  };
  for (const Conv& c : cases) {
    check_gradient({cat("conv ", c.name),
                    {c.x, c.w, {c.w[0]}},
                    [&](Builder& b, const Values& x) {
                      return squares(b, {b.op("conv", {x[0], x[1], x[2]}, c.attrs)});
                    },
                    -1,
                    1});
    int64_t groups = c.attrs.count("groups") ? std::get<int64_t>(c.attrs.at("groups")) : 1;
    // For the transpose w[C, O/groups, K...] has one slice a channel of x.
    Dims w = c.w, x = c.x;
    w[0] = x[1];
    w[1] = 2;
    check_gradient({cat("conv_transpose ", c.name),
                    {x, w, {2 * groups}},
                    [&](Builder& b, const Values& v) {
                      return squares(b, {b.op("conv_transpose", {v[0], v[1], v[2]}, c.attrs)});
                    },
                    -1,
                    1});
  }
  check_gradient({"output_padding",
                  {{1, 2, 3}, {2, 2, 2}},
                  [](Builder& b, const Values& x) {
                    return squares(b, {b.op("conv_transpose", {x[0], x[1]},
                                            {{"strides", Ints{2}}, {"output_padding", Ints{1}}})});
                  },
                  -1,
                  1});
}

TEST_CASE("pooling and resampling") {
  const Attrs plain{{"kernel", Ints{2, 3}}, {"strides", Ints{2, 1}}, {"low", Shape{1, 0}}};
  Attrs with_ceil = plain;
  with_ceil["ceil"] = true;
  with_ceil["high"] = Shape{1, 1};
  for (const Attrs& attrs : {plain, with_ceil}) {
    check_gradient({"max_pool", {{1, 2, 5, 5}}, [&](Builder& b, const Values& x) {
                      return squares(b, {b.op("max_pool", {x[0]}, attrs)});
                    }});
    for (bool count : {false, true})
      check_gradient({"avg_pool", {{1, 2, 5, 5}}, [&](Builder& b, const Values& x) {
                        Attrs all = attrs;
                        all["count_padding"] = count;
                        return squares(b, {b.op("avg_pool", {x[0]}, all)});
                      }});
  }
  for (int64_t p : {1, 2, 3})
    check_gradient({cat("lp_pool ", p),
                    {{1, 2, 4, 5}},
                    [&](Builder& b, const Values& x) {
                      Attrs all = plain;
                      all["p"] = p;
                      return squares(b, {b.op("lp_pool", {x[0]}, all)});
                    },
                    0.2,
                    2});
  check_gradient({"max_unpool", {{1, 1, 2, 2}}, [](Builder& b, const Values& x) {
                    return squares(b, {b.op("max_unpool", {x[0], index(b, {1, 1, 2, 2}, {0, 3, 8, 13})},
                                            {{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}})});
                  }});
  for (const char* mode : {"nearest", "linear", "cubic"})
    check_gradient({cat("resample ", mode), {{1, 1, 3, 4}}, [&](Builder& b, const Values& x) {
                      return squares(
                          b,
                          {b.op("resample", {x[0]},
                                {{"dims", Shape{1, 1, 5, 3}}, {"axes", Ints{2, 3}}, {"mode", text(mode)}})});
                    }});
}

TEST_CASE("einsum, dropout") {
  check_gradient({"einsum", {{2, 3, 4}, {4, 3}}, [](Builder& b, const Values& x) {
                    return squares(b, {b.op("einsum", {x[0], x[1]}, {{"equation", text("bij,ji->bj")}})});
                  }});
  check_gradient({"dropout", {{4, 5}}, [](Builder& b, const Values& x) {
                    ValueId y = b.op("dropout", {x[0], b.constant(Tensor::full(DType::f64, {}, 0.4))});
                    return squares(b, {b.mul(y, x[0])});
                  }});
}
