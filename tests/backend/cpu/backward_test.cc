// SPDX-License-Identifier: Apache-2.0
// Kernels of backward passes and of what training needs, on plain data and channels last, against the
// interpreter: every element within a bound times the largest of its tensor (sums of up to a few thousand f32
// terms).
#include <doctest/doctest.h>

#include <cmath>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::test;

namespace {

// `text` has layouts as "{}" after the types that may be channels last.
void check_near(const std::string& text, const std::vector<Tensor>& inputs, double bound = 1e-5,
                const std::string& implementation = {}) {
  for (const char* layout : {"", "{nhwc}"}) {
    std::string with = text;
    size_t at = 0;
    bool any = false;
    while ((at = with.find("{}", at)) != with.npos) {
      with.replace(at, 2, layout);
      any = true;
    }
    if (!any && *layout) return;
    CAPTURE(with);
    ir::Graph g = ir::parse_graph(with);
    Options options;
    options.implementation = implementation;
    std::vector<Tensor> got = run_on_cpu(g, inputs, options);
    std::vector<ir::HostValue> values(inputs.begin(), inputs.end());
    std::vector<ir::HostValue> want = interp::run(g, values).outputs;
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      const Tensor& w = want[i].tensor;
      REQUIRE(got[i].str() == w.str());
      double top = 1e-3;
      for (double v : to_doubles(w)) top = std::max(top, std::fabs(v));
      double worst = 0;
      for (int64_t k = 0; k < w.count(); ++k)
        worst = std::max(worst, std::fabs(got[i].get_double(k) - w.get_double(k)) / top);
      CHECK(worst <= bound);
    }
  }
}
Tensor f32(Dims dims, uint64_t seed, double low = -2, double high = 2) {
  return random(DType::f32, std::move(dims), seed, low, high);
}
Tensor labels(Dims dims, int64_t limit, uint64_t seed) {
  Tensor t = random(DType::f32, dims, seed, 0, static_cast<double>(limit));
  std::vector<int64_t> v;
  for (int64_t i = 0; i < t.count(); ++i)
    v.push_back(std::min(limit - 1, static_cast<int64_t>(t.get_double(i))));
  return from_ints(DType::i64, std::move(dims), v);
}

}  // namespace

TEST_CASE("gradients of convolution by data and weights") {
  struct Conv {
    Dims x, w, y;
    const char *attrs, *kernel;
  };
  const Conv cases[] = {
      {{2, 8, 9, 10}, {16, 8, 3, 3}, {2, 16, 9, 10}, "low = dims[1,1], high = dims[1,1]", "[3,3]"},
      {{3, 3, 16, 15},
       {8, 3, 5, 3},
       {3, 8, 8, 7},
       "strides = [2,2], low = dims[2,0], high = dims[2,0]",
       "[5,3]"},
      {{1, 12, 7, 7},
       {12, 1, 3, 3},
       {1, 12, 4, 4},
       "groups = 12, strides = [2,2], low = dims[1,1], high = dims[1,1]",
       "[3,3]"},
      {{2, 8, 8, 9}, {6, 4, 2, 2}, {2, 6, 6, 7}, "groups = 2, dilations = [2,2]", "[2,2]"},
      {{4, 32, 6, 6}, {64, 32, 1, 1}, {4, 64, 3, 3}, "strides = [2,2]", "[1,1]"},
  };
  for (const Conv& c : cases) {
    check_near(cat("graph \"g\"(%g: f32", c.y, "{}, %w: f32", c.w,
                   ") { %x = conv_backward_data(%g, %w) {dims = dims", c.x, ", ", c.attrs, "} : f32", c.x,
                   "{} return %x }"),
               {f32(c.y, 1), f32(c.w, 2)}, 1e-5, "onednn.conv_backward");
    check_near(cat("graph \"g\"(%g: f32", c.y, "{}, %x: f32", c.x,
                   "{}) { %w = conv_backward_weights(%g, %x) {kernel = ", c.kernel, ", ", c.attrs, "} : f32",
                   c.w, " return %w }"),
               {f32(c.y, 1), f32(c.x, 2)}, 1e-5, "onednn.conv_backward");
  }
  const Dims x{2, 4, 11}, w{6, 4, 3}, y{2, 6, 9};
  check_near(cat("graph \"g\"(%g: f32", y, ", %w: f32", w, ") { %x = conv_backward_data(%g, %w) {dims = dims",
                 x, "} : f32", x, " return %x }"),
             {f32(y, 1), f32(w, 2)});
}

TEST_CASE("gradients of pooling") {
  const Dims x{2, 21, 9, 11}, y{2, 21, 5, 5};
  const char* attrs = "kernel = [3,3], strides = [2,2], low = dims[1,0], high = dims[1,0]";
  check_near(cat("graph \"g\"(%g: f32", y, "{}, %x: f32", x, "{}) { %d = max_pool_backward(%g, %x) {", attrs,
                 "} : f32", x, "{} return %d }"),
             {f32(y, 1), f32(x, 2)}, 1e-6, "cpu.pool_backward");
  for (const char* count : {"", ", count_padding = true"})
    check_near(cat("graph \"g\"(%g: f32", y, "{}) { %d = avg_pool_backward(%g) {", attrs, count,
                   ", dims = dims", x, "} : f32", x, "{} return %d }"),
               {f32(y, 1)}, 1e-6, "cpu.pool_backward");
}

TEST_CASE("batch norm in its training form and backward") {
  for (const Dims& d : {Dims{3, 20, 7, 9}, Dims{2, 5, 40, 41}, Dims{200, 33}, Dims{1, 3, 1, 2}}) {
    const Dims c{d[1]};
    const char* layout = d.size() == 4 ? "{}" : "";
    const std::string parameters = cat("%s: f32", c, ", %b: f32", c, ", %m: f32", c, ", %v: f32", c);
    const std::vector<Tensor> p{f32(c, 2), f32(c, 3), f32(c, 4), f32(c, 5, 0.5, 2)};
    check_near(cat("graph \"g\"(%x: f32", d, layout, ", ", parameters,
                   ") { %y, %nm, %nv, %bm, %br = batch_norm_train(%x, %s, %b, %m, %v) : f32", d, layout,
                   ", f32", c, ", f32", c, ", f32", c, ", f32", c, " return %y, %nm, %nv, %bm, %br }"),
               {f32(d, 1, 3, 5), p[0], p[1], p[2], p[3]}, 1e-5, "cpu.batch_norm_train");
    check_near(cat("graph \"g\"(%g: f32", d, layout, ", %x: f32", d, layout, ", %s: f32", c, ", %m: f32", c,
                   ", %v: f32", c, ") { %d, %ds, %db = batch_norm_backward(%g, %x, %s, %m, %v) : f32", d,
                   layout, ", f32", c, ", f32", c, " return %d, %ds, %db }"),
               {f32(d, 6), f32(d, 1, 3, 5), p[0], f32(c, 7, 3.9, 4.1), p[3]}, 1e-5,
               "cpu.batch_norm_backward");
  }
}

TEST_CASE("layer norm and RMS norm backward") {
  for (const Dims& d : {Dims{3, 5, 64}, Dims{700, 33}, Dims{1, 7}}) {
    Dims stats = d, tail{d.back()};
    stats.back() = 1;
    check_near(
        cat("graph \"g\"(%g: f32", d, ", %x: f32", d, ", %m: f32", stats, ", %r: f32", stats, ", %s: f32",
            tail, ") { %d, %ds, %db = layer_norm_backward(%g, %x, %m, %r, %s) {axis = -1} : f32", d, ", f32",
            tail, ", f32", tail, " return %d, %ds, %db }"),
        {f32(d, 1), f32(d, 2), f32(stats, 3), f32(stats, 4, 0.5, 2), f32(tail, 5)}, 1e-5,
        "cpu.norm_backward");
    check_near(cat("graph \"g\"(%g: f32", d, ", %x: f32", d, ", %r: f32", stats,
                   ") { %d, %ds = rms_norm_backward(%g, %x, %r) {axis = -1} : f32", d, ", f32", tail,
                   " return %d, %ds }"),
               {f32(d, 1), f32(d, 2), f32(stats, 4, 0.5, 2)}, 1e-5, "cpu.norm_backward");
  }
}

TEST_CASE("scatter that writes or adds") {
  for (const char* reduction : {"none", "add"}) {
    const Dims x{50, 33}, i{400, 1}, u{400, 33};
    check_near(
        cat("graph \"g\"(%x: f32", x, ", %i: i64", i, ", %u: f32", u,
            ") { %y = scatter_nd(%x, %i, %u) {reduction = \"", reduction, "\"} : f32", x, " return %y }"),
        {f32(x, 1), labels(i, 50, 2), f32(u, 3)}, 1e-6, "cpu.scatter");
    const Dims e{9, 20};
    check_near(cat("graph \"g\"(%x: f32", Dims{9, 40}, ", %i: i64", e, ", %u: f32", e,
                   ") { %y = scatter_elements(%x, %i, %u) {axis = 1, reduction = \"", reduction, "\"} : f32",
                   Dims{9, 40}, " return %y }"),
               {f32({9, 40}, 1), labels(e, 40, 2), f32(e, 3)}, 1e-6, "cpu.scatter");
  }
}

TEST_CASE("dropout draws the interpreter's numbers") {
  for (const char* stream : {"", " {stream = 77, seed = 3}"})
    check_near(cat("graph \"g\"(%x: f32[3,5003], %r: f32[]) { %y, %m = dropout(%x, %r)", stream,
                   " : f32[3,5003], bool[3,5003] return %y, %m }"),
               {f32({3, 5003}, 1), Tensor::scalar<float>(0.3f)}, 1e-6, "cpu.dropout");
}
