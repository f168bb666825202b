// SPDX-License-Identifier: Apache-2.0
// State that a device updates in place, and random numbers of recorded runs.
#include <doctest/doctest.h>

#include <cstring>

#include "interp/interpreter.h"
#include "ir/text.h"
#include "runtime/executable.h"
#include "runtime/fake_device.h"
#include "runtime/state_layout.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;
using pelton::test::fake;

namespace {

const backend::Registry& registry() {
  static backend::Registry* r = [] {
    auto* made = new backend::Registry;
    test::add_fake_kernels(*made);
    return made;
  }();
  return *r;
}

std::shared_ptr<const Executable> load(const std::string& text) {
  auto plan = std::make_shared<Plan>();
  plan->graph = parse_graph(text);
  plan->target = device::cuda_target(90);
  return Executable::create(plan, registry(), plan->target, {.check_memory = true});
}

Tensor filled(double v) {
  return from_doubles(DType::f32, {1024}, std::vector<double>(1024, v));
}

// Runs a graph with one input and slots of f32[1024] on the device and in the interpreter, step by step.
int64_t follow(const std::string& text, int rounds = 5) {
  auto e = load(text);
  Context c = e->context();
  std::vector<Tensor> state;
  for (const Slot& s : e->graph().slots) state.push_back(s.initial.defined() ? s.initial : filled(0));
  int64_t before = test::fake_memory().used();
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    Tensor x = filled(round + 1);
    auto expected = interp::run(e->graph(), {x}, std::vector<HostValue>(state.begin(), state.end()));
    auto got = c.run_tensors({x});
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].same_bytes(expected.outputs[i].tensor));
    for (size_t i = 0; i < state.size(); ++i)
      if (const Tensor& next = expected.next_state[i].tensor; next.defined()) state[i] = next;
    if (round % 2)
      for (size_t i = 0; i < state.size(); ++i) CHECK(c.state(i).same_bytes(state[i]));
  }
  return test::fake_memory().used() - before;
}

}  // namespace

TEST_CASE("device state: the next value is written over the old one where that is read no more") {
  // x, the slot, and the result of the run; nothing for the next value
  int64_t in_place = follow(R"(graph "g"(%x: f32[1024]) {
  slot %s statistic "s" : f32[1024]
  %0 = mul(%s, %x) : f32[1024]
  %1 = add(%s, %x) : f32[1024]
  next %s = %1
  return %0 @"y"
})");
  CHECK(in_place < 3 * 4096 + 2048);
}

TEST_CASE("device state: a later reader of the old value sees the old value") {
  follow(R"(graph "g"(%x: f32[1024]) {
  slot %s statistic "s" : f32[1024]
  %0 = add(%s, %x) : f32[1024]
  %1 = mul(%s, %x) : f32[1024]
  next %s = %0
  return %1 @"y"
})");
  follow(R"(graph "late"(%x: f32[1024]) {
  slot %s statistic "s" : f32[1024]
  %0 = add(%s, %x) : f32[1024]
  %1 = reshape(%s) {dims = dims[32,32]} : f32[32,32]
  %2 = neg(%1) : f32[32,32]
  next %s = %0
  return %2 @"y"
})");
}

TEST_CASE("device state: slots that exchange their values, moved reads, results that are state") {
  follow(R"(graph "exchange"(%x: f32[1024]) {
  slot %a statistic "a" : f32[1024]
  slot %b statistic "b" : f32[1024]
  %0 = add(%b, %x) : f32[1024]
  %1 = neg(%a) : f32[1024]
  next %a = %0
  next %b = %1
  return %x @"y"
})");
  follow(R"(graph "moved"(%x: f32[1024]) {
  slot %a statistic "a" : f32[1024]
  %0 = slice(%a) {axes = [0], sizes = dims[1], starts = dims[0], steps = [1]} : f32[1]
  %1 = add(%x, %0) : f32[1024]
  %2 = concat(%0, %1) {axis = 0} : f32[1025]
  %3 = slice(%2) {axes = [0], sizes = dims[1024], starts = dims[1], steps = [1]} : f32[1024]
  next %a = %3
  return %2 @"y"
})");
  follow(R"(graph "result"(%x: f32[1024]) {
  slot %a statistic "a" : f32[1024]
  %0 = add(%a, %x) : f32[1024]
  next %a = %0
  return %a @"old", %0 @"new"
})");
}

TEST_CASE("device state: steps on the host see the state as it is on the device") {
  follow(R"(graph "host"(%x: f32[1024]) {
  slot %a statistic "a" : f32[1024]
  %0 = exp(%a) : f32[1024]
  %1 = add(%a, %x) : f32[1024]
  next %a = %1
  return %0 @"y"
})");
  follow(R"(graph "host_after"(%x: f32[1024]) {
  slot %a statistic "a" : f32[1024]
  %0 = add(%a, %x) : f32[1024]
  %1 = exp(%0) : f32[1024]
  next %a = %0
  return %1 @"y"
})");
}

TEST_CASE("device random: a recorded run draws the numbers of its step") {
  auto e = load(R"(graph "draw"(%x: f32[8]) {
  %0 = random_uniform() {dims = dims[8], dtype = f32, stream = 7} : f32[8]
  %1 = add(%0, %x) : f32[8]
  return %1 @"y"
})");
  Context c = e->context();
  Tensor x = Tensor::zeros(DType::f32, {8}), last;
  int plays = fake().plays;
  for (uint64_t step = 0; step < 5; ++step) {
    RunOptions options{.random = {3, step}};
    interp::Options plain;
    plain.random = options.random;
    Tensor y = c.run_tensors({x}, options)[0];
    CHECK(y.same_bytes(interp::run(e->graph(), {x}, {}, plain).outputs[0].tensor));
    CHECK(!(last.defined() && y.same_bytes(last)));
    last = y;
  }
  CHECK(fake().plays - plays == 4);
}

TEST_CASE("device random: runs on the caller's stream that nobody waits for keep their keys and inputs") {
  auto e = load(R"(graph "ahead"(%x: f32[8]) {
  %0 = random_uniform() {dims = dims[8], dtype = f32, stream = 7} : f32[8]
  %1 = add(%0, %x) : f32[8]
  return %1 @"y"
})");
  std::shared_ptr<device::Device> device = test::open_fake({});
  auto stream = device->make_stream();
  device::Memory out(device, 6 * 256, "results");
  Context c = e->context();
  std::vector<Tensor> inputs;
  for (int step = 0; step < 6; ++step)
    inputs.push_back(from_doubles(DType::f32, {8}, std::vector<double>(8, step)));
  for (int step = 0; step < 6; ++step) {
    c.bind_input(0, {8}, inputs[static_cast<size_t>(step)].data());
    c.bind_device_output(0, out.bytes_at(step * 256), 32);
    c.run_bound({.random = {3, static_cast<uint64_t>(step)}, .stream = stream->native()});
  }
  stream->synchronize();
  for (int step = 0; step < 6; ++step) {
    CAPTURE(step);
    interp::Options plain;
    plain.random = {3, static_cast<uint64_t>(step)};
    Tensor y = interp::run(e->graph(), {inputs[static_cast<size_t>(step)]}, {}, plain).outputs[0].tensor;
    CHECK(std::memcmp(out.bytes_at(step * 256), y.data(), 32) == 0);
  }
}

TEST_CASE("state layout: a flat buffer for each kind, type and program, in segments of 256 bytes") {
  const Graph g = parse_graph(R"(graph "g"(%x: f32[6], %y: f32[100]) {
  slot %a parameter "a" : f32[6]
  slot %b parameter "b" : f32[100]
  slot %f parameter "f" : f32[3,2]
  slot %m optimizer "m" : f32[6]
  slot %n optimizer "n" : f32[100]
  slot %l cache "l" : bf16[3]
  slot %c counter "c" : i64[]
  %0, %1, %2, %3 = fused(%a, %m, %x, %b, %n, %y) {body = graph "segments"(%0: f32[6], %1: f32[6], %2: f32[6], %3: f32[100], %4: f32[100], %5: f32[100]) {
    %6 = add(%1, %2) : f32[6]
    %7 = sub(%0, %6) : f32[6]
    %8 = add(%4, %5) : f32[100]
    %9 = sub(%3, %8) : f32[100]
    return %6, %7, %8, %9
  }, kind = "segments", segments = 2} : f32[6], f32[6], f32[100], f32[100]
  next %a = %1
  next %b = %3
  next %m = %0
  next %n = %2
  return %x
})");
  const std::vector<StateBuffer> all = lay_out_state(g, 4);
  std::string text;
  for (const StateBuffer& b : all) {
    append(text, cat(name(b.kind), " ", name(b.dtype), b.changes ? " changes" : "", " ", b.bytes, ":"));
    for (const StateSegment& s : b.segments) append(text, cat(" ", g.slots[s.slot].name, "@", s.offset));
    append(text, "\n");
  }
  CHECK(text ==
        "parameter f32 changes 1024: a@0 b@256\n"
        "parameter f32 1024: f@0\n"
        "optimizer f32 changes 1024: m@0 n@256\n"
        "cache bf16 1024: l@0\n");
}

TEST_CASE("device state: another context reads it without a copy, as it is then") {
  auto writer = load(R"(graph "w"(%x: f32[1024]) {
  slot %s parameter "s" : f32[1024]
  %0 = add(%s, %x) : f32[1024]
  next %s = %0
  return %x @"y"
})");
  auto reader = load(R"(graph "r"(%x: f32[1024]) {
  slot %s parameter "s" : f32[1024]
  %0 = mul(%s, %x) : f32[1024]
  return %0 @"y"
})");
  Context w = writer->context(), r = reader->context();
  w.set_state(0, filled(1));
  w.run_tensors({filled(2)});
  const int64_t before = test::fake_memory().used();
  for (int round = 0; round < 4; ++round) {
    r.share_state(0, w, 0);
    CHECK(r.run_tensors({filled(2)})[0].get_double(5) == 2 * (3 + 2 * round));
    CHECK(r.state(0).get_double(7) == 3 + 2 * round);
    r.end_sharing();
    w.run_tensors({filled(2)});
  }
  CHECK(test::fake_memory().used() - before < 4 * 4096);  // input, result and what stages them; no state
  // Before the first run it lies on the host alone.
  Context fresh = writer->context();
  fresh.set_state(0, filled(9));
  r.share_state(0, fresh, 0);
  CHECK(r.run_tensors({filled(2)})[0].get_double(0) == 18);
  r.end_sharing();
  test::expect_error(ErrorCode::usage, {"state slot 's'", "no value of its own"},
                     [&] { r.run_tensors({filled(2)}); });
  r.set_state(0, filled(4));
  CHECK(r.run_tensors({filled(2)})[0].get_double(0) == 8);
  test::expect_error(ErrorCode::usage, {"state slot 's'", "which changes"}, [&] { w.share_state(0, r, 0); });
}

TEST_CASE("device state: what an update in segments reads and writes are flat buffers") {
  static std::vector<std::vector<const void*>> seen;
  struct Watched : test::FakeKernel {
    using FakeKernel::FakeKernel;
    void run(const backend::RunArgs& args) const override {
      seen.push_back({args.in.begin(), args.in.end()});
      seen.push_back({args.out.begin(), args.out.end()});
      FakeKernel::run(args);
    }
  };
  backend::Registry with_groups;  // outlives what is made of it
  test::add_fake_kernels(with_groups);
  backend::Implementation groups;
  groups.name = "fake.groups";
  groups.ops = {"fused"};
  groups.refuse = [](const Graph&, NodeId, const device::Target&) { return std::string(); };
  groups.prepare = [](const backend::Instance& i, const device::Target&) -> std::unique_ptr<backend::Kernel> {
    return std::make_unique<Watched>(i);
  };
  groups.device = device::Kind::cuda;
  with_groups.add(std::move(groups));
  auto plan = std::make_shared<Plan>();
  plan->graph = parse_graph(R"(graph "g"(%x: f32[6], %y: f32[100], %z: f32[3]) {
  slot %a parameter "a" : f32[6]
  slot %b parameter "b" : f32[100]
  slot %c parameter "c" : f32[3]
  %u = neg(%x) : f32[6]
  %v = neg(%y) : f32[100]
  %p = mul(%y, %v) : f32[100]
  %w = neg(%z) : f32[3]
  %0, %1, %2 = fused(%a, %u, %b, %p, %c, %w) {body = graph "segments"(%0: f32[6], %1: f32[6], %2: f32[100], %3: f32[100], %4: f32[3], %5: f32[3]) {
    %6 = sub(%0, %1) : f32[6]
    %7 = sub(%2, %3) : f32[100]
    %8 = sub(%4, %5) : f32[3]
    return %6, %7, %8
  }, kind = "segments", segments = 3} : f32[6], f32[100], f32[3]
  next %a = %0
  next %b = %1
  next %c = %2
  return %x
})");
  plan->target = device::cuda_target(90);
  auto e = Executable::create(plan, with_groups, plan->target, {.check_memory = true});
  Context c = e->context();
  const std::vector<Tensor> in = {from_doubles(DType::f32, {6}, std::vector<double>(6, 2)),
                                  from_doubles(DType::f32, {100}, std::vector<double>(100, 3)),
                                  from_doubles(DType::f32, {3}, std::vector<double>(3, 4))};
  c.run_tensors(in);
  CHECK(c.state(0).get_double(5) == 2);
  CHECK(c.state(1).get_double(99) == 9);
  CHECK(c.state(2).get_double(2) == 4);
  REQUIRE(seen.size() == 2);
  auto at = [](const void* p) { return static_cast<const std::byte*>(p); };
  const std::vector<const void*>& read = seen[0];
  for (size_t first : {size_t{0}, size_t{1}}) {  // parameters, gradients
    CHECK(at(read[first + 2]) - at(read[first]) == 256);
    CHECK(at(read[first + 4]) - at(read[first]) == 256 + 512);
  }
  CHECK(seen[1] == std::vector<const void*>{read[0], read[2], read[4]});  // written over in place
}
