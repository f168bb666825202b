// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/file.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "tensor/safetensors.h"
#include "train/weights.h"

using namespace pelton;
using namespace pelton::train;
using test::expect_error;

namespace {

Checkpoint sample(int64_t updates, int64_t size = 3) {
  Checkpoint c;
  c.state["w"] = Tensor::full(DType::f32, {size, 2}, static_cast<double>(updates));
  c.state["updates"] = Tensor::scalar<int64_t>(updates);
  c.updates = updates;
  c.epoch = 2;
  c.epoch_step = 5;
  c.data_state = "e2 s5";
  c.model = "mlp";
  c.recipe = "version = 1\n";
  c.best = 0.5;
  c.has_best = true;
  c.since_best = 1;
  c.tactics = {{"a machine\nmatmul 2x3", "proposal 2"}};
  return c;
}

}  // namespace

TEST_CASE("checkpoint: what is written reads, every field and bit") {
  test::TempDir dir;
  Checkpoint a = sample(7);
  write_checkpoint(dir / "x.safetensors", a);
  Checkpoint b = read_checkpoint(dir / "x.safetensors");
  CHECK((b.updates == 7 && b.epoch == 2 && b.epoch_step == 5 && b.data_state == "e2 s5"));
  CHECK(
      (b.model == "mlp" && b.recipe == "version = 1\n" && b.has_best && b.best == 0.5 && b.since_best == 1));
  CHECK(b.tactics == a.tactics);
  for (const auto& [name, t] : a.state) CHECK(b.state.at(name).same_bytes(t));
  // Any reader of safetensors reads it.
  CHECK(load_safetensors(dir / "x.safetensors").tensors.at("w").count() == 6);
}

TEST_CASE("checkpoint: one changed or missing byte is found, and the one before is used") {
  test::TempDir dir;
  write_checkpoint(dir / checkpoint_name(1), sample(1));
  write_checkpoint(dir / checkpoint_name(2), sample(2));
  std::string good = read_file(dir / checkpoint_name(2));
  for (size_t at : {size_t{4}, size_t{60}, good.size() / 2, good.size() - 1}) {
    CAPTURE(at);
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_file(dir / checkpoint_name(2), bad);
    CHECK_THROWS_AS(read_checkpoint(dir / checkpoint_name(2)), Error);
    CHECK(newest_checkpoint(dir.path()).updates == 1);
  }
  write_file(dir / checkpoint_name(2), good.substr(0, good.size() - 3));
  CHECK(newest_checkpoint(dir.path()).updates == 1);
  write_file(dir / checkpoint_name(2), good);
  CHECK(newest_checkpoint(dir.path()).updates == 2);
}

TEST_CASE("checkpoint: plain weights and empty folders are refused by name") {
  test::TempDir dir;
  save_safetensors(dir / "w.safetensors", {{"w", Tensor::scalar<float>(1)}});
  expect_error(ErrorCode::bad_format, {"no checkpoint", "weights ="},
               [&] { read_checkpoint(dir / "w.safetensors"); });
  expect_error(ErrorCode::not_found, {"no checkpoint that can be read"},
               [&] { newest_checkpoint(dir.path()); });
}

TEST_CASE("checkpoint: the writer keeps the newest and the best") {
  test::TempDir dir;
  CheckpointWriter writer(dir / "c", 2);
  for (int64_t i = 1; i <= 5; ++i) writer.write(sample(i), i == 2);
  writer.wait();
  CHECK(list_checkpoints(dir / "c") ==
        std::vector<std::string>{dir / ("c/" + checkpoint_name(5)), dir / ("c/" + checkpoint_name(4))});
  CHECK(read_checkpoint(dir / "c/best.safetensors").updates == 2);
}

TEST_CASE("checkpoint: an error of the background is told by the next call") {
  test::TempDir dir;
  CheckpointWriter writer(dir / "c", 2);
  std::filesystem::remove_all(dir / "c");
  writer.write(sample(1), false);
  expect_error(ErrorCode::not_found, {"create", "c/step-"}, [&] { writer.wait(); });
}

TEST_CASE("checkpoint: a process killed at any moment leaves one that loads") {
  test::TempDir dir;
  write_checkpoint(dir / checkpoint_name(1), sample(1));
  for (int round = 0; round < 12; ++round) {
    pid_t child = fork();
    if (child == 0) {
      // Big enough that a kill falls into the write; only async-safe exits from here on.
      for (int64_t i = 2;; ++i) write_checkpoint(dir / checkpoint_name(2 + i % 3), sample(i, 1 << 17));
    }
    usleep(static_cast<useconds_t>(1000 * (round * round)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    for (const std::string& path : list_checkpoints(dir.path())) CHECK_NOTHROW(read_checkpoint(path));
    CHECK(newest_checkpoint(dir.path()).updates >= 1);
  }
}

TEST_CASE("weights: names below a prefix are found, misfits and gaps are listed") {
  ir::Graph g;
  for (const char* name : {"fc.weight", "fc.bias", "head.weight"}) {
    ir::Slot s;
    s.name = name;
    s.type = ir::Type::tensor(DType::f32, {2});
    g.add_slot(s);
  }
  auto two = [](double v) { return Tensor::full(DType::f32, {2}, v); };
  LoadReport r = load_weights(g,
                              {{"module.fc.weight", two(1)},
                               {"module.fc.bias", two(2)},
                               {"module.head.weight", two(3)},
                               {"extra", two(0)}},
                              {}, "f");
  CHECK(r.loaded == 3);
  CHECK(r.unused == std::vector<std::string>{"extra"});
  CHECK(g.slots[2].initial.get_double(0) == 3);
  std::map<std::string, Tensor> part = {{"fc.weight", two(1)}, {"fc.bias", Tensor::full(DType::f32, {3}, 1)}};
  expect_error(ErrorCode::bad_name,
               {"1 weights do not fit: fc.bias (f32[3] for f32[2])", "1 weights are missing: head.weight",
                "model.fresh"},
               [&] { load_weights(g, part, {}, "f"); });
  r = load_weights(g, part, {"head.*", "fc.bias"}, "f");
  CHECK(r.loaded == 1);
  CHECK(r.fresh.size() == 2);
  expect_error(ErrorCode::bad_format, {"pickled", "safetensors.torch.save_file"},
               [] { read_weights("x.pth"); });
}
