// SPDX-License-Identifier: Apache-2.0
// Writing plan files: graphs and manifest, blobs once each, packed weights beside or instead of them.
#include <cstring>
#include <map>
#include <optional>

#include "base/thread_pool.h"
#include "ir/binary.h"
#include "runtime/artifacts_section.h"
#include "runtime/late_weights.h"
#include "runtime/manifest.h"
#include "runtime/packed_order.h"
#include "runtime/plan_file.h"
#include "runtime/plan_file_layout.h"
#include "runtime/sections.h"

namespace pelton::runtime {

namespace {

constexpr size_t kLeastLeftOut = 4096;  // smaller weights are kept beside their packed form

Part bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// Blobs in the order they are first used, each content once.
class BlobWriter {
 public:
  // Digests of the graph's large constants, on all threads: most of the time that a file takes otherwise.
  void expect(const ir::Graph& graph) {
    std::vector<Part> large;
    for (ir::NodeId id : graph.order())
      if (const Tensor* t = graph[id].is("constant") ? graph.constant(graph[id].outputs[0]) : nullptr;
          t && t->dtype() != DType::string && t->bytes() >= kLeastExpected) {
        LateWeights::instance().ready(t->data());
        large.push_back(bytes_of(*t));
      }
    std::vector<Digest> digests(large.size());
    parallel_for(0, static_cast<int64_t>(large.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        digests[i] = sha256(large[i]);
    });
    for (size_t i = 0; i < large.size(); ++i) expected_[{large[i].data(), large[i].size()}] = digests[i];
  }
  uint64_t add(const Tensor& t) {
    LateWeights::instance().ready(t.data());
    const Part bytes = bytes_of(t);
    const Digest digest = digest_of(bytes);
    auto [it, fresh] = numbers_.emplace(digest, blobs_.size());
    if (fresh) blobs_.push_back({digest, bytes, 0, false});
    ++blobs_[it->second].uses;
    return it->second;
  }
  // The number of a tensor with these bytes that was added before.
  std::optional<uint64_t> find(const Tensor& t) const {
    const auto it = numbers_.find(digest_of(bytes_of(t)));
    return it == numbers_.end() ? std::nullopt : std::optional(it->second);
  }
  Part bytes(uint64_t number) const { return blobs_[number].bytes; }
  size_t uses(uint64_t number) const { return blobs_[number].uses; }
  void leave_out(uint64_t number) { blobs_[number].left_out = true; }
  std::string index() const {
    std::string out;
    uint64_t at = 0;
    for (const Blob& b : blobs_) {
      const uint64_t entry[2] = {b.left_out ? kOnlyPacked : at, b.bytes.size()};
      out.append(reinterpret_cast<const char*>(b.digest.bytes.data()), b.digest.bytes.size());
      out.append(reinterpret_cast<const char*>(entry), sizeof entry);
      if (!b.left_out) at += rounded_up(b.bytes.size(), kSectionAlignment);
    }
    return out;
  }
  std::vector<Part> parts() const {
    std::vector<Part> out;
    for (const Blob& b : blobs_)
      if (!b.left_out) out.push_back(b.bytes);
    return out;
  }

 private:
  struct Blob {
    Digest digest;
    Part bytes;
    size_t uses;
    bool left_out;
  };
  static constexpr int64_t kLeastExpected = 64 << 10;
  static Part bytes_of(const Tensor& t) {
    return {static_cast<const std::byte*>(t.data()), static_cast<size_t>(t.bytes())};
  }
  Digest digest_of(Part bytes) const {
    const auto known = expected_.find({bytes.data(), bytes.size()});
    return known == expected_.end() ? sha256(bytes) : known->second;
  }
  std::map<std::pair<const std::byte*, size_t>, Digest> expected_;
  std::map<Digest, uint64_t> numbers_;
  std::vector<Blob> blobs_;
};

// What the file has in the order of kernels, by blob and order.
using Orders = std::map<std::pair<uint64_t, std::string>, Part>;

// Leaves out the blobs that packed ones stand for. Readers of a late blob are nodes of the graphs themselves:
// what lies in attributes and sub-graphs is read by anybody.
void leave_out_packed(const Plan& plan, const std::vector<Packed>& packed, BlobWriter& blobs,
                      const Orders& orders) {
  if (orders.empty()) return;
  std::map<uint64_t, size_t> direct;
  std::map<uint64_t, bool> alone;
  for (const ir::Graph* g : {&plan.graph, plan.unguarded ? &plan.unguarded->graph : nullptr})
    for (ir::NodeId id : g ? g->order() : std::vector<ir::NodeId>{})
      if ((*g)[id].is("constant") && g->type((*g)[id].outputs[0]).dtype != DType::string)
        if (const auto blob = blobs.find(*g->constant((*g)[id].outputs[0]))) ++direct[*blob];
  for (const Packed& p : packed)
    if (const auto blob = blobs.find(p.source)) {
      const auto [it, fresh] = alone.emplace(*blob, p.alone);
      it->second = it->second && p.alone;
    }
  for (const auto& [key, bytes] : orders) {
    const Part plain = blobs.bytes(key.first);
    if (plain.size() < kLeastLeftOut || !alone[key.first] || direct[key.first] != blobs.uses(key.first) ||
        !is_invertible(key.second, bytes.size(), plain.size()))
      continue;
    std::vector<std::byte> again(plain.size());
    unpack(key.second, bytes, again.data());
    if (std::memcmp(again.data(), plain.data(), plain.size()) == 0) blobs.leave_out(key.first);
  }
}

}  // namespace

void save_plan(const Plan& plan, const std::string& path, const Preprocess* pictures,
               const std::vector<Packed>& packed) {
  BlobWriter blobs;
  blobs.expect(plan.graph);
  auto store = [&](const Tensor& t) { return blobs.add(t); };
  std::string manifest = manifest_text(plan), graph = ir::to_binary(plan.graph, store), unguarded;
  if (plan.unguarded) unguarded = ir::to_binary(plan.unguarded->graph, store);
  std::vector<SectionContent> sections;
  sections.push_back({"manifest", kRequired, kSectionAlignment, {bytes_of(manifest)}});
  sections.push_back({"graph", kRequired, kSectionAlignment, {bytes_of(graph)}});
  if (plan.unguarded) sections.push_back({"unguarded", kRequired, kSectionAlignment, {bytes_of(unguarded)}});
  std::string preprocess, tensor_part;
  if (pictures) {
    preprocess = preprocess_text(*pictures);
    tensor_part = ir::to_binary(pictures->plan->graph, store);
    sections.push_back({"preprocess", 0, kSectionAlignment, {bytes_of(preprocess)}});
    sections.push_back({"preprocess.ir", 0, kSectionAlignment, {bytes_of(tensor_part)}});
  }
  std::string artifacts;
  if (plan.artifacts) artifacts = artifacts_bytes(*plan.artifacts);
  if (!artifacts.empty()) sections.push_back({"artifacts", 0, kSectionAlignment, {bytes_of(artifacts)}});
  // In the order of the weights, since kernels pack in any order.
  Orders orders;
  for (const Packed& p : packed)
    if (const auto blob = blobs.find(p.source))
      orders.emplace(std::pair(*blob, p.order), Part(static_cast<const std::byte*>(p.bytes->data()),
                                                     static_cast<size_t>(p.bytes->bytes())));
  leave_out_packed(plan, packed, blobs, orders);
  const std::string weights_index = blobs.index();
  sections.push_back({"weights.index", kRequired, kSectionAlignment, {bytes_of(weights_index)}});
  sections.push_back({"weights", kRequired, kPageAlignment, blobs.parts()});
  std::string packed_index;
  std::vector<Part> packed_parts;
  uint64_t at = 0;
  for (const auto& [key, bytes] : orders) {
    const uint64_t entry[4] = {key.first, at, bytes.size(), key.second.size()};
    packed_index.append(reinterpret_cast<const char*>(entry), sizeof entry);
    packed_index += key.second;
    packed_index.resize(rounded_up(packed_index.size(), kNameAlignment));
    packed_parts.push_back(bytes);
    at += rounded_up(bytes.size(), kSectionAlignment);
  }
  if (!orders.empty()) {
    sections.push_back({"packed.index", 0, kSectionAlignment, {bytes_of(packed_index)}});
    sections.push_back({"packed", 0, kPageAlignment, packed_parts});
  }
  write_sections(path, sections);
}

}  // namespace pelton::runtime
