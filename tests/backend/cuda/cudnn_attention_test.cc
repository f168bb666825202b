// SPDX-License-Identifier: Apache-2.0
// Every plan that cuDNN offers for attention and its gradient, not only the one that a timing chose.
#include <doctest/doctest.h>

#include "backend/cuda/attention/cudnn_attention.h"
#include "backend/cuda/harness.h"
#include "backend/cuda/own/host.h"
#include "base/cat.h"
#include "device/artifacts.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::backend::cuda;
using namespace pelton::test;

namespace {

struct Case {
  int n, heads, groups, queries, keys, depth, width;
  bool causal;
  Dims mask;  // that is added; none: empty
};

void dense(int64_t (&strides)[3], int64_t heads, int64_t rows, int64_t columns) {
  strides[0] = heads * rows * columns;
  strides[1] = rows * columns;
  strides[2] = columns;
}
Attention problem_of(const Case& c, Elem type) {
  Attention a;
  a.type = type;
  a.n = c.n;
  a.heads = c.heads;
  a.groups = c.groups;
  a.queries = c.queries;
  a.keys = c.keys;
  a.depth = c.depth;
  a.width = c.width;
  a.causal = c.causal;
  a.scale = 0.125f;
  dense(a.q_strides, c.heads, c.queries, c.depth);
  dense(a.k_strides, c.groups, c.keys, c.depth);
  dense(a.v_strides, c.groups, c.keys, c.width);
  dense(a.y_strides, c.heads, c.queries, c.width);
  if (!c.mask.empty()) {
    a.mask_kind = Attention::added;
    a.mask_type = type;
    const Dims s = row_major_strides(c.mask);
    for (size_t d = 0; d < 4; ++d) a.mask_strides[d] = c.mask[d] == 1 ? 0 : s[d];
  }
  return a;
}
struct Text {
  Text(const Case& c, const char* type)
      : q(cat(type, Dims{c.n, c.heads, c.queries, c.depth})),
        k(cat(type, Dims{c.n, c.groups, c.keys, c.depth})),
        v(cat(type, Dims{c.n, c.groups, c.keys, c.width})),
        y(cat(type, Dims{c.n, c.heads, c.queries, c.width})),
        sums(cat("f32", Dims{c.n, c.heads, c.queries})),
        mask_input(c.mask.empty() ? "" : cat(", %m: ", type, c.mask)),
        mask(c.mask.empty() ? "" : ", %m"),
        attrs(cat("{scale = 0.125, causal = ", c.causal ? "true" : "false", "}")) {}
  std::string q, k, v, y, sums, mask_input, mask, attrs;
  std::string forward(bool with_sums = true) const {
    return cat("graph \"g\"(%q: ", q, ", %k: ", k, ", %v: ", v, mask_input, ") { %y", with_sums ? ", %s" : "",
               " = attention(%q, %k, %v", mask, ") ", attrs, " : ", y, with_sums ? cat(", ", sums) : "",
               " return %y", with_sums ? ", %s" : "", " }");
  }
  std::string backward() const {
    return cat("graph \"g\"(%g: ", y, ", %q: ", q, ", %k: ", k, ", %v: ", v, ", %y: ", y, ", %s: ", sums,
               mask_input, ") { %dq, %dk, %dv = attention_backward(%g, %q, %k, %v, %y, %s", mask, ") ", attrs,
               " : ", q, ", ", k, ", ", v, " return %dq, %dk, %dv }");
  }
};

const Case kCases[] = {{2, 3, 3, 128, 128, 64, 64, false},
                       {1, 2, 2, 256, 256, 64, 64, true},
                       {1, 2, 2, 130, 130, 64, 64, true},
                       {1, 2, 2, 100, 100, 128, 128, true},
                       {1, 2, 2, 64, 192, 32, 32, false},
                       {2, 4, 2, 64, 64, 64, 64, true},
                       {1, 1, 1, 512, 512, 64, 64, true},
                       {3, 2, 2, 128, 128, 64, 64, false, {3, 1, 1, 128}},
                       {2, 2, 2, 128, 128, 64, 64, false, {2, 1, 128, 128}},
                       {2, 2, 2, 64, 64, 64, 64, false, {2, 2, 64, 64}},
                       {2, 2, 2, 64, 64, 64, 64, true, {1, 1, 64, 64}}};

// Of the case's mask, some keys of which are out of sight.
Tensor mask_of(const Case& c, DType t) {
  Tensor m = random(t, c.mask, 11);
  for (int64_t i = 5; i < m.count(); i += 7) m.set_double(i, -1e9);
  return m;
}

}  // namespace

TEST_CASE("cuDNN's attention with and without its sums") {
  PELTON_NEEDS_GPU();
  size_t plans = 0;
  for (const Case& c : kCases)
    for (const char* type : {"bf16", "f16"}) {
      size_t with_sums = 0;
      for (bool sums : {true, false}) {
        const DType t = *dtype_from_name(type);
        const Text text(c, type);
        CAPTURE(text.forward(sums));
        std::vector<Tensor> in = {random(t, {c.n, c.heads, c.queries, c.depth}, 1),
                                  random(t, {c.n, c.groups, c.keys, c.depth}, 2),
                                  random(t, {c.n, c.groups, c.keys, c.width}, 3)};
        if (!c.mask.empty()) in.push_back(mask_of(c, t));
        GpuCase gpu_case(text.forward(sums), in);
        size_t offered = 0;
        const Attention problem = problem_of(c, elem(t));
        for (const CudnnAttention& plan : cudnn_attentions(problem, sums)) {
          CAPTURE(plan.name());
          ++plans;
          ++offered;
          auto check = [&](const CudnnAttention& one) {
            gpu_case.check(
                [&](const backend::RunArgs& args) {
                  Attention a = problem;
                  a.q = args.in[0];
                  a.k = args.in[1];
                  a.v = args.in[2];
                  if (!c.mask.empty()) a.mask = args.in[3];
                  a.y = args.out[0];
                  if (sums) a.log_sums = static_cast<float*>(args.out[1]);
                  one.run(a, args.scratch, stream_of(args));
                },
                one.scratch_bytes());
          };
          check(plan);
          // The same from its text.
          device::Artifacts kept;
          const device::ArtifactScope scope(&kept);
          plan.keep();
          CHECK(kept.entries().size() == 1);
          const CudnnAttentions read = cudnn_attentions(problem, sums, plan.name());
          REQUIRE(read.size() == 1);
          CHECK(read[0].scratch_bytes() == plan.scratch_bytes());
          check(read[0]);
        }
        if (!c.mask.empty()) CHECK(offered > 0);
        if (sums) with_sums = offered;
        CHECK(offered == with_sums);
      }
    }
  CHECK(plans >= 8);
  MESSAGE(plans, " plans");
}

TEST_CASE("cuDNN's gradients of attention") {
  PELTON_NEEDS_GPU();
  size_t plans = 0;
  for (const Case& c : kCases)
    for (const char* type : {"bf16", "f16"}) {
      if (c.groups != c.heads) continue;
      const DType t = *dtype_from_name(type);
      const Text text(c, type);
      CAPTURE(text.backward());
      std::vector<Tensor> in = {random(t, {c.n, c.heads, c.queries, c.depth}, 1),
                                random(t, {c.n, c.groups, c.keys, c.depth}, 2),
                                random(t, {c.n, c.groups, c.keys, c.width}, 3)};
      if (!c.mask.empty()) in.push_back(mask_of(c, t));
      const auto known =
          interp::run(ir::parse_graph(text.forward()), std::vector<ir::HostValue>(in.begin(), in.end()))
              .outputs;
      std::vector<Tensor> back = {random(t, {c.n, c.heads, c.queries, c.width}, 5),
                                  in[0],
                                  in[1],
                                  in[2],
                                  known[0].tensor,
                                  known[1].tensor};
      if (!c.mask.empty()) back.push_back(in[3]);
      GpuCase gpu_case(text.backward(), back);
      size_t offered = 0;
      AttentionBackward problem;
      problem.forward = problem_of(c, elem(t));
      dense(problem.g_strides, c.heads, c.queries, c.width);
      dense(problem.dq_strides, c.heads, c.queries, c.depth);
      dense(problem.dk_strides, c.heads, c.keys, c.depth);
      dense(problem.dv_strides, c.heads, c.keys, c.width);
      for (const CudnnAttentionBackward& plan : cudnn_attention_backwards(problem)) {
        CAPTURE(plan.name());
        ++plans;
        ++offered;
        const GpuCase::Run run = [&](const backend::RunArgs& args) {
          AttentionBackward a = problem;
          a.g = args.in[0];
          a.forward.q = args.in[1];
          a.forward.k = args.in[2];
          a.forward.v = args.in[3];
          a.forward.y = const_cast<void*>(args.in[4]);
          a.forward.log_sums = static_cast<float*>(const_cast<void*>(args.in[5]));
          if (!c.mask.empty()) a.forward.mask = args.in[6];
          a.dq = args.out[0];
          a.dk = args.out[1];
          a.dv = args.out[2];
          plan.run(a, args.scratch, stream_of(args));
        };
        gpu_case.check(run, plan.scratch_bytes());
      }
      if (!c.mask.empty()) CHECK(offered > 0);
    }
  CHECK(plans >= 4);
  MESSAGE(plans, " plans");
}
