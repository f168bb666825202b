// SPDX-License-Identifier: Apache-2.0
// Reading plan files: sections are checked, weights mapped or copied, shared with other plans, and made from
// their packed form where the file holds only that.
#include <algorithm>
#include <cstring>
#include <map>

#include "base/file.h"
#include "base/log.h"
#include "ir/binary.h"
#include "runtime/artifacts_section.h"
#include "runtime/late_weights.h"
#include "runtime/manifest.h"
#include "runtime/packed_order.h"
#include "runtime/plan_file.h"
#include "runtime/plan_file_layout.h"
#include "runtime/sections.h"
#include "runtime/weight_store.h"

namespace pelton::runtime {

namespace {

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
      index.remove_prefix(std::min(index.size(), kPackedEntryBytes + rounded_up(name, kNameAlignment)));
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
