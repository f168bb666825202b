// SPDX-License-Identifier: Apache-2.0
// Tar shards with WebDataset naming: members that share a path up to the first dot of its last part are the
// fields of one sample ("0001.jpg", "0001.cls"). Plain shards are read by position. Compressed ones are
// expanded into memory when they are first needed; the last few stay.
#include <algorithm>
#include <charconv>
#include <list>
#include <mutex>

#include "base/hash.h"
#include "data/source/source.h"
#include "data/source/tar_index.h"
#include "tensor/npy.h"

namespace pelton::data {
namespace {

struct Part {
  std::string extension;
  int64_t offset, size;
};
struct Entry {
  uint32_t shard;
  std::string key;
  std::vector<Part> parts;
};

class Shard {
 public:
  explicit Shard(const std::string& path) : file_(path) {
    uint8_t magic[4] = {};
    file_.read(0, {magic, static_cast<size_t>(std::min<int64_t>(4, file_.size()))});
    compressed_ = (magic[0] == 0x1f && magic[1] == 0x8b) || (magic[0] == 0x28 && magic[1] == 0xb5);
  }
  bool compressed() const { return compressed_; }
  const std::string& path() const { return file_.path(); }
  int64_t size() const { return file_.size(); }
  std::mutex& expanding() const { return expanding_; }
  std::shared_ptr<const std::string> expand() const {
    return std::make_shared<const std::string>(expanded(whole_text(file_.path()), file_.path()));
  }
  std::string read(int64_t offset, int64_t count) const {
    std::string out(static_cast<size_t>(std::min(count, file_.size() - offset)), '\0');
    file_.read(offset, {reinterpret_cast<uint8_t*>(out.data()), out.size()});
    return out;
  }
  Tensor bytes(int64_t offset, int64_t count) const { return file_.read_bytes(offset, count); }

 private:
  PositionedFile file_;
  bool compressed_ = false;
  mutable std::mutex expanding_;
};

class Tar : public Source {
 public:
  Tar(const std::vector<std::string>& paths, int64_t cache) : cache_size_(static_cast<size_t>(cache)) {
    for (const auto& p : paths) shards_.push_back(std::make_unique<Shard>(p));
    std::string names;
    for (uint32_t s = 0; s < shards_.size(); ++s) {
      const Shard& shard = *shards_[s];
      std::shared_ptr<const std::string> memory = shard.compressed() ? content(s) : nullptr;
      auto read = [&](int64_t at, int64_t n) {
        return memory ? memory->substr(static_cast<size_t>(at), static_cast<size_t>(n)) : shard.read(at, n);
      };
      for (TarMember& m :
           tar_members(memory ? static_cast<int64_t>(memory->size()) : shard.size(), read, shard.path())) {
        const size_t slash = m.name.rfind('/') == m.name.npos ? 0 : m.name.rfind('/') + 1,
                     dot = m.name.find('.', slash);
        if (dot == m.name.npos || dot == slash) continue;  // no extension, or a hidden file
        std::string key = m.name.substr(0, dot);
        append(names, cat(m.name, "\n"));
        if (entries_.empty() || entries_.back().shard != s || entries_.back().key != key)
          entries_.push_back({s, key, {}});
        std::string extension = m.name.substr(dot + 1);
        std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
        entries_.back().parts.push_back({extension, m.offset, m.size});
      }
    }
    if (entries_.empty())
      fail(ErrorCode::not_found, "the shards hold no samples", paths.empty() ? "" : paths[0],
           "members are named KEY.EXTENSION");
    identity_ = cat("tar ", entries_.size(), " ", checksum(names).str());
  }
  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
  std::string identity() const override { return identity_; }
  int64_t stored_bytes(int64_t index) const override {
    int64_t n = 0;
    for (const Part& p : entries_[static_cast<size_t>(index)].parts) n += p.size;
    return n;
  }
  Sample read(int64_t index) const override {
    const Entry& e = entries_[static_cast<size_t>(index)];
    const Shard& shard = *shards_[e.shard];
    std::shared_ptr<const std::string> memory = shard.compressed() ? content(e.shard) : nullptr;
    Sample s;
    s.index = index;
    s.origin = {shard.path(), e.key, e.parts[0].offset};
    for (const Part& p : e.parts) {
      Tensor bytes = memory ? Tensor::borrow(DType::u8, {p.size}, memory->data() + p.offset, memory)
                            : shard.bytes(p.offset, p.size);
      place(s, p, std::move(bytes));
    }
    return s;
  }

 private:
  // "boxes.npy" and "caption.txt" are named by their first part, "npy" and "json" by themselves.
  static std::string field_of(const std::string& extension) {
    const size_t dot = extension.rfind('.');
    return dot == extension.npos ? extension : extension.substr(0, dot);
  }
  static void place(Sample& s, const Part& p, Tensor bytes) {
    static const std::vector<std::string> images = {"jpg", "jpeg", "png", "webp", "bmp",
                                                    "tif", "tiff", "ppm", "pgm",  "pbm"};
    static const std::vector<std::string> audio = {"wav", "flac", "ogg"};
    const std::string_view text(reinterpret_cast<const char*>(bytes.as<uint8_t>()),
                                static_cast<size_t>(bytes.count()));
    if (std::ranges::find(images, p.extension) != images.end()) {
      s.set("image", std::move(bytes));
    } else if (std::ranges::find(audio, p.extension) != audio.end()) {
      s.set("audio", std::move(bytes));
    } else if (p.extension == "cls" || p.extension == "cls2" || p.extension == "index") {
      std::string_view digits = text;
      while (!digits.empty() && (digits.back() == '\n' || digits.back() == '\r' || digits.back() == ' '))
        digits.remove_suffix(1);
      int64_t label = 0;
      auto r = std::from_chars(digits.data(), digits.data() + digits.size(), label);
      if (r.ec != std::errc() || r.ptr != digits.data() + digits.size())
        fail(ErrorCode::bad_format,
             cat("the .", p.extension, " member '", digits.substr(0, 40), "' is not a whole number"),
             s.origin.str());
      s.set(p.extension == "cls" ? "label" : p.extension, label_tensor(label));
    } else if (p.extension == "npy" || p.extension.ends_with(".npy")) {  // KEY.boxes.npy is the field boxes
      auto keep = std::make_shared<Tensor>(bytes);
      s.set(field_of(p.extension), with_place(s.origin.str(), [&] { return parse_npy(text, keep); }));
    } else if (p.extension == "txt" || p.extension == "json" || p.extension.ends_with(".txt")) {
      s.set(field_of(p.extension), Tensor::of_strings({}, {std::string(text)}));
    } else {
      s.set(p.extension, std::move(bytes));
    }
  }

  std::shared_ptr<const std::string> kept(uint32_t shard) const {
    std::lock_guard lock(mutex_);
    for (auto it = cache_.begin(); it != cache_.end(); ++it)
      if (it->first == shard) {
        cache_.splice(cache_.begin(), cache_, it);
        return it->second;
      }
    return nullptr;
  }

  // The expanded shard, kept among the last `cache_size_` ones. A thread expands it while others that want
  // the same one wait: all of them come to a new shard at the same time.
  std::shared_ptr<const std::string> content(uint32_t shard) const {
    if (auto memory = kept(shard)) return memory;
    std::lock_guard once(shards_[shard]->expanding());
    if (auto memory = kept(shard)) return memory;
    auto memory = shards_[shard]->expand();
    std::lock_guard lock(mutex_);
    cache_.emplace_front(shard, memory);
    if (cache_.size() > cache_size_) cache_.pop_back();
    return memory;
  }

  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<Entry> entries_;
  std::string identity_;
  size_t cache_size_;
  mutable std::mutex mutex_;
  mutable std::list<std::pair<uint32_t, std::shared_ptr<const std::string>>> cache_;  // newest first
};

}  // namespace

std::vector<SourceKind> archive_source_kinds() {
  using T = OptionType;
  return {
      {{"tar",
        "tar shards with WebDataset naming, plain, gzip or zstd; fields by extension (image, audio, label "
        "from .cls, txt, json, npy)",
        {{"shards", T::texts, {}, "the archives, in order; NAME{000..127}.tar stands for a numbered range"},
         {"cached_shards", T::integer, 4, "expanded compressed shards kept in memory", 1, 1024}}},
       [](const Args& a, const std::string& base) -> std::unique_ptr<Source> {
         std::vector<std::string> paths;
         for (const auto& p : expand_ranges(a.texts("shards"), a.where())) paths.push_back(below(base, p));
         return std::make_unique<Tar>(paths, a.integer("cached_shards"));
       }}};
}

std::vector<std::string> expand_ranges(const std::vector<std::string>& patterns, const std::string& where) {
  std::vector<std::string> out;
  for (const auto& p : patterns) {
    const size_t open = p.find('{'), dots = p.find("..", open), close = p.find('}', dots);
    if (open == p.npos || dots == p.npos || close == p.npos) {
      out.push_back(p);
      continue;
    }
    const std::string low = p.substr(open + 1, dots - open - 1), high = p.substr(dots + 2, close - dots - 2);
    int64_t a = 0, b = 0;
    auto ra = std::from_chars(low.data(), low.data() + low.size(), a),
         rb = std::from_chars(high.data(), high.data() + high.size(), b);
    if (ra.ec != std::errc() || rb.ec != std::errc() || a > b || b - a > 1'000'000)
      fail(ErrorCode::usage, cat("'", p, "' is not a range such as {000..127}"), where);
    for (int64_t i = a; i <= b; ++i) {
      std::string digits = cat(i);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      out.push_back(cat(p.substr(0, open), digits, p.substr(close + 1)));
    }
  }
  return out;
}

}  // namespace pelton::data
