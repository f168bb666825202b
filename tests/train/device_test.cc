// SPDX-License-Identifier: Apache-2.0
// Steps on a device, by one that is a device only in its rules (tests/runtime/fake_device.h): every op runs
// there by its reference function, so that state, losses and random numbers must be those of the interpreter,
// bit by bit.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "runtime/fake_device.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/formula.h"
#include "train/program.h"
#include "train/trainer.h"

using namespace pelton;
using namespace pelton::train;
using pelton::test::fake;

namespace {

// A device that takes every op.
backend::Registry* make_registry() {
  auto* made = new backend::Registry;
  test::add_fake_kernels(*made);
  backend::Implementation all;
  all.name = "fake.all";
  for (const ir::OpDef* op : ir::all_ops())
    if (op->eval && op->effects != ir::Effects::ordered) all.ops.push_back(op->name);
  all.refuse = [](const ir::Graph&, ir::NodeId, const device::Target&) { return std::string(); };
  all.prepare = [](const backend::Instance& i, const device::Target&) -> std::unique_ptr<backend::Kernel> {
    return std::make_unique<test::FakeKernel>(i);
  };
  all.device = device::Kind::cuda;
  made->add(std::move(all));
  return made;
}

// Without the device, reference functions on the host.
const backend::Registry& registry(bool device) {
  static backend::Registry *with = make_registry(), *without = new backend::Registry;
  return device ? *with : *without;
}

StepOptions options() {
  StepOptions o;
  o.batch = 8;
  o.seed = 1;
  o.optimizer = "adamw";
  o.schedule.lr = 0.01;
  o.average = 0.5;
  return o;
}

std::unique_ptr<Trainable> model(double dropout = 0) {
  return named_model(
      "mlp",
      {{"features", int64_t{6}}, {"hidden", ir::Ints{5}}, {"classes", int64_t{3}}, {"dropout", dropout}});
}

// Without passes, so that host and device run the same nodes.
Program program(const StepOptions& o, const Trainable& m, bool device) {
  compiler::Options plain;
  for (const std::string& pass : compiler::pass_names()) plain.disabled.insert(pass);
  return Program(build_train_step(m, o), device ? device::cuda_target(90) : device::detect_cpu(1), plain,
                 registry(device));
}

std::vector<Tensor> batch(int64_t i) {
  return {test::uniform_tensor(cat("x", i), {8, 6}), test::tokens(cat("y", i), {8}, 3)};
}

void same_state(const Program& a, const Program& b) {
  for (const auto& [name, t] : a.all_state()) {
    CAPTURE(name);
    CHECK(t.same_bytes(b.state(name)));
  }
}

}  // namespace

TEST_CASE("device step: losses, state and dropout are those of the host while two steps are on their way") {
  StepOptions o = options();
  auto m = model(0.5);
  Program host = program(o, *m, false), dev = program(o, *m, true);
  CHECK(dev.most_running() == 2);
  std::vector<double> expected, got;
  for (uint64_t i = 0; i < 9; ++i) {
    expected.push_back(host.run(batch(static_cast<int64_t>(i)), {7, i}).at("loss").get_double(0));
    if (dev.running() == dev.most_running()) got.push_back(dev.finish().at("loss").get_double(0));
    dev.start(batch(static_cast<int64_t>(i)), {7, i});
  }
  while (dev.running() > 0) got.push_back(dev.finish().at("loss").get_double(0));
  CHECK(got == expected);
  same_state(host, dev);
}

TEST_CASE("device step: it is recorded, and nothing but batches and results moves") {
  StepOptions o = options();
  auto m = model();
  Program dev = program(o, *m, true);
  for (int64_t i = 0; i < 6; ++i) dev.run(batch(i), {});
  int plays = fake().plays, kernels = fake().kernels, uploads = fake().uploads, downloads = fake().downloads;
  for (int64_t i = 0; i < 4; ++i) dev.run(batch(i), {});
  CHECK(fake().plays - plays == 4);
  CHECK(fake().kernels == kernels);
  CHECK(fake().uploads - uploads == 4 * 2);  // inputs and labels
  CHECK(fake().downloads - downloads == 4);
}

TEST_CASE(
    "device step: pinned inputs and those on the device are read where they are, and kept until it ends") {
  StepOptions o = options();
  auto m = model();
  Program host = program(o, *m, false), dev = program(o, *m, true);
  const std::shared_ptr<device::Device> device = dev.executable().shared_device();
  for (int64_t i = 0; i < 5; ++i) {
    const std::vector<Tensor> in = batch(i);
    auto pinned =
        std::make_shared<device::Memory>(device, in[0].bytes(), "a batch", device::Memory::Where::pinned);
    auto there = std::make_shared<device::Memory>(device, in[0].bytes(), "a batch");
    std::memcpy(pinned->get(), in[0].data(), static_cast<size_t>(in[0].bytes()));
    std::memcpy(there->get(), in[0].data(), static_cast<size_t>(in[0].bytes()));
    StepInputs inputs(in);
    std::weak_ptr<const void> kept;
    if (i % 2 == 0) {
      kept = pinned;
      inputs.host[0] = Tensor::borrow(in[0].dtype(), in[0].dims(), pinned->get(), pinned);
    } else {
      kept = there;
      inputs.host[0] = Tensor();
      inputs.on_device[0] = {
          "x", in[0].dtype(), in[0].dims(), device, {there, static_cast<const uint8_t*>(there->get())}};
      CHECK(inputs.to_host()[0].same_bytes(in[0]));
    }
    const double expected = host.run(in, {7, static_cast<uint64_t>(i)}).at("loss").get_double(0);
    dev.start(inputs, {7, static_cast<uint64_t>(i)});
    inputs = {};
    pinned.reset();
    there.reset();
    CHECK_FALSE(kept.expired());
    CHECK(dev.finish().at("loss").get_double(0) == expected);
    CHECK(kept.expired());
  }
  same_state(host, dev);
  StepInputs wrong(batch(0));
  wrong.on_device[0] = {"x", DType::u8, {8, 6}, device, nullptr};
  test::expect_error(ErrorCode::bad_shape, {"input 0 of the step", "got u8"}, [&] { dev.start(wrong, {}); });
}

TEST_CASE("device step: after a step that is not finite none changes anything, and its node is named") {
  StepOptions o = options();
  o.ahead = true;
  auto m = model();
  Program dev = program(o, *m, true);
  dev.run(batch(0), {});
  auto before = dev.all_state();
  std::vector<Tensor> bad = batch(1);
  bad[0].set_double(3, NAN);
  dev.start(bad, {});
  dev.start(batch(2), {});
  CHECK(std::isnan(dev.finish().at("loss").get_double(0)));
  CHECK(std::isfinite(dev.finish().at("loss").get_double(0)));
  for (const auto& [name, t] : before)
    if (name != "failed") CHECK(dev.state(name).same_bytes(t));
  CHECK(dev.state("failed").get_int(0) == 1);
  CHECK(dev.first_not_finite(bad, {}).find("'0'") != std::string::npos);
  dev.run(batch(3), {});
  CHECK(dev.state("updates").get_int(0) == 1);
}

TEST_CASE(
    "device step: loss scaling halves at an overflow, grows after its interval, and fails at the floor") {
  StepOptions o = options();
  o.optimizer = "sgd";
  o.average = 0;
  o.ahead = true;
  o.scaling = {true, 0x1p127, 0x1p120, 0x1p127, 3};
  auto m = model();
  Program scaled = program(o, *m, true);
  o.scaling = {};
  Program plain = program(o, *m, true);
  // Until the scaled gradients fit f32 (their squares, which are summed), nothing but the scale changes.
  auto before = scaled.all_state();
  auto out = scaled.run(batch(0), {});
  CHECK(!std::isfinite(out.at("grad_norm").get_double(0)));
  CHECK(out.at("loss_scale").get_double(0) == 0x1p127);
  CHECK(scaled.state("loss_scale").get_double(0) == 0x1p126);
  CHECK(scaled.state("updates").get_int(0) == 0);
  CHECK(scaled.state("0.weight").same_bytes(before["0.weight"]));

  scaled.set_state("loss_scale", from_doubles(DType::f32, {}, {0x1p10}));
  for (int64_t i = 0; i < 3; ++i) {
    scaled.run(batch(i), {});
    plain.run(batch(i), {});
  }
  CHECK(scaled.state("loss_scale").get_double(0) == 0x1p11);
  CHECK(scaled.state("loss_scale.good").get_double(0) == 0);
  // A power of two takes no bit away.
  for (const std::string& name : scaled.trained()) CHECK(scaled.state(name).same_bytes(plain.state(name)));

  scaled.set_state("loss_scale", from_doubles(DType::f32, {}, {0x1p120}));
  scaled.run(batch(0), {});
  CHECK(scaled.state("failed").get_int(0) == 1);
  CHECK(scaled.state("loss_scale").get_double(0) == 0x1p120);
}

TEST_CASE("device step: micro-batches run one after the other, forward and backward") {
  StepOptions o = options();
  o.accumulate = 4;
  auto m = model();
  StepGraph g = build_train_step(*m, o);
  // The first micro-batch's backward pass stands before the second one's products.
  std::vector<std::string> passes;
  for (ir::NodeId id : g.graph.order())
    if (g.graph[id].is("matmul")) {
      bool back = g.graph[id].name.find("/grad") != std::string::npos;
      std::string pass = back ? "backward" : "forward";
      if (passes.empty() || passes.back() != pass) passes.push_back(pass);
    }
  CHECK(passes == std::vector<std::string>{"forward", "backward", "forward", "backward", "forward",
                                           "backward", "forward", "backward"});
}

TEST_CASE("device: a run that does not fit says by how much to lower the batch, and that batch fits") {
  const test::TempDir dir;
  auto losses = [&](int64_t batch, const std::string& run) {
    const Recipe recipe = parse_recipe(cat(R"(version = 1
model = { name = "mlp", features = 16, hidden = [32, 32, 32, 32, 32, 32], classes = 3 }
data = { synthetic = [16], synthetic_count = 4096, batch = )",
                                           batch, R"( }
step = { steps = 4 }
optimizer = { name = "adamw", lr = 0.01 }
output = { folder = ")",
                                           dir.path(), "/", run, "\", every = 1 }\n"),
                                       "r.toml", "");
    TrainerOptions o;
    o.target = device::cuda_target(90);
    std::vector<double> out;
    o.on_moment = [&](const Moment& m) { out.push_back(m.values[0].second); };
    Trainer(recipe, o, registry(true)).run();
    return out;
  };
  struct Restore {
    ~Restore() { fake().limit_bytes = int64_t{1} << 40; }
  } restore;
  // State and gradients take 0.1 MB, what lies between the layers of 4096 samples several.
  constexpr int64_t kRoom = 2'500'000;
  fake().limit_bytes = test::fake_memory().used() + kRoom;
  std::string advice;
  try {
    losses(4096, "large");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::out_of_memory);
    advice = e.fix();
  }
  CAPTURE(advice);
  const size_t at = advice.find("lower data.batch");
  REQUIRE(at != std::string::npos);
  long long lower = 0, parts = 0;
  REQUIRE(std::sscanf(advice.c_str() + at,
                      "lower data.batch from 4096 to %lld, or raise step.accumulate from 1 to %lld", &lower,
                      &parts) == 2);
  CHECK(lower > 2048);
  CHECK(lower < 4096);
  CHECK(4096 % parts == 0);
  CHECK(4096 / parts <= lower);
  // The last batch of an epoch is a short one, and both steps do not fit beside each other.
  const std::vector<double> got = losses(lower, "lower");
  fake().limit_bytes = int64_t{1} << 40;
  CHECK(got == losses(lower, "with room"));
  CHECK(got.size() == 4);
  fake().limit_bytes = test::fake_memory().used() + 20'000;
  test::expect_error(ErrorCode::out_of_memory, {"do not fit", "use a smaller model"},
                     [&] { losses(8, "none"); });
}
