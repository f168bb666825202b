// SPDX-License-Identifier: Apache-2.0
// Inputs and results in GPU memory, and streams, through the C interface.
#include <doctest/doctest.h>

#include <numeric>

#include "base/file.h"
#include "pelton/pelton.h"
#include "register/model.h"
#include "register/registry.h"
#include "support/temp_dir.h"

namespace {

struct Gpu {
  std::shared_ptr<pelton::device::Device> device = pelton::registry().open(pelton::find_device("cuda", 0));
  std::unique_ptr<pelton::device::Stream> stream = device->make_stream();

  pelton::device::Memory put(const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    pelton::device::Memory memory(device, bytes, "values of a test");
    stream->upload(memory.get(), values.data(), bytes);
    stream->synchronize();
    return memory;
  }
  std::vector<float> get(const pelton::device::Memory& memory) {
    std::vector<float> values(static_cast<size_t>(memory.bytes()) / sizeof(float));
    stream->download(values.data(), memory.get(), memory.bytes());
    stream->synchronize();
    return values;
  }
};

std::vector<float> count(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

}  // namespace

TEST_CASE("gpu: inputs and results in GPU memory, and a stream of the caller's, through the C interface") {
  constexpr int64_t kRows = 5, kCount = kRows * 64;
  pelton::test::TempDir folder;
  const std::string path = folder / "m.ir";
  const std::string text = R"(graph "m"(%x: f32[N,64]) {
  symbol N in [1, 100]
  %w = constant() {value = tensor<f32[1]>{3}} : f32[1]
  %0 = mul(%x, %w) : f32[N,64]
  %1 = reduce_max(%0) {axes = [1]} : f32[N]
  return %0 @"y", %1 @"m"
})";
  pelton::write_file(path, text);
  pelton::PlanOptions options;
  options.device = "cuda";
  pelton::Plan plan(path, options);
  pelton::Context context(plan);
  Gpu gpu;
  const pelton_device place{PELTON_CUDA, 0};
  const std::vector<float> x = count(kCount);
  pelton::device::Memory in = gpu.put(x), y = gpu.put(std::vector<float>(kCount, -1.0f)),
                         m = gpu.put(std::vector<float>(kRows, -1.0f));
  auto on_gpu = [&](const pelton::device::Memory& at, std::vector<int64_t> shape, int64_t offset = 0) {
    return pelton::view(reinterpret_cast<const float*>(at.bytes_at(offset)), std::move(shape), place);
  };
  context.set_input(0, on_gpu(in, {kRows, 64}));
  context.set_output(0, on_gpu(y, {kRows, 64}));
  context.run();
  std::vector<float> got = gpu.get(y);
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == 3 * x[i]);
  pelton::Output there = context.output(0), here = context.output(1);
  CHECK(there.device().device_type == PELTON_CUDA);
  CHECK(there.data<float>() == y.get());
  CHECK(there.shape() == std::vector<int64_t>{kRows, 64});
  CHECK(here.device().device_type == PELTON_CPU);
  for (int64_t r = 0; r < kRows; ++r) CHECK(here.data<float>()[r] == 3.0f * static_cast<float>(64 * r + 63));

  context.set_output(1, on_gpu(m, {kRows}));
  pelton::RunOptions run;
  run.stream = gpu.stream->native();
  for (int i = 0; i < 3; ++i) context.run(run);  // enqueued, recorded, played
  CHECK(gpu.get(m).back() == 3.0f * static_cast<float>(kCount - 1));

  auto refused = [&](pelton::View view, const char* words) {
    try {
      context.set_input(0, std::move(view));
      FAIL("taken");
    } catch (const pelton::Failure& e) {
      CHECK(std::string(e.what()).find(words) != std::string::npos);
    }
  };
  refused(on_gpu(in, {1, 64}, 4), "multiple of 16");
  refused(pelton::view(static_cast<const float*>(in.get()), {kRows, 64}, {PELTON_CUDA, 5}),
          "lies on GPU 5, the plan runs on GPU 0");
  CHECK_THROWS_AS(context.copy_input(0, on_gpu(in, {kRows, 64})), pelton::Failure);

  std::vector<float> host(kCount);  // back to memory of the host
  context.set_input(0, pelton::view(x, {kRows, 64}));
  context.set_output(0, pelton::view(host, {kRows, 64}));
  context.run();
  CHECK(host.back() == 3 * x.back());
}
