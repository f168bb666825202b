// SPDX-License-Identifier: Apache-2.0
// What goes wrong on a GPU: no memory when a plan is prepared or run, and a device that is lost. Messages say
// what was planned and what is there; what else runs in the process goes on where it can.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "ir/text.h"
#include "register/model.h"
#include "register/registry.h"
#include "runtime/executable.h"
#include "runtime/plugin.h"
#include "support/beside.h"
#include "support/expect_error.h"

using namespace pelton;
using pelton::test::expect_error;

namespace {

// Before any test asks for the registry: implementations come before the first model.
const std::string load_error = [] {
  try {
    runtime::load_plugin(pelton::test::next_to_binary(PELTON_TRAP_PLUGIN));
    return std::string();
  } catch (const Error& e) {
    return std::string(e.what());
  }
}();

std::shared_ptr<const runtime::Executable> load(const std::string& text,
                                                const runtime::ExecutableOptions& options = {}) {
  Model model;
  model.graph = ir::parse_graph(text);
  const device::Target target = find_device("cuda", 0);
  auto plan = std::make_shared<runtime::Plan>(compile_model(std::move(model), target, {}));
  return runtime::Executable::create(plan, registry(), target, options);
}

Tensor ones(Dims dims) {
  Tensor t(DType::f32, std::move(dims));
  for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, 1 + 0.001 * static_cast<double>(i % 97));
  return t;
}

constexpr const char* kOther = R"(graph "other"(%x: f32[64,64]) {
  %0 = matmul(%x, %x) : f32[64,64]
  %1 = softmax(%0) {axis = 1} : f32[64,64]
  return %1
})";

}  // namespace

TEST_CASE("gpu: no memory for a run names what was planned and what is free, and harms nobody else") {
  auto other = load(kOther);
  const Tensor x = ones({64, 64});
  const Tensor before = other->run({ir::HostValue(x)})[0].tensor;
  // Two results of 100 GB: each would fit, both do not.
  auto large = load(R"(graph "large"(%x: f32[1], %y: f32[1]) {
  %0 = broadcast_to(%x) {dims = dims[25,1000,1000,1000]} : f32[25,1000,1000,1000]
  %1 = broadcast_to(%y) {dims = dims[25,1000,1000,1000]} : f32[25,1000,1000,1000]
  return %0, %1
})");
  for (int i = 0; i < 2; ++i)
    expect_error(ErrorCode::out_of_memory, {"no 100000000000 bytes of GPU memory", "are free"}, [&] {
      large->run({ir::HostValue(ones({1})), ir::HostValue(ones({1}))});
    });
  CHECK(other->run({ir::HostValue(x)})[0].tensor.same_bytes(before));
}

TEST_CASE("gpu: a plan that does not fit says so when it is prepared") {
  auto other = load(kOther);
  const Tensor x = ones({64, 64});
  const Tensor before = other->run({ir::HostValue(x)})[0].tensor;
  auto large = load(R"(graph "large"(%x: f32[524288,1], %y: f32[1,524288], %z: f32[524288,1]) {
  %0 = matmul(%x, %y) : f32[524288,524288]
  %1 = softmax(%0) {axis = 1} : f32[524288,524288]
  %2 = matmul(%1, %z) : f32[524288,1]
  return %2
})");
  expect_error(ErrorCode::out_of_memory, {"takes 1099511627776 bytes", "of memory"}, [&] {
    large->prepare({{524288, 1}, {1, 524288}, {524288, 1}});
  });
  CHECK(other->run({ir::HostValue(x)})[0].tensor.same_bytes(before));
}

TEST_CASE("gpu: a model that fits runs where the memory does not hold a timing of its convolutions") {
  // A run holds three tensors of 411 MB beside what was uploaded and what cuDNN takes for its plans, 1990 MB
  // on an H200. A timing holds two of them and, for the operand, any type: 822 MB more, where 570 MB are
  // left.
  const auto model = [](int64_t size) {
    const std::string data = cat("f16[64,64,", size, ",", size, "]");
    return load(cat("graph \"g\"(%x: ", data, ", %r: ", data, R"(, %w: f16[64,64,3,3]) {
  %0 = conv(%x, %w) {low = dims[1,1], high = dims[1,1]} : )",
                    data, R"(
  %1 = add(%0, %r) : )",
                    data, R"(
  %2 = reduce_max(%1) {axes = [0, 1, 2, 3], keep_dims = false} : f16[]
  return %2
})"));
  };
  const Tensor few = Tensor::zeros(DType::f16, {64, 64, 8, 8});
  model(8)->run(
      {ir::HostValue(few), ir::HostValue(few), ir::HostValue(Tensor::zeros(DType::f16, {64, 64, 3, 3}))});
  auto e = model(224);
  const std::shared_ptr<device::Device> gpu = e->shared_device();
  gpu->activate();
  const device::Memory held(gpu, gpu->free_bytes() - (int64_t{2150} << 20), "all but 2150 MB");
  Tensor x = Tensor::zeros(DType::f16, {64, 64, 224, 224}), w = Tensor::zeros(DType::f16, {64, 64, 3, 3});
  x.set_double(5, 2);
  w.set_double(4, 3);  // the middle of the first kernel
  const Tensor y = e->run({ir::HostValue(x), ir::HostValue(x), ir::HostValue(w)})[0].tensor;
  CHECK(y.get_double(0) == 8);
}

TEST_CASE("gpu: a sequence longer than the steps fails the run, as on the CPU") {
  auto e = load(R"(graph "g"(%x: f32[4,2,3], %w: f32[1,5,3], %r: f32[1,5,5], %l: i64[2]) {
  %y, %h = rnn(%x, %w, %r, _, %l) {hidden = 5} : f32[4,1,2,5], f32[1,2,5]
  return %y
})");
  auto run = [&](int64_t first, int64_t second) {
    Tensor lengths(DType::i64, {2});
    lengths.set_int(0, first);
    lengths.set_int(1, second);
    return e
        ->run({ir::HostValue(ones({4, 2, 3})), ir::HostValue(ones({1, 5, 3})), ir::HostValue(ones({1, 5, 5})),
               ir::HostValue(lengths)})[0]
        .tensor;
  };
  const Tensor before = run(4, 0);
  for (const auto& [first, second] : {std::pair<int64_t, int64_t>{5, 0}, {4, -1}})
    expect_error(ErrorCode::bad_shape, {"length", "rnn"}, [&] { run(first, second); });
  CHECK(run(4, 0).same_bytes(before));
}

TEST_CASE("gpu: a memory budget is kept") {
  runtime::ExecutableOptions options;
  options.memory_budget_bytes = 1 << 20;
  auto e = load(R"(graph "g"(%x: f32[512,512]) {
  %0 = matmul(%x, %x) : f32[512,512]
  %1 = softmax(%0) {axis = 1} : f32[512,512]
  %2 = matmul(%1, %x) : f32[512,512]
  %3 = matmul(%2, %1) : f32[512,512]
  return %3
})",
                options);
  expect_error(ErrorCode::limit, {"the arena of graph 'g'", "the memory budget is 1048576"}, [&] {
    e->run({ir::HostValue(ones({512, 512}))});
  });
}

namespace {

// In a process of its own: the device is lost for the rest of it.
int lose_device() {
  try {
    if (!load_error.empty()) throw std::runtime_error(load_error);
    auto other = load(kOther);
    const Tensor x = ones({64, 64});
    other->run({ir::HostValue(x)});
    auto e = load(R"(graph "losing"(%x: f32[64]) {
  %0 = neg(%x) : f32[64]
  %1 = custom(%0) {domain = "example", name = "trap"} : f32[64]
  return %1
})");
    auto fails = [&](const runtime::Executable& which, const Tensor& in, const char* words) {
      try {
        which.run({ir::HostValue(in)});
      } catch (const Error& error) {
        if (error.code() == ErrorCode::device_lost &&
            std::string(error.what()).find(words) != std::string::npos)
          return true;
        std::fprintf(stderr, "another error: %s\n", error.what());
        return false;
      }
      std::fprintf(stderr, "no error\n");
      return false;
    };
    if (!fails(*e, ones({64}), "custom")) return 2;
    if (!fails(*e, ones({64}), "start the process again")) return 3;
    if (!fails(*other, x, "start the process again")) return 4;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "an error too early: %s\n", error.what());
    return 5;
  }
  return 0;
}

}  // namespace

TEST_CASE("gpu: a lost device is a clear error that names the kernel, for every plan, and nothing hangs") {
  if (std::getenv("PELTON_TEST_LOSE_DEVICE")) std::exit(lose_device());
  for (const char* poison : {"0", "1"}) {
    CAPTURE(poison);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      setenv("PELTON_TEST_LOSE_DEVICE", "1", 1);
      setenv("PELTON_POISON", poison, 1);
      alarm(60);
      execl("/proc/self/exe", "test_gpu", "-tc=gpu: a lost device*", nullptr);
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}
