// SPDX-License-Identifier: Apache-2.0
// Arena plans of whole programs: sound, small, and checked by a derivation of their own.
#include "runtime/arena.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "base/cat.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "runtime/executable.h"
#include "runtime/region.h"
#include "runtime/test_kernels.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::runtime;
using pelton::test::expect_error;

namespace {

const backend::Registry& registry() {
  static auto* r = [] {
    auto* made = new backend::Registry;
    test::add_test_kernels(*made);
    return made;
  }();
  return *r;
}

// %0 lives until the last node; the others follow each other.
const char* kText = R"(graph "g"(%x: f32[N,16]) {
  symbol N in [1, 1000]
  %0 = neg(%x) : f32[N,16]
  %1 = neg(%0) : f32[N,16]
  %2 = neg(%1) : f32[N,16]
  %3 = reshape(%2) {dims = dims[16*N]} : f32[16*N]
  %4 = neg(%3) : f32[16*N]
  %5 = reshape(%4) {dims = dims[N,16]} : f32[N,16]
  %6 = add(%5, %0) : f32[N,16]
  %7 = neg(%6) : f32[N,16]
  return %7
})";

struct Planned {
  ir::Graph graph = ir::parse_graph(kText);
  device::Target target = device::detect_cpu(1);
  std::vector<Choice> choices = choose_all(graph, registry(), target);
  Region region{graph, choices, registry(), target, {}};
  Program program(int64_t n) { return *region.program(0, {{"N", n}}); }
};

std::vector<Ref*> arena_results(Program& p) {
  std::vector<Ref*> out;
  for (const Step& s : p.steps)
    for (uint32_t i = 0; i < s.out_count; ++i)
      if (Ref& r = p.refs[s.first_out + i]; r.place == Place::arena) out.push_back(&r);
  return out;
}

}  // namespace

TEST_CASE("arena: steps write over operands that end with them") {
  Planned planned;
  Program p = planned.program(100);
  check_memory(p, planned.region);
  auto results = arena_results(p);
  REQUIRE(results.size() == 5);  // %7 is a result and has a buffer of its own
  CHECK(results[1]->offset == results[2]->offset);
  CHECK(results[2]->offset == results[3]->offset);  // through the view
  CHECK(results[0]->offset != results[1]->offset);  // %0 is read again
  // Two values and the scratch of one step: no plan can do with less.
  CHECK(p.arena_bytes == 3 * 6400);
  CHECK(p.arena_bytes == p.peak_bytes);
}

TEST_CASE("arena: the check finds values that share bytes, move or are read before they are written") {
  Planned planned;
  Program good = planned.program(10);
  {
    Program bad = good;
    for (Ref& r : bad.refs)
      if (r.place == Place::arena) r.offset = 0;
    expect_error(ErrorCode::internal, {"share arena bytes while both are in use"},
                 [&] { check_memory(bad, planned.region); });
  }
  {
    Program bad = good;
    bad.steps[1].scratch_offset = bad.refs[bad.steps[1].first_in].offset;
    expect_error(ErrorCode::internal, {"scratch", "share arena bytes"},
                 [&] { check_memory(bad, planned.region); });
  }
  {
    Program bad = good;
    bad.refs[bad.steps[1].first_in].offset += 64;
    expect_error(ErrorCode::internal, {"moved in the arena"}, [&] { check_memory(bad, planned.region); });
  }
  {
    Program bad = good;
    bad.arena_bytes -= 64;
    expect_error(ErrorCode::internal, {"of an arena of"}, [&] { check_memory(bad, planned.region); });
  }
  {
    Program bad = good;
    std::swap(bad.steps[0], bad.steps[1]);
    expect_error(ErrorCode::internal, {"before it is written"}, [&] { check_memory(bad, planned.region); });
  }
}

TEST_CASE("arena: with poisoned memory results stay what they are") {
  setenv("PELTON_POISON", "1", 1);
  auto plan = std::make_shared<Plan>();
  plan->graph = ir::parse_graph(kText);
  auto e = Executable::create(plan, registry(), device::detect_cpu(1));
  Tensor x = Tensor::full(DType::f32, {7, 16}, 0.5);
  auto expected = interp::run(plan->graph, {x}).outputs;
  for (int i = 0; i < 3; ++i) CHECK(e->run({x})[0].tensor.same_bytes(expected[0].tensor));
  unsetenv("PELTON_POISON");
}

TEST_CASE("arena: a result lies in the data that its op writes into, never in what is written") {
  backend::Registry made;
  test::add_test_kernels(made);
  made.add({"test.scatter",
            {"scatter_elements"},
            [](const ir::Graph&, ir::NodeId, const device::Target&) { return std::string(); },
            test::prepare_point,
            false});
  // One of data and updates ends with the node; both have the result's shape.
  auto offsets = [&](const char* operands, const char* again) {
    const ir::Graph graph = ir::parse_graph(cat(R"(graph "g"(%x: f32[3,2], %i: i64[3,2]) {
  %0 = neg(%x) : f32[3,2]
  %1 = neg(%0) : f32[3,2]
  %2 = neg(%1) : f32[3,2]
  %3 = scatter_elements()",
                                                operands, R"() {axis = 0} : f32[3,2]
  %4 = add(%3, )",
                                                again, R"() : f32[3,2]
  return %4
})"));
    const device::Target target = device::detect_cpu(1);
    const std::vector<Choice> choices = choose_all(graph, made, target);
    Region region(graph, choices, made, target, {});
    Program p = *region.program(0, {});
    check_memory(p, region);
    std::vector<int64_t> out;
    for (const Ref* r : arena_results(p)) out.push_back(r->offset);
    REQUIRE(out.size() == 4);
    return out;
  };
  const auto data_ends = offsets("%1, %i, %2", "%2"), updates_end = offsets("%1, %i, %2", "%1");
  CHECK(data_ends[3] == data_ends[1]);
  CHECK(updates_end[3] != updates_end[1]);
  CHECK(updates_end[3] != updates_end[2]);
}
