// SPDX-License-Identifier: Apache-2.0
// Tensor data beside a model: bytes stay where they are, beyond 2 GiB too, and nothing outside the folder is
// read.
#include <doctest/doctest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "model_text.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace pelton;
using test::expect_error;
using test::ModelText;

namespace {

std::string entry(std::string_view key, std::string_view value) {
  wire::Writer w;
  w.bytes(pb::StringStringEntryProto::key, key);
  w.bytes(pb::StringStringEntryProto::value, value);
  return w.take();
}

// A model that adds an f32[count] kept in another file to its input.
void write_model(const std::string& path, std::string_view location, std::string_view offset,
                 std::string_view length, int64_t count = 4) {
  wire::Writer tensor, w;
  tensor.ints(pb::TensorProto::dims, {count});
  tensor.integer(pb::TensorProto::data_type, 1);
  tensor.bytes(pb::TensorProto::name, "weight");
  for (const std::string& e : {entry("location", location), entry("offset", offset), entry("length", length)})
    tensor.bytes(pb::TensorProto::external_data, e);
  tensor.integer(pb::TensorProto::data_location, 1);
  w.bytes(pb::GraphProto::initializer, tensor.data());
  ModelText m;
  m.input("x", {count}).output("y").node("Add", {"x", "weight"}, {"y"});
  m.graph += w.data();
  write_file(path, m.bytes());
}

// Bytes of private writable memory, the heap among it.
rlim_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmData:")) return std::stoull(line.substr(7)) << 10;
  return 0;
}
constexpr rlim_t kReading = 64 << 10;  // more than that takes of it
// Exit status of a process that runs f with at most `bytes` of writable memory more than it has.
template <class F>
int within(rlim_t bytes, F&& f) {
  const pid_t child = fork();
  if (child == 0) {
    malloc_trim(0);  // what was freed gives nothing
    const rlim_t most = data_bytes() + bytes - kReading;
    const rlimit limit{most, most};
    if (most + kReading == bytes || setrlimit(RLIMIT_DATA, &limit) != 0) _exit(3);
    try {
      _exit(f() ? 0 : 1);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      _exit(2);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const Tensor& weight_of(const ir::Graph& g) {
  for (ir::NodeId id : g.order())
    if (g[id].is("constant")) return g[id].get_tensor("value");
  FAIL("no constant");
  throw 0;
}

}  // namespace

TEST_CASE("external data is read in place, at offsets beyond 2 GiB") {
  test::TempDir dir;
  std::string data = dir.path() + "/weights.bin", model = dir.path() + "/m.onnx";
  constexpr uint64_t offset = (uint64_t{5} << 30) + 64;
  {
    std::ofstream f(data, std::ios::binary);
    float values[4] = {1, 2, 3, 4};
    f.seekp(offset);
    f.write(reinterpret_cast<char*>(values), sizeof values);
  }
  write_model(model, "weights.bin", cat(offset), "16");
  onnx::Imported imported = onnx::import_file(model);
  CHECK(to_doubles(weight_of(imported.graph)) == std::vector<double>{1, 2, 3, 4});
}

#ifndef __SANITIZE_ADDRESS__  // which takes memory of its own
TEST_CASE("a model of 3 GiB is imported within 64 MiB of heap") {
  test::TempDir dir;
  constexpr int64_t count = int64_t{3} << 28;
  {
    std::ofstream f(dir.path() + "/weights.bin", std::ios::binary);
    const float last = 7;
    f.seekp(4 * (count - 1));
    f.write(reinterpret_cast<const char*>(&last), sizeof last);
  }
  write_model(dir.path() + "/m.onnx", "weights.bin", "0", cat(4 * count), count);
  auto last_weight = [&] {
    const onnx::Imported imported = onnx::import_file(dir.path() + "/m.onnx");
    const Tensor& weight = weight_of(imported.graph);
    return weight.count() == count && weight.get_double(count - 1) == 7;
  };
  CHECK(within(64 << 20, last_weight) == 0);
  // The bound bites: a copy of the weights does not fit.
  CHECK(within(64 << 20, [] { return std::string(64 << 20, 'x').size() == 64 << 20; }) == 2);
}
#endif

TEST_CASE("external data outside the folder or the file is refused") {
  namespace fs = std::filesystem;
  test::TempDir dir;
  std::string folder = dir.path() + "/model", model = folder + "/m.onnx";
  fs::create_directory(folder);
  write_file(folder + "/inside.bin", std::string(16, 'x'));
  write_file(dir.path() + "/outside.bin", std::string(16, 'x'));
  fs::create_symlink(dir.path() + "/outside.bin", folder + "/link.bin");
  auto refused = [&](std::string_view location, std::string_view offset, std::string_view length,
                     ErrorCode code, std::initializer_list<const char*> words) {
    write_model(model, location, offset, length);
    expect_error(code, words, [&] { onnx::import_file(model); });
  };
  refused("../outside.bin", "0", "16", ErrorCode::bad_format, {"outside.bin"});
  refused("link.bin", "0", "16", ErrorCode::bad_format, {"link.bin"});
  refused(dir.path() + "/outside.bin", "0", "16", ErrorCode::bad_format, {"outside.bin"});
  refused("inside.bin", "8", "16", ErrorCode::bad_format,
          {"tensor 'weight'", "lies outside 'inside.bin' of 16 bytes"});
  refused("inside.bin", "0", "12", ErrorCode::bad_format, {"holds 12 bytes", "needs 16"});
  refused("inside.bin", "-1", "16", ErrorCode::bad_format, {"offset", "not a size"});
  refused("missing.bin", "0", "16", ErrorCode::not_found, {"missing.bin"});
}

TEST_CASE("large tensors stay in the file whatever their alignment, small ones are copied") {
  auto read = [](int64_t count) {
    ModelText m;
    m.input("x", {count}).output("y").node("Add", {"x", "w"}, {"y"});
    Tensor w = Tensor::full(DType::f32, {count}, 0.5);
    for (size_t at = 0; at < 4; ++at) {  // names of four lengths put the data at four alignments
      ModelText one = m;
      std::string name = std::string(at, 'n') + "v";
      one.initializer(name, w).node("Identity", {name}, {"w"});
      auto owner = std::make_shared<std::string>(one.bytes());
      onnx::Imported imported = onnx::import_bytes(*owner, owner, "");
      const auto* data = static_cast<const char*>(weight_of(imported.graph).data());
      bool in_file = data >= owner->data() && data < owner->data() + owner->size();
      if (!in_file) return false;
    }
    return true;
  };
  CHECK(read(1 << 19));        // 2 MiB: in the file at all four alignments
  CHECK_FALSE(read(1 << 10));  // 4 KiB: copied at one of them
}
