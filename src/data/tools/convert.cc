// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "data/codec/codec.h"
#include "data/source/tar_index.h"
#include "data/tools/tools.h"
#include "tensor/npy.h"

namespace pelton::data {
namespace {

std::string_view bytes_of(const Tensor& t) {
  return {static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes())};
}

// What an encoded picture or sound is called in a shard.
std::string extension_of(const std::string& field, const Tensor& t) {
  using namespace std::string_view_literals;
  const std::string_view b = bytes_of(t);
  if (b.starts_with("\x89PNG")) return "png";
  if (b.starts_with("RIFF"))
    return b.substr(std::min<size_t>(8, b.size())).starts_with("WEBP") ? "webp" : "wav";
  if (b.starts_with("fLaC")) return "flac";
  if (b.starts_with("OggS")) return "ogg";
  if (b.starts_with("BM")) return "bmp";
  if (b.starts_with("II*") || b.starts_with("MM\0*"sv)) return "tif";
  if (b.size() > 2 && b[0] == 'P' && b[1] >= '1' && b[1] <= '6') return "ppm";
  return field == "image" ? "jpg" : "wav";
}

// A tar source reads each member back as the field it was: NAME.npy and NAME.txt are fields NAME. Dots and
// slashes part names there.
std::string entries_of(const Sample& s, const std::string& key) {
  std::string out;
  std::set<std::string> names;
  for (const auto& [field, t] : s.fields) {
    std::string name = field;
    std::ranges::replace_if(
        name, [](char c) { return c == '.' || c == '/'; }, '_');
    if (!names.insert(name).second)
      fail(ErrorCode::bad_name, cat("two fields are called '", name, "' in a shard"), s.origin.str());
    const bool bytes = t.dtype() == DType::u8 && t.rank() == 1;
    if (t.dtype() == DType::string) {
      if (t.count() != 1)
        fail(ErrorCode::bad_type, cat("field '", field, "' holds ", t.count(), " texts, not one"),
             s.origin.str());
      out += tar_entry(cat(key, ".", name, name == "json" || name == "txt" ? "" : ".txt"), t.strings()[0]);
    } else if (name == "label" && t.rank() == 0 && is_int(t.dtype())) {
      out += tar_entry(cat(key, ".cls"), cat(t.get_int(0)));
    } else if (bytes && (name == "image" || name == "audio")) {
      out += tar_entry(cat(key, ".", extension_of(name, t)), bytes_of(t));
    } else {
      out += tar_entry(cat(key, ".", name, ".npy"), format_npy(t));
    }
  }
  return out;
}

}  // namespace

ConvertResult convert_to_tar(const Source& source, const std::string& prefix, int64_t shard_bytes,
                             const std::function<void(int64_t)>& progress) {
  ConvertResult r;
  std::optional<AtomicFile> file;
  auto close = [&] {
    if (!file) return;
    file->write(std::string(1024, '\0'));
    file->commit();
    file.reset();
  };
  for (int64_t i = 0; i < source.size(); ++i) {
    char digits[24];
    std::snprintf(digits, sizeof digits, "%08lld", static_cast<long long>(i));
    std::string entries;
    try {
      entries = entries_of(source.read(i), digits);
    } catch (const Error& e) {
      log_warn("data: sample ", i, " is left out: ", e.what());
      ++r.skipped;
      progress(1);
      continue;
    }
    if (file && static_cast<int64_t>(file->size_bytes() + entries.size()) + 1024 > shard_bytes) close();
    if (!file) {
      std::snprintf(digits, sizeof digits, "-%06zu.tar", r.shards.size());
      r.shards.push_back(prefix + digits);
      file.emplace(r.shards.back());
    }
    file->write(entries);
    ++r.samples;
    progress(1);
  }
  close();
  return r;
}

}  // namespace pelton::data
