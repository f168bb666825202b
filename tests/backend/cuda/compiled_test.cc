// SPDX-License-Identifier: Apache-2.0
// Compiled kernels that plans and caches bring: whole ones are used, damaged ones made again.
#include "backend/cuda/compiled.h"

#include <doctest/doctest.h>

#include <elf.h>
#include <cstring>

#include "backend/cuda/cubin.h"
#include "backend/cuda/harness.h"
#include "backend/cuda/libraries.h"
#include "device/artifacts.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;
using namespace pelton::backend::cuda;

namespace {

// Of its own for each test: a process keeps what it has loaded.
std::string text_of(int number) {
  return cat("extern \"C\" __global__ void add(float* x) { x[threadIdx.x] += ", number, "; }");
}

// The artifacts of one compiled text, and its cubin.
std::pair<device::Artifacts::Entries, std::string> compile(const std::string& text, int sm) {
  device::Artifacts made;
  const device::ArtifactScope scope(&made);
  const std::string cubin = compile_cubin(text, sm);
  return {made.entries(), cubin};
}

std::string why_damaged(std::string bytes, const std::function<void(Elf64_Ehdr&)>& damage) {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  damage(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return why_no_cubin(bytes);
}

}  // namespace

#define PELTON_NEEDS_NVRTC() \
  if (!missing_nvrtc().empty()) PELTON_SKIP("NVRTC is not installed")

TEST_CASE("cubins: a file that reaches behind its end is not given to the driver") {
  PELTON_NEEDS_NVRTC();
  const std::string whole = compile(text_of(1), 90).second;
  CHECK(why_no_cubin(whole) == "");
  CHECK(why_no_cubin("") == "it has 0 bytes");
  CHECK(why_no_cubin(std::string(200, 'x')) == "it is no cubin");
  for (size_t share : {4, 3, 2}) CHECK(why_no_cubin(whole.substr(0, whole.size() / share)) != "");
  CHECK(why_no_cubin(whole.substr(0, whole.size() - 1)) != "");
  CHECK(why_damaged(whole, [](Elf64_Ehdr& h) { h.e_machine = EM_X86_64; }) == "it is no cubin");
  CHECK(why_damaged(whole, [](Elf64_Ehdr& h) { h.e_shoff = ~uint64_t{0}; }) ==
        "a table reaches behind its end");
  CHECK(why_damaged(whole, [](Elf64_Ehdr& h) { h.e_shnum = 65535; }) == "a table reaches behind its end");
  CHECK(why_damaged(whole, [](Elf64_Ehdr& h) { h.e_shentsize = 1; }) != "");
}

TEST_CASE("cubins: damaged ones of a plan are compiled again") {
  PELTON_NEEDS_NVRTC();
  const std::string text = text_of(2);
  auto [entries, whole] = compile(text, 90);
  REQUIRE(entries.size() == 1);
  entries.begin()->second.resize(100);
  device::Artifacts damaged(entries);
  const device::ArtifactScope scope(&damaged);
  CHECK(compile_cubin(text, 90) == whole);
  CHECK(damaged.entries().begin()->second == whole);
}

TEST_CASE("cubins: what the driver does not take is compiled again when it is loaded") {
  PELTON_NEEDS_GPU();
  const std::string text = text_of(3);
  const int sm = gpu()->sm;
  auto [entries, whole] = compile(text, sm);
  REQUIRE(entries.size() == 1);
  entries.begin()->second = compile(text, 80).second;  // whole, but of another GPU
  device::Artifacts wrong(entries);
  const device::ArtifactScope scope(&wrong);
  CHECK(compiled(text, "add", sm)->kernel != nullptr);
  CHECK(wrong.entries().begin()->second == whole);
}
