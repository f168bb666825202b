// SPDX-License-Identifier: Apache-2.0
// Plan files. The first byte says what the rest is: a whole file, or one section whose checksum is taken for
// granted, since nothing gets past a checksum by chance.
#include <cstring>
#include <memory>

#include "fuzz/fuzz.h"
#include "ir/binary.h"
#include "ir/text.h"
#include "runtime/manifest.h"
#include "runtime/plan_file.h"

namespace {

using namespace pelton;

void whole_file(std::string_view bytes) {
  auto aligned = std::make_shared<Tensor>(DType::u8, Dims{static_cast<int64_t>(bytes.size())});
  if (!bytes.empty()) std::memcpy(aligned->mutable_data(), bytes.data(), bytes.size());
  runtime::parse_plan({static_cast<const char*>(aligned->data()), bytes.size()}, aligned);
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
}

void preprocess(std::string_view text) {
  runtime::Preprocess out;
  runtime::Plan plan;
  plan.graph = ir::parse_graph("graph \"g\"(%x: f32[2]) {\n  %0 = neg(%x) : f32[2]\n  return %0\n}");
  runtime::read_preprocess(text, out, plan);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  return pelton::fuzz::feed(data + 1, size - 1, [&](std::string_view bytes) {
    switch (data[0] % 4) {
      case 0:
        return whole_file(bytes);
      case 1:
        return graph(bytes);
      case 2:
        return manifest(bytes);
      default:
        return preprocess(bytes);
    }
  });
}
