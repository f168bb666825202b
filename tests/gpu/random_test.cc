// SPDX-License-Identifier: Apache-2.0
// Random graphs (fuzz_graph/draw.h), compiled for the GPU and run step by step, recorded and played, by the
// acceptance rule. PELTON_FUZZ_SEED and PELTON_FUZZ_GRAPHS choose others, PELTON_FUZZ_ONLY one by its seed.
#include <doctest/doctest.h>

#include <cstdio>

#include "compiler/compile.h"
#include "fuzz_graph/draw.h"
#include "interp/accept.h"
#include "register/registry.h"
#include "runtime/executable.h"
#include "support/share.h"

using namespace pelton;

namespace {

int64_t setting(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

// Results that are tensors; the interpreter's references know no others.
std::vector<ir::ValueId> tensor_outputs(const ir::Graph& g) {
  std::vector<ir::ValueId> out;
  for (ir::ValueId v : g.outputs)
    if (g.type(v).is_tensor() && g.type(v).dtype != DType::string) out.push_back(v);
  return out;
}

void check(const fuzz::Drawn& d, const device::Target& target, int& on_device) {
  std::vector<interp::Reference> references = interp::references(d.graph, d.inputs);
  auto plan = std::make_shared<runtime::Plan>(compiler::compile(d.graph, target, {}, registry()));
  auto e = runtime::Executable::create(plan, registry(), target);
  for (const runtime::Choice& c : e->choices())
    if (const backend::Implementation* used = registry().find(c.implementation))
      on_device += used->device == device::Kind::cuda;
  runtime::Context context = e->context();
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    std::vector<ir::HostValue> out = context.run(d.inputs);
    REQUIRE(out.size() == references.size());
    for (size_t i = 0; i < out.size(); ++i) {
      CAPTURE(i);
      CHECK(interp::judge(references[i], out[i].tensor).reason == "");
    }
  }
}

}  // namespace

TEST_CASE("gpu: random graphs, compiled") {
  device::Target target = find_device("cuda", 0);
  fuzz::Fragments fragments = fuzz::load_fragments();
  int64_t graphs = setting("PELTON_FUZZ_GRAPHS", 150), first = setting("PELTON_FUZZ_SEED", 1);
  const int64_t only = setting("PELTON_FUZZ_ONLY", 0);
  if (only) graphs = 1;
  const test::Share share = test::share();
  int on_device = 0;
  int64_t ran = 0, mine = 0;
  for (int64_t i = 0; ran < graphs && i < graphs * 2; ++i) {
    uint64_t seed = static_cast<uint64_t>(only ? only : first * 1000003 + i);
    fuzz::Drawn d = fuzz::Drawer(fragments, seed).draw();
    d.graph.outputs = tensor_outputs(d.graph);
    if (!d.ok || d.graph.outputs.empty()) continue;
    if (!share.has(ran++)) continue;
    ++mine;
    CAPTURE(seed);
    std::string text = ir::print(d.graph);
    CAPTURE(text);
    try {
      check(d, target, on_device);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::device_lost) FAIL(std::string(e.what()));
      FAIL_CHECK("error: " << std::string(e.what()));
    }
  }
  std::printf("%lld random graphs, %d nodes of them on the GPU\n", static_cast<long long>(mine), on_device);
  CHECK(ran == graphs);
  CHECK(on_device > mine);
}
