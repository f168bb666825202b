// SPDX-License-Identifier: Apache-2.0
// The stored numeric cases of the ops on the GPU: each graph runs step by step, recorded and played, and its
// results are held against the interpreter by the acceptance rule (interp/numerics.h).
#include <doctest/doctest.h>

#include <cstdio>
#include <map>

#include "base/log.h"
#include "interp/accept.h"
#include "register/registry.h"
#include "runtime/executable.h"
#include "support/op_cases.h"
#include "support/share.h"

using namespace pelton;

namespace {

struct Outcome {
  std::string reason;      // not empty: wrong
  bool on_device = false;  // every node that computes ran there
};

Outcome run_case(const test::Case& c, const device::Target& target, std::map<std::string, int>& ran) {
  auto plan = std::make_shared<runtime::Plan>();
  plan->graph = ir::parse_graph(c.graph);
  plan->target = target;
  runtime::ExecutableOptions options;
  options.check_memory = true;
  auto e = runtime::Executable::create(plan, registry(), target, options);
  Outcome out;
  out.on_device = true;
  for (const runtime::Choice& choice : e->choices()) {
    if (choice.implementation == runtime::kNothing) continue;
    ++ran[choice.implementation];
    const backend::Implementation* used = registry().find(choice.implementation);
    out.on_device &= used && used->device == device::Kind::cuda;
  }
  runtime::Context context = e->context();
  std::vector<Tensor> first;
  for (int round = 0; round < 3; ++round) {
    std::vector<ir::HostValue> results = context.run(c.inputs);
    std::vector<Tensor> tensors;
    for (ir::HostValue& v : results) tensors.push_back(v.tensor);
    if (round == 0) {
      first = tensors;
      continue;
    }
    for (size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].defined() && !tensors[i].same_bytes(first[i])) {
        out.reason = cat("run ", round, " gives other bits than the first");
        return out;
      }
  }
  bool tensors_only = true;
  for (ir::ValueId v : plan->graph.outputs)
    tensors_only &= plan->graph.type(v).is_tensor() && plan->graph.type(v).dtype != DType::string;
  if (!tensors_only) return out;  // the host's work; its own tests hold it
  std::vector<interp::Reference> references = interp::references(plan->graph, c.inputs);
  for (size_t i = 0; i < references.size(); ++i) {
    interp::Acceptance a = interp::judge(references[i], first[i]);
    if (!a.reason.empty()) {
      out.reason = cat("result ", i, ": ", a.reason);
      return out;
    }
  }
  return out;
}

}  // namespace

TEST_CASE("gpu: the stored cases of the ops") {
  device::Target target = find_device("cuda", 0);
  const bool trace = std::getenv("PELTON_TRACE_CASES");  // names the case that ends the process
  const test::Share share = test::share();
  int64_t number = 0, cases = 0, on_device = 0;
  std::map<std::string, int> ran;
  for (const std::string& file : test::case_files()) {
    for (const test::Case& c : test::read_cases(file)) {
      if (!c.code.empty() || !share.has(number++)) continue;
      CAPTURE(file);
      CAPTURE(c.name);
      if (trace) std::fprintf(stderr, "%s\n", c.name.c_str());
      Outcome o;
      try {
        o = run_case(c, target, ran);
      } catch (const Error& e) {
        o.reason = cat("throws ", e.what());
        if (e.code() == ErrorCode::device_lost) FAIL(o.reason);
      }
      CHECK(o.reason == "");
      ++cases;
      on_device += o.on_device;
    }
  }
  std::printf("%lld cases, %lld of them with every node on the GPU\n", static_cast<long long>(cases),
              static_cast<long long>(on_device));
  for (const auto& [name, count] : ran) std::printf("  %6d nodes on %s\n", count, name.c_str());
  CHECK(cases > 2000 / share.of);
  CHECK(on_device > 1000 / share.of);
}
