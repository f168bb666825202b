// SPDX-License-Identifier: Apache-2.0
#include "runtime/packed_weights.h"

#include <doctest/doctest.h>

#include <cstring>

#include "base/file.h"
#include "runtime/plan_file.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace pelton;
using namespace pelton::runtime;
using pelton::test::TempDir;

namespace {

constexpr int64_t kCount = 1024, kBytes = kCount * 4;

// first, first + 1, ...
Tensor weights(float first) {
  Tensor t(DType::f32, {kCount});
  for (int64_t i = 0; i < kCount; ++i)
    static_cast<float*>(t.mutable_data())[i] = first + static_cast<float>(i);
  return t;
}

Plan plan_of(const Tensor& weights) {
  Plan plan;
  const ir::ValueId x = plan.graph.add_input(ir::Type::tensor(DType::f32, {Dim(kCount)}), "x");
  const ir::NodeId w = plan.graph.add_node(ir::op("constant"), {}, {{"value", weights}}, 1);
  plan.graph.edit(plan.graph[w].outputs[0]).type = ir::Type::tensor(DType::f32, {Dim(kCount)});
  const ir::NodeId add = plan.graph.add_node(ir::op("add"), {x, plan.graph[w].outputs[0]}, {}, 1);
  plan.graph.edit(plan.graph[add].outputs[0]).type = ir::Type::tensor(DType::f32, {Dim(kCount)});
  plan.graph.add_output(plan.graph[add].outputs[0], "y");
  plan.target = device::detect_cpu(1);
  plan.choices.resize(2);
  plan.choices[0].implementation = kNothing;
  plan.choices[1].implementation = kReference;
  return plan;
}
const auto zeros = [](void* to) { std::memset(to, 0, kBytes - 4); };
const auto never = [](void*) { FAIL("was packed before"); };
const Tensor& constant_of(const Plan& plan) {
  return *plan.graph.constant(plan.graph[plan.graph.order()[0]].outputs[0]);
}

}  // namespace

TEST_CASE("packed weights: made once for kernels that live at the same time") {
  PackedWeights& store = PackedWeights::instance();
  const Tensor w = weights(1);
  auto one = store.get(w, "order", kBytes, zeros);
  CHECK(store.get(w, "order", kBytes, never)->data() == one->data());
  int made = 0;
  const auto count = [&](void* to) {
    ++made;
    zeros(to);
  };
  store.get(w, "another", kBytes, count);
  store.get(w, "another", kBytes, count);  // the first is gone
  CHECK(made == 2);
}

TEST_CASE("packed weights: a plan brings them to who asks by constant and order, for as long as it lives") {
  const Tensor w = weights(1);
  const Tensor other = weights(9);
  PackedWeights& store = PackedWeights::instance();
  const auto backwards = [&](void* to) {
    for (int64_t i = 0; i < kCount; ++i)
      static_cast<float*>(to)[i] = static_cast<const float*>(w.data())[kCount - 1 - i];
  };
  store.record();
  store.get(w, "backwards", kBytes, backwards);
  store.get(other, "backwards", kBytes, backwards);  // no constant of the plan
  TempDir dir;
  save_plan(plan_of(w), dir / "a.pelton", nullptr, store.take());
  store.get(w, "later", kBytes, zeros);  // not recorded
  CHECK(store.take().empty());

  auto plan = load_plan(dir / "a.pelton");
  const Tensor constant = constant_of(*plan);
  const auto found = store.get(constant, "backwards", kBytes, never);
  CHECK(static_cast<const float*>(found->data())[0] == kCount);
  int made = 0;
  const auto count = [&](void* to) {
    ++made;
    zeros(to);
  };
  store.get(constant, "forwards", kBytes, count);
  store.get(constant, "backwards", kBytes - 4, count);
  store.get(w, "backwards", kBytes, count);
  CHECK(made == 3);
  // Whoever holds the bytes keeps the file mapped.
  plan.reset();
  CHECK(static_cast<const float*>(found->data())[kCount - 1] == 1);
}

TEST_CASE("packed weights: private copies of weights do without") {
  const Tensor w = weights(5);
  const auto turned = std::make_shared<const Tensor>(weights(8));
  TempDir dir;
  save_plan(plan_of(w), dir / "a.pelton", nullptr, {{w, "backwards", turned}});
  auto plan = load_plan(dir / "a.pelton", {.map = false});
  bool made = false;
  PackedWeights::instance().get(constant_of(*plan), "backwards", kBytes, [&](void* to) {
    made = true;
    zeros(to);
  });
  CHECK(made);
}

TEST_CASE("packed weights: damaged ones are refused by name") {
  const Tensor w = weights(1);
  const auto turned = std::make_shared<const Tensor>(weights(4));
  TempDir dir;
  save_plan(plan_of(w), dir / "a.pelton", nullptr, {{w, "backwards", turned}});
  std::string bytes = read_file(dir / "a.pelton");
  bytes[bytes.size() - 1] ^= 1;
  write_file(dir / "a.pelton", bytes);
  test::expect_error(ErrorCode::bad_format, {"a.pelton", "section 'packed'", "checksum"},
                     [&] { load_plan(dir / "a.pelton"); });
}

TEST_CASE("what nobody holds any more is forgotten, though nobody asks for it again") {
  std::vector<Tensor> constants;  // alive, so that no two of them have one address
  for (int i = 0; i < 3000; ++i) {
    constants.push_back(weights(static_cast<float>(i)));
    (void)PackedWeights::instance().get(constants.back(), "forgotten", kBytes, zeros);
  }
  CHECK(PackedWeights::instance().known() < 1000);
  // What is held stays.
  std::vector<std::shared_ptr<const Tensor>> held;
  for (const Tensor& c : constants) held.push_back(PackedWeights::instance().get(c, "held", kBytes, zeros));
  for (size_t i = 0; i < held.size(); ++i)
    CHECK(PackedWeights::instance().get(constants[i], "held", kBytes, never)->data() == held[i]->data());
}
