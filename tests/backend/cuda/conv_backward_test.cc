// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "backend/cuda/conv/backward_weights.h"
#include "backend/cuda/harness.h"
#include "backend/cuda/own/conv_weights.h"
#include "backend/cuda/own/rows_product.h"
#include "base/cat.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;
using namespace pelton::backend::cuda;

namespace {

struct Case {
  Dims x, w, g;
  const char* attrs;
};
const Case kCases[] = {
    {{2, 16, 7, 7}, {32, 16, 1, 1}, {2, 32, 7, 7}, ""},
    {{2, 3, 19, 22}, {16, 3, 3, 3}, {2, 16, 10, 11}, "strides = [2,2], low = dims[1,1], high = dims[1,1]"},
    {{1, 3, 29, 40}, {64, 3, 7, 7}, {1, 64, 15, 20}, "strides = [2,2], low = dims[3,3], high = dims[3,3]"},
    {{2, 24, 9, 9}, {32, 24, 1, 1}, {2, 32, 5, 5}, "strides = [2,2]"},
    {{1, 64, 14, 14}, {64, 64, 3, 3}, {1, 64, 14, 14}, "low = dims[1,1], high = dims[1,1]"},
    {{2, 16, 8, 8}, {16, 16, 3, 3}, {2, 16, 4, 4}, "strides = [2,2], low = dims[1,1], high = dims[0,0]"},
    {{1, 16, 10, 10}, {32, 8, 3, 3}, {1, 32, 6, 6}, "groups = 2, dilations = [2,2]"},
    {{1, 8, 12, 9}, {16, 8, 5, 3}, {1, 16, 4, 7}, "strides = [2,1]"},
    {{1, 32, 9, 9}, {32, 1, 3, 3}, {1, 32, 9, 9}, "groups = 32, low = dims[1,1], high = dims[1,1]"},
    {{3, 48, 57, 9}, {48, 1, 3, 3}, {3, 48, 57, 9}, "groups = 48, low = dims[1,1], high = dims[1,1]"},
    {{2, 24, 12, 12},
     {24, 1, 5, 5},
     {2, 24, 6, 6},
     "groups = 24, strides = [2,2], low = dims[1,1], high = dims[2,2]"},
    {{2, 24, 13, 70},
     {24, 1, 5, 5},
     {2, 24, 7, 35},
     "groups = 24, strides = [2,2], low = dims[2,2], high = dims[2,2]"},
    {{1, 16, 40, 41},
     {16, 1, 3, 3},
     {1, 16, 20, 21},
     "groups = 16, strides = [2,2], low = dims[1,1], high = dims[1,1]"},
    {{1, 40, 9, 9}, {40, 1, 5, 5}, {1, 40, 9, 9}, "groups = 40, low = dims[2,2], high = dims[2,2]"},
    {{1, 6, 7, 7}, {6, 1, 7, 7}, {1, 6, 7, 7}, "groups = 6, low = dims[3,3], high = dims[3,3]"},
    {{1, 6, 7, 7}, {12, 1, 3, 3}, {1, 12, 5, 5}, "groups = 6"},
    {{2, 16, 20}, {16, 16, 5}, {2, 16, 16}, ""},
    {{2, 8, 21}, {8, 1, 3}, {2, 8, 11}, "groups = 8, strides = [2], low = dims[1], high = dims[1]"},
    {{1, 16, 4, 5, 6}, {16, 16, 2, 2, 2}, {1, 16, 3, 4, 5}, ""},
    {{0, 8, 4, 4}, {8, 8, 3, 3}, {0, 8, 2, 2}, ""},
    {{4, 96, 20, 20}, {24, 96, 1, 1}, {4, 24, 20, 20}, ""},
    {{3, 24, 30, 31}, {144, 24, 1, 1}, {3, 144, 30, 31}, ""},
    {{17, 72, 7, 7}, {72, 1, 3, 3}, {17, 72, 7, 7}, "groups = 72, low = dims[1,1], high = dims[1,1]"},
    {{16, 40, 28, 27},
     {40, 1, 5, 5},
     {16, 40, 14, 14},
     "groups = 40, strides = [2,2], low = dims[2,2], high = dims[2,2]"},
};

std::string data_text(const Case& c, const std::string& t, const std::string& l) {
  return cat("graph \"g\"(%g: ", t, c.g, l, ", %w: ", t, c.w,
             ") { %y = conv_backward_data(%g, %w) {dims = dims", c.x, *c.attrs ? ", " : "", c.attrs,
             "} : ", t, c.x, l, " return %y }");
}
std::string weights_text(const Case& c, const std::string& t, const std::string& l) {
  return cat("graph \"g\"(%g: ", t, c.g, l, ", %x: ", t, c.x, l,
             ") { %y = conv_backward_weights(%g, %x) {kernel = ", Dims(c.w.begin() + 2, c.w.end()),
             *c.attrs ? ", " : "", c.attrs, "} : ", t, c.w, " return %y }");
}

// Every way to compute the gradient of weights that is offered, each judged by itself.
void check_weights(GpuCase& c) {
  const WeightsProblem p(c.instance(), *gpu());
  WeightsMethods methods;
  if (p.g.count() > 0) {
    add_weights_depthwise(p, false, methods);
    add_weights_product(p, "", methods);
    add_weights_rows(p, "", methods);
    add_weights_cudnn(p, "", methods);
    const WeightsTrial trial(p, methods);
    leave_out_inexact(p, trial.buffers(), methods);
  }
  add_weights_direct(p, methods);
  for (const auto& m : methods) {
    CAPTURE(m->name());
    c.check(
        [&](const backend::RunArgs& args) {
          m->run({args.in[p.g_input], args.in[p.x_input], args.out[0], args.scratch},
                 static_cast<cudaStream_t>(args.stream));
        },
        m->scratch_bytes());
  }
}

}  // namespace

TEST_CASE("gradients of convolutions by their data, in every layout and type") {
  PELTON_NEEDS_GPU();
  for (const Case& c : kCases)
    for (const char* type : {"f16", "bf16", "f32"})
      for (const char* layout : {"{nhwc}", ""}) {
        const DType t = *dtype_from_name(type);
        const std::string text = data_text(c, type, layout);
        CAPTURE(text);
        GpuCase g(text, {random(t, c.g, 1), random(t, c.w, 2)});
        REQUIRE(g.refusal("cuda.conv") == "");
        const ConvProblem p(g.instance(), *gpu());
        ConvMethods methods;
        if (p.y.count() > 0) {
          add_depthwise_methods(p, methods);
          add_product_methods(p, "", methods);
          add_cudnn_methods(p, "", methods);
          add_direct_method(p, methods);
        }
        for (const auto& m : methods) {
          CAPTURE(m->name());
          g.check(
              [&](const backend::RunArgs& args) {
                ConvBuffers b;
                b.x = args.in[0];
                b.w = args.in[1];
                b.y = args.out[0];
                b.scratch = args.scratch;
                b.steps = p.steps.bind(args);
                m->run(b, static_cast<cudaStream_t>(args.stream));
              },
              m->scratch_bytes());
        }
      }
}

TEST_CASE("gradients of convolutions by their weights, in every layout and type") {
  PELTON_NEEDS_GPU();
  for (const Case& c : kCases)
    for (const char* type : {"f16", "bf16", "f32"})
      for (const char* layout : {"{nhwc}", ""}) {
        const DType t = *dtype_from_name(type);
        const std::string text = weights_text(c, type, layout);
        CAPTURE(text);
        GpuCase g(text, {random(t, c.g, 1), random(t, c.x, 2)});
        REQUIRE(g.refusal("cuda.conv_backward_weights") == "");
        check_weights(g);
      }
}

TEST_CASE("gradients of weights leave as f32 where the group says so") {
  PELTON_NEEDS_GPU();
  for (const Case& c : kCases)
    for (const char* type : {"f16", "bf16"}) {
      const DType t = *dtype_from_name(type);
      std::string text = weights_text(c, type, "{nhwc}");
      text.resize(text.find(" return"));
      text += cat(" %z = cast(%y) {to = f32} : f32", c.w, " return %z }");
      CAPTURE(text);
      GpuCase g(text, {random(t, c.g, 1), random(t, c.x, 2)}, {"conv", {}, {}});
      REQUIRE(g.refusal("cuda.conv_backward_weights") == "");
      check_weights(g);
    }
}

TEST_CASE("gradients of weights: a way that sums less exactly than f32 does is left out") {
  PELTON_NEEDS_GPU();
  // Sums in f16 behind the back of whoever asked for f32.
  class Coarse final : public WeightsMethod {
   public:
    Coarse(const WeightsProblem& p, Elem as)
        : conv_(conv_weights_of(p)), count_(element_count(p.dw)), as_(as) {
      scratch_ = DeviceBuffer(count_ * 4, "a test");
    }
    std::string name() const override { return "coarse"; }
    std::optional<Elem> judged_as() const override { return as_; }
    void run(const WeightsBuffers& b, cudaStream_t stream) const override {
      ConvWeights d = conv_;
      d.g = b.g;
      d.x = b.x;
      d.dw = scratch_.get();
      d.result_type = Elem::f16;
      PELTON_CUDA(conv_weights(d, stream));
      PELTON_CUDA(taps_last(scratch_.get(), Elem::f16, b.dw, conv_.result_type, count_, 1, 1, stream));
    }

   private:
    ConvWeights conv_;
    int64_t count_;
    Elem as_;
    DeviceBuffer scratch_;
  };
  GpuCase c(weights_text(kCases[4], "f32", ""),
            {random(DType::f32, kCases[4].g, 1), random(DType::f32, kCases[4].x, 2)});
  const WeightsProblem p(c.instance(), *gpu());
  WeightsMethods methods;
  methods.push_back(std::make_unique<Coarse>(p, Elem::f32));
  methods.push_back(std::make_unique<Coarse>(p, Elem::f16));
  const WeightsTrial trial(p, methods);
  leave_out_inexact(p, trial.buffers(), methods);
  REQUIRE(methods.size() == 1);
  CHECK(methods[0]->judged_as() == Elem::f16);
}

TEST_CASE("gradients of weights by rows: kernels of one place in 16 bits, channels last, multiples of 8") {
  auto product = [](const Case& c, const char* type, const char* layout) {
    const DType t = *dtype_from_name(type);
    GpuCase g(weights_text(c, type, layout), {random(t, c.g, 1), random(t, c.x, 2)});
    return rows_product_of(WeightsProblem(g.instance(), device::cuda_target(90)));
  };
  const auto p = product(kCases[0], "bf16", "{nhwc}");
  REQUIRE(p);
  CHECK(p->m == 32);
  CHECK(p->n == 16);
  CHECK(p->rows == 2 * 7 * 7);
  CHECK(!product(kCases[0], "f32", "{nhwc}"));
  CHECK(!product(kCases[0], "bf16", ""));
  CHECK(!product(kCases[3], "bf16", "{nhwc}"));  // strides
  CHECK(!product(kCases[4], "bf16", "{nhwc}"));  // several places
  CHECK(!product({{1, 12, 4, 4}, {16, 12, 1, 1}, {1, 16, 4, 4}, ""}, "bf16", "{nhwc}"));
}

TEST_CASE("gradients of weights: a way that yields something else than the first is left out") {
  PELTON_NEEDS_GPU();
  class Shifted final : public WeightsMethod {
   public:
    Shifted(const WeightsProblem& p, int64_t by) : conv_(conv_weights_of(p)), by_(by) {}
    std::string name() const override { return "shifted"; }
    bool compared() const override { return true; }
    void run(const WeightsBuffers& b, cudaStream_t stream) const override {
      ConvWeights d = conv_;
      d.g = b.g;
      d.x = static_cast<const std::byte*>(b.x) + by_;
      d.dw = b.dw;
      PELTON_CUDA(conv_weights(d, stream));
    }

   private:
    ConvWeights conv_;
    int64_t by_;
  };
  GpuCase c(weights_text(kCases[0], "bf16", "{nhwc}"),
            {random(DType::bf16, kCases[0].g, 1), random(DType::bf16, kCases[0].x, 2)});
  const WeightsProblem p(c.instance(), *gpu());
  WeightsMethods methods;
  add_weights_direct(p, methods);
  methods.push_back(std::make_unique<Shifted>(p, 0));
  methods.push_back(std::make_unique<Shifted>(p, 2));
  const WeightsTrial trial(p, methods);
  leave_out_different(p, trial.buffers(), methods);
  CHECK(methods.size() == 2);
}

TEST_CASE("gradients of convolutions, chosen and replayed") {
  PELTON_NEEDS_GPU();
  for (size_t i : {0, 3, 5, 8}) {
    const Case& c = kCases[i];
    GpuCase(data_text(c, "bf16", "{nhwc}"), {random(DType::bf16, c.g, 1), random(DType::bf16, c.w, 2)})
        .check("cuda.conv");
    GpuCase(weights_text(c, "bf16", "{nhwc}"), {random(DType::bf16, c.g, 1), random(DType::bf16, c.x, 2)})
        .check("cuda.conv_backward_weights");
  }
}
