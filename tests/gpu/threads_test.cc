// SPDX-License-Identifier: Apache-2.0
// One executable, eight threads at once, each with inputs and a context of its own: the same bits as one
// thread alone.
#include <doctest/doctest.h>

#include <thread>

#include "compiler/compile.h"
#include "ir/text.h"
#include "register/registry.h"
#include "runtime/executable.h"

using namespace pelton;

namespace {

// Products, a convolution with its steps, softmax and a mean.
const char* const kNetwork =
    R"(graph "net"(%x: f16[4,16,24,24], %k: f16[32,16,3,3], %b: f16[32], %w: f16[576,128], %v: f16[128,128]) {
  %0 = conv(%x, %k, %b) {strides = [1, 1], dilations = [1, 1], low = dims[1, 1], high = dims[1, 1]} : f16[4,32,24,24]
  %1 = silu(%0) : f16[4,32,24,24]
  %2 = reshape(%1) {dims = dims[4, 32, 576]} : f16[4,32,576]
  %3 = matmul(%2, %w) : f16[4,32,128]
  %4 = gelu(%3) : f16[4,32,128]
  %5 = matmul(%4, %v) : f16[4,32,128]
  %6 = softmax(%5) {axis = 2} : f16[4,32,128]
  %7 = reduce_mean(%5) {axes = [1], keep_dims = false} : f16[4,128]
  return %6, %7
})";

// Layers of one kind and different widths share kernels; a loop is a condition of the recording.
const char* const kRecurrent =
    R"(graph "steps"(%n: i64[], %x: f32[6,2,32], %w: f32[1,256,32], %r: f32[1,256,64], %v: f32[1,2048,64], %s: f32[1,2048,512], %k: f32[2,512]) {
  %0, %1, %2 = lstm(%x, %w, %r) {hidden = 64} : f32[6,1,2,64], f32[1,2,64], f32[1,2,64]
  %3 = reshape(%0) {dims = dims[6, 2, 64]} : f32[6,2,64]
  %4, %5, %6 = lstm(%3, %v, %s) {hidden = 512} : f32[6,1,2,512], f32[1,2,512], f32[1,2,512]
  %7 = reshape(%5) {dims = dims[2, 512]} : f32[2,512]
  %8 = loop(%n, _, %7, %k) {body = graph "body"(%i: i64[], %c: bool[], %a: f32[2,512], %k: f32[2,512]) {
    %t = mul(%a, %k) : f32[2,512]
    %u = add(%t, %a) : f32[2,512]
    %g = tanh(%u) : f32[2,512]
    return %c, %g
  }, carried = 1} : f32[2,512]
  return %4, %8
})";

std::vector<ir::HostValue> inputs_of(const ir::Graph& graph, uint64_t seed) {
  std::vector<ir::HostValue> out;
  for (ir::ValueId v : graph.inputs) {
    Tensor t(graph.type(v).dtype, *as_dims(graph.type(v).shape));
    if (t.dtype() == DType::i64) {
      t.set_int(0, static_cast<int64_t>(seed));
      out.emplace_back(t);
      continue;
    }
    uint64_t state = seed * 0x9E3779B97F4A7C15u + v.index + 1;
    for (int64_t i = 0; i < t.count(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      t.set_double(i, (static_cast<double>(state >> 40) * 0x1p-24 - 0.5) * 0.25);
    }
    out.emplace_back(t);
  }
  return out;
}

void same_from_threads(const char* text) {
  constexpr size_t kThreads = 8, kRuns = 40;
  device::Target target = find_device("cuda", 0);
  ir::Graph graph = ir::parse_graph(text);
  auto plan = std::make_shared<runtime::Plan>(compiler::compile(graph, target, {}, registry()));
  auto e = runtime::Executable::create(plan, registry(), target);
  std::vector<std::vector<ir::HostValue>> inputs, wanted;
  for (size_t t = 0; t < kThreads; ++t) {
    inputs.push_back(inputs_of(graph, t + 1));
    wanted.push_back(e->run(inputs.back()));
  }
  std::vector<std::string> faults(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      try {
        runtime::Context context = e->context();
        for (size_t run = 0; run < kRuns && faults[t].empty(); ++run) {
          std::vector<ir::HostValue> out = context.run(inputs[t]);
          for (size_t i = 0; i < out.size(); ++i)
            if (!out[i].tensor.same_bytes(wanted[t][i].tensor))
              faults[t] = cat("result ", i, " of run ", run, " differs");
        }
      } catch (const std::exception& error) {
        faults[t] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& fault : faults) CHECK(fault == "");
}

}  // namespace

TEST_CASE("gpu: eight threads at once yield the bits of one") {
  same_from_threads(kNetwork);
}

TEST_CASE("gpu: recurrent layers of two widths and a loop, from eight threads") {
  same_from_threads(kRecurrent);
}
