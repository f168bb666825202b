// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "ir/binary.h"
#include "runtime/artifacts_section.h"
#include "runtime/late_weights.h"
#include "runtime/manifest.h"
#include "runtime/packed_order.h"
#include "runtime/sections.h"
#include "runtime/weight_store.h"

namespace pelton::runtime {
namespace {

constexpr uint64_t kIndexEntryBytes = 48;
// Of packed.index: u64 blob, offset in `packed`, bytes and bytes of the name that follows, padded to 8.
constexpr size_t kPackedEntryBytes = 32;
constexpr size_t kLeastLeftOut = 4096;  // smaller weights are kept beside their packed form

uint64_t rounded(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

Part bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// The offset of a blob whose bytes the file holds only packed.
constexpr uint64_t kOnlyPacked = UINT64_MAX;

// Blobs in the order they are first used, each content once.
class BlobWriter {
 public:
  uint64_t add(const Tensor& t) {
    LateWeights::instance().ready(t.data());
    Part bytes(static_cast<const std::byte*>(t.data()), static_cast<size_t>(t.bytes()));
    Digest digest = sha256(bytes);
    auto [it, fresh] = numbers_.emplace(digest, blobs_.size());
    if (fresh) blobs_.push_back({digest, bytes, 0, false});
    ++blobs_[it->second].uses;
    return it->second;
  }
  // The number of a tensor with these bytes that was added before.
  std::optional<uint64_t> find(const Tensor& t) const {
    const auto it =
        numbers_.find(sha256({static_cast<const std::byte*>(t.data()), static_cast<size_t>(t.bytes())}));
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
      if (!b.left_out) at += rounded(b.bytes.size(), kSectionAlignment);
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

class Loader {
 public:
  Loader(std::span<const std::byte> file, std::shared_ptr<const void> owner, const LoadOptions& options)
      : file_(file), owner_(std::move(owner)), options_(options), sections_(read_sections(file)) {}

  std::shared_ptr<const Plan> run() {
    for (const Section& s : sections_) {
      bool known = false;
      for (const char* name : {"manifest", "graph", "unguarded", "weights.index", "weights", "preprocess",
                               "preprocess.ir", "packed.index", "packed", "artifacts"})
        known |= s.name == name;
      if (known) continue;
      if (s.flags & kRequired)
        fail(ErrorCode::unsupported_version,
             cat("the plan needs section '", s.name, "', which this build does not know"), "",
             "use a newer version of Pelton");
      log_debug("plan: section '", s.name, "' is not known and skipped");
    }
    std::string_view manifest = content("manifest");
    index_ = content("weights.index");
    if (index_.size() % kIndexEntryBytes) bad("weights.index", "is not a whole number of entries");
    weights_ = section("weights");
    if (options_.verify_weights) verify_section(file_, *weights_);

    read_packed();
    auto plan = std::make_shared<Plan>();
    plan->graph = graph("graph");
    std::shared_ptr<Plan> unguarded;
    if (find("unguarded")) {
      unguarded = std::make_shared<Plan>();
      unguarded->graph = graph("unguarded");
    }
    with_place("section 'manifest'", [&] { read_manifest(manifest, *plan, unguarded.get()); });
    plan->unguarded = unguarded;
    if (options_.map && options_.trusted && !packed_.empty()) {
      share_packed();
      // What is packed is not read again in its plain order.
      forget_pages(file_.subspan(weights_->offset, weights_->size));
    }
    if (options_.trusted && find("artifacts")) {
      const std::string_view bytes = content("artifacts");
      with_place("section 'artifacts'",
                 [&] { plan->artifacts = std::make_shared<device::Artifacts>(read_artifacts(bytes)); });
    }
    return plan;
  }

  std::shared_ptr<const Preprocess> preprocess() {
    if (!find("preprocess")) return nullptr;
    index_ = content("weights.index");
    weights_ = section("weights");
    read_packed();
    auto out = std::make_shared<Preprocess>();
    auto part = std::make_shared<Plan>();
    part->graph = graph("preprocess.ir");
    std::string_view text = content("preprocess");
    with_place("section 'preprocess'", [&] { read_preprocess(text, *out, *part); });
    part->source = out->name;
    out->plan = part;
    return out;
  }

 private:
  [[noreturn]] static void bad(std::string_view section, std::string what) {
    fail(ErrorCode::bad_format, std::move(what), cat("section '", section, "'"));
  }
  const Section* find(std::string_view name) const {
    for (const Section& s : sections_)
      if (s.name == name) return &s;
    return nullptr;
  }
  const Section* section(std::string_view name) const {
    const Section* s = find(name);
    if (!s) fail(ErrorCode::bad_format, cat("the plan has no section '", name, "'"));
    return s;
  }
  std::string_view content(std::string_view name) const {
    auto bytes = verify_section(file_, *section(name));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  ir::Graph graph(std::string_view name) {
    return with_place(cat("section '", name, "'"), [&] {
      return ir::from_binary(content(name), [&](uint64_t blob, DType dtype, const Dims& dims) {
        return fetch(blob, dtype, dims);
      });
    });
  }

  Tensor fetch(uint64_t number, DType dtype, const Dims& dims) {
    if (number >= index_.size() / kIndexEntryBytes) bad("weights.index", cat("there is no blob ", number));
    const char* entry = index_.data() + number * kIndexEntryBytes;
    Digest digest;
    uint64_t place[2];
    std::memcpy(digest.bytes.data(), entry, 32);
    std::memcpy(place, entry + 32, sizeof place);
    auto [offset, size] = place;
    const bool packed = offset == kOnlyPacked;
    if (!packed && (offset % kSectionAlignment || offset > weights_->size || size > weights_->size - offset))
      bad("weights.index", cat("blob ", number, " does not lie in the weights"));
    int64_t want = byte_size(dtype, element_count(dims));
    if (size != static_cast<uint64_t>(want))
      bad("weights.index", cat("blob ", number, " has ", size, " bytes, a tensor of it needs ", want));
    std::shared_ptr<const Blob>& blob = blobs_[number];
    if (!blob) {
      auto bytes = packed ? Part() : file_.subspan(weights_->offset + offset, size);
      blob = WeightStore::instance().share(digest, packed         ? unpacked(number, size, digest)
                                                   : options_.map ? Blob{bytes, owner_}
                                                                  : copy(bytes));
    }
    // It may be another plan's, whose readers know that its bytes come late.
    if (!comes_late()) LateWeights::instance().ready(blob->bytes.data());
    return Tensor::borrow(dtype, dims, blob->bytes.data(), blob);
  }
  bool comes_late() const { return options_.late && options_.map && options_.trusted; }
  void read_packed() {
    if (!find("packed.index")) return;
    std::string_view index = content("packed.index");
    const Section* bytes = section("packed");
    if (options_.verify_weights) verify_section(file_, *bytes, true);
    while (!index.empty()) {
      uint64_t entry[4];  // blob, offset, bytes, bytes of the name
      if (index.size() < kPackedEntryBytes) bad("packed.index", "ends inside an entry");
      std::memcpy(entry, index.data(), kPackedEntryBytes);
      const auto [blob, offset, size, name] = entry;
      if (name > index.size() - kPackedEntryBytes) bad("packed.index", "ends inside a name");
      if (offset % kSectionAlignment || offset > bytes->size || size > bytes->size - offset)
        bad("packed.index", cat("the packed form of blob ", blob, " does not lie in the section"));
      packed_.push_back({blob, std::string(index.substr(kPackedEntryBytes, name)),
                         file_.subspan(bytes->offset + offset, size)});
      index.remove_prefix(std::min(index.size(), kPackedEntryBytes + rounded(name, 8)));
    }
  }
  // Makes packed weights known to the kernels that will ask for them.
  void share_packed() {
    for (const PackedBlob& p : packed_)
      if (auto it = blobs_.find(p.number); it != blobs_.end())
        PackedWeights::instance().add(it->second, p.order, Blob{p.bytes, owner_});
  }
  // A blob that the file holds only packed, as it was: now, or when somebody reads it.
  Blob unpacked(uint64_t number, uint64_t size, const Digest& digest) const {
    const auto p = std::find_if(packed_.begin(), packed_.end(), [&](const PackedBlob& one) {
      return one.number == number && is_invertible(one.order, one.bytes.size(), size);
    });
    if (p == packed_.end()) bad("packed.index", cat("has no form of blob ", number, " that can be undone"));
    const auto fill = [order = p->order, bytes = p->bytes, owner = owner_, size, digest](void* to) {
      unpack(order, bytes, static_cast<std::byte*>(to));
      if (sha256({static_cast<const std::byte*>(to), static_cast<size_t>(size)}) != digest)
        bad("packed", "does not give back the weights that its index names");
    };
    if (comes_late()) return LateWeights::instance().reserve(size, fill);
    auto tensor = std::make_shared<Tensor>(DType::u8, Dims{static_cast<int64_t>(size)});
    fill(tensor->mutable_data());
    return {{static_cast<const std::byte*>(tensor->data()), size}, tensor};
  }
  static Blob copy(std::span<const std::byte> bytes) {
    auto tensor = std::make_shared<Tensor>(DType::u8, Dims{static_cast<int64_t>(bytes.size())});
    std::memcpy(tensor->mutable_data(), bytes.data(), bytes.size());
    return {{static_cast<const std::byte*>(tensor->data()), bytes.size()}, tensor};
  }

  std::span<const std::byte> file_;
  std::shared_ptr<const void> owner_;
  LoadOptions options_;
  std::vector<Section> sections_;
  std::string_view index_;
  const Section* weights_ = nullptr;
  struct PackedBlob {
    uint64_t number;
    std::string order;
    std::span<const std::byte> bytes;
  };
  std::vector<PackedBlob> packed_;
  std::map<uint64_t, std::shared_ptr<const Blob>> blobs_;
};

}  // namespace

bool is_plan(std::string_view first_bytes) {
  return first_bytes.substr(0, 8) == std::string_view(kPlanMagic, 8);
}

void save_plan(const Plan& plan, const std::string& path, const Preprocess* pictures,
               const std::vector<Packed>& packed) {
  BlobWriter blobs;
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
    packed_index.resize(rounded(packed_index.size(), 8));
    packed_parts.push_back(bytes);
    at += rounded(bytes.size(), kSectionAlignment);
  }
  if (!orders.empty()) {
    sections.push_back({"packed.index", 0, kSectionAlignment, {bytes_of(packed_index)}});
    sections.push_back({"packed", 0, kPageAlignment, packed_parts});
  }
  write_sections(path, sections);
}

std::shared_ptr<const Plan> parse_plan(std::string_view bytes, std::shared_ptr<const void> owner,
                                       const LoadOptions& options) {
  return Loader(std::as_bytes(std::span(bytes.data(), bytes.size())), std::move(owner), options).run();
}

std::shared_ptr<const Plan> load_plan(const std::string& path, const LoadOptions& options) {
  return with_place(path, [&] {
    auto file = std::make_shared<const MappedFile>(path);
    return Loader(file->bytes(), file, options).run();
  });
}

std::shared_ptr<const Preprocess> load_preprocess(const std::string& path) {
  return with_place(path, [&] {
    auto file = std::make_shared<const MappedFile>(path);
    return Loader(file->bytes(), file, {.map = false}).preprocess();
  });
}

}  // namespace pelton::runtime
