// SPDX-License-Identifier: Apache-2.0
// Plan files. The first byte says what the rest is: a whole file as it is, a whole file whose checksums are
// put right (nothing gets past one by chance), one section, or the text of a graph that goes through its
// binary form.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "fuzz/fuzz.h"
#include "ir/binary.h"
#include "ir/text.h"
#include "runtime/manifest.h"
#include "runtime/plan_file.h"
#include "runtime/sections.h"

namespace {

using namespace pelton;

void whole_file(std::string_view bytes) {
  auto aligned = std::make_shared<Tensor>(DType::u8, Dims{static_cast<int64_t>(bytes.size())});
  if (!bytes.empty()) std::memcpy(aligned->mutable_data(), bytes.data(), bytes.size());
  runtime::parse_plan({static_cast<const char*>(aligned->data()), bytes.size()}, aligned);
}

void sound_file(std::string_view bytes) {
  constexpr size_t kHead = 64, kEntry = 64, kMostSections = 64;
  std::string file(bytes);
  auto load = [&](size_t at) {
    uint64_t v = 0;
    std::memcpy(&v, file.data() + at, sizeof v);
    return v;
  };
  auto store = [&](size_t at, const Checksum& sum) {
    std::memcpy(file.data() + at, &sum.high, 8);
    std::memcpy(file.data() + at + 8, &sum.low, 8);
  };
  if (file.size() < kHead) return whole_file(bytes);
  const size_t sections = static_cast<uint32_t>(load(12));
  if (sections > kMostSections || file.size() < kHead + sections * kEntry) return whole_file(bytes);
  const auto all = std::as_bytes(std::span(file.data(), file.size()));
  for (size_t at = kHead; at < kHead + sections * kEntry; at += kEntry) {
    const uint64_t offset = load(at + 24), size = load(at + 32);
    if (offset <= file.size() && size <= file.size() - offset)
      store(at + 40, runtime::piecewise_checksum(all.subspan(offset, size)));
  }
  store(24, checksum(all.subspan(kHead, sections * kEntry)));
  if (checksum(all).low % 16) return whole_file(file);  // files cost a hundred times more
  static const std::string path =
      (std::filesystem::temp_directory_path() / cat("pelton-fuzz-", ::getpid(), ".pelton")).string();
  write_file(path, file);
  const auto plan = runtime::load_plan(path);
  runtime::save_plan(*plan, path, runtime::load_preprocess(path).get());
  runtime::load_plan(path);
}

ir::Graph through_binary(const ir::Graph& g) {
  std::vector<Tensor> blobs;
  const std::string bytes = ir::to_binary(g, [&](const Tensor& t) {
    blobs.push_back(t);
    return blobs.size() - 1;
  });
  return ir::from_binary(bytes, [&](uint64_t blob, DType, const Dims&) { return blobs.at(blob); });
}

// A type that the text states and its op does not infer comes back with a check that both agree; from then on
// nothing changes.
void graph_text(std::string_view text) {
  const ir::Graph g = ir::parse_graph(text), back = through_binary(g);
  PELTON_CHECK(back.checks.size() > g.checks.size() || ir::print(back) == ir::print(g),
               "the binary form does not round-trip");
  PELTON_CHECK(ir::print(through_binary(back)) == ir::print(back), "the binary form does not settle");
}

void graph(std::string_view bytes) {
  auto fetch = [](uint64_t blob, DType dtype, const Dims& dims) {
    if (blob > 8 || byte_size(dtype, element_count(dims)) > 4096) fail(ErrorCode::bad_format, "no such blob");
    return Tensor::zeros(dtype, dims);
  };
  ir::Graph g = ir::from_binary(bytes, fetch);
  uint64_t blobs = 0;
  std::string once = ir::to_binary(g, [&](const Tensor&) { return blobs++ % 8; });
  PELTON_CHECK(ir::print(ir::from_binary(once, fetch)).size() == ir::print(g).size(),
               "the binary form does not round-trip");
}

void manifest(std::string_view text) {
  static const ir::Graph g =
      ir::parse_graph("graph \"g\"(%x: f32[2]) {\n  %0 = neg(%x) : f32[2]\n  return %0\n}");
  runtime::Plan plan, unguarded;
  plan.graph = g;
  unguarded.graph = g;
  runtime::read_manifest(text, plan, &unguarded);
  runtime::Plan again;
  again.graph = g;
  const std::string written = runtime::manifest_text(plan);
  runtime::read_manifest(written, again, nullptr);
  PELTON_CHECK(runtime::manifest_text(again) == written, "the manifest does not round-trip");
}

void preprocess(std::string_view text) {
  runtime::Preprocess out;
  runtime::Plan plan;
  plan.graph = ir::parse_graph("graph \"g\"(%x: f32[2]) {\n  %0 = neg(%x) : f32[2]\n  return %0\n}");
  runtime::read_preprocess(text, out, plan);
  out.plan = std::make_shared<runtime::Plan>(plan);
  runtime::read_preprocess(runtime::preprocess_text(out), out, plan);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  return pelton::fuzz::feed(data + 1, size - 1, [&](std::string_view bytes) {
    switch (data[0] % 6) {
      case 0:
        return whole_file(bytes);
      case 1:
        return graph(bytes);
      case 2:
        return manifest(bytes);
      case 4:
        return sound_file(bytes);
      case 5:
        return graph_text(bytes);
      default:
        return preprocess(bytes);
    }
  });
}
