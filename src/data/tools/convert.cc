// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>
#include <optional>

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

// What the bytes of a file are called in a shard.
std::string extension_of(const std::string& field, const Tensor& t) {
  const std::string_view b = bytes_of(t);
  if (b.starts_with("\xff\xd8")) return "jpg";
  if (b.starts_with("\x89PNG")) return "png";
  if (b.starts_with("RIFF") && b.substr(8, 4) == "WEBP") return "webp";
  if (b.starts_with("RIFF")) return "wav";
  if (b.starts_with("fLaC")) return "flac";
  if (b.starts_with("OggS")) return "ogg";
  if (b.starts_with("BM")) return "bmp";
  if (b.starts_with("II*") || b.starts_with("MM\0*")) return "tif";
  return field == "image" ? "jpg" : field;
}

std::string entries_of(const Sample& s, const std::string& key) {
  std::string out;
  for (const auto& [name, t] : s.fields) {
    if (name == "label" && t.count() == 1 && is_int(t.dtype()))
      out += tar_entry(cat(key, ".cls"), cat(t.get_int(0)));
    else if (t.dtype() == DType::string)
      out += tar_entry(cat(key, name == "json" ? ".json" : ".txt"), t.strings().at(0));
    else if (t.dtype() == DType::u8 && t.rank() == 1)
      out += tar_entry(cat(key, ".", extension_of(name, t)), bytes_of(t));
    else
      out += tar_entry(cat(key, ".", name, ".npy"), format_npy(t));
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
