// SPDX-License-Identifier: Apache-2.0
#include "runtime/sections.h"

#include <algorithm>
#include <cstring>
#include <future>

#include "base/error.h"
#include "base/thread_pool.h"

namespace pelton::runtime {
namespace {

constexpr size_t kHeaderBytes = 64, kEntryBytes = 64, kNameBytes = 16;
constexpr uint32_t kMaxSections = 1024;
constexpr size_t kPiece = size_t{1} << 20, kForgottenBytes = size_t{32} << 20;

template <class T>
T load(std::span<const std::byte> bytes, size_t at) {
  T v;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}
template <class T>
void store(std::string& out, size_t at, T v) {
  std::memcpy(out.data() + at, &v, sizeof v);
}

Checksum load_checksum(std::span<const std::byte> bytes, size_t at) {
  return {load<uint64_t>(bytes, at), load<uint64_t>(bytes, at + 8)};
}

uint64_t round_up(uint64_t v, uint64_t alignment) {
  return (v + alignment - 1) / alignment * alignment;
}

std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

constexpr std::byte kZeros[kSectionAlignment] = {};

// piecewise_checksum() of a section's parts as they lie in the file. Pieces cross the bounds of parts.
Checksum checksum_of(const std::vector<Part>& parts) {
  uint64_t size = 0;
  std::string piece;
  std::vector<Checksum> sums;
  auto feed = [&](std::span<const std::byte> bytes) {
    size += bytes.size();
    while (!bytes.empty()) {
      if (piece.empty() && bytes.size() >= kPiece) {
        sums.push_back(checksum(bytes.first(kPiece)));
        bytes = bytes.subspan(kPiece);
        continue;
      }
      size_t take = std::min(kPiece - piece.size(), bytes.size());
      piece.append(reinterpret_cast<const char*>(bytes.data()), take);
      bytes = bytes.subspan(take);
      if (piece.size() == kPiece) {
        sums.push_back(checksum(bytes_of(piece)));
        piece.clear();
      }
    }
  };
  for (const Part& part : parts) {
    feed(std::span(kZeros).first(round_up(size, kSectionAlignment) - size));
    feed(part);
  }
  if (!piece.empty()) sums.push_back(checksum(bytes_of(piece)));
  return checksum(std::as_bytes(std::span(sums)));
}

[[noreturn]] void damaged(std::string what) {
  fail(ErrorCode::bad_format, std::move(what), "", "the file is damaged: copy or compile it again");
}

}  // namespace

Checksum piecewise_checksum(std::span<const std::byte> bytes, bool forget) {
  size_t pieces = (bytes.size() + kPiece - 1) / kPiece;
  std::vector<Checksum> sums(pieces);
  auto work = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      size_t at = static_cast<size_t>(i) * kPiece;
      auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
      sums[static_cast<size_t>(i)] = checksum(piece);
      if (forget) forget_pages(piece);
    }
  };
  if (pieces < 4)
    work(0, static_cast<int64_t>(pieces));
  else
    parallel_for(0, static_cast<int64_t>(pieces), 1, work);
  return checksum(std::as_bytes(std::span(sums)));
}

std::vector<Section> read_sections(std::span<const std::byte> file) {
  if (file.size() < kHeaderBytes || std::memcmp(file.data(), kPlanMagic, 8) != 0)
    fail(ErrorCode::bad_format, "the file is no plan");
  if (auto version = load<uint32_t>(file, 8); version != kPlanVersion)
    fail(ErrorCode::unsupported_version,
         cat("the plan has format version ", version, ", this build reads ", kPlanVersion), "",
         "use a newer version of Pelton, or compile the model again");
  auto count = load<uint32_t>(file, 12);
  if (auto size = load<uint64_t>(file, 16); size != file.size())
    damaged(cat("the plan has ", file.size(), " bytes, its header says ", size));
  if (count > kMaxSections || kHeaderBytes + count * kEntryBytes > file.size())
    damaged(cat("the section table of ", count, " entries does not fit"));
  auto table = file.subspan(kHeaderBytes, count * kEntryBytes);
  if (checksum(table) != load_checksum(file, 24)) damaged("the section table does not match its checksum");

  std::vector<Section> sections;
  uint64_t end = kHeaderBytes + table.size();
  for (uint32_t i = 0; i < count; ++i) {
    auto entry = table.subspan(i * kEntryBytes, kEntryBytes);
    auto name = reinterpret_cast<const char*>(entry.data());
    Section s;
    s.name.assign(name, strnlen(name, kNameBytes));
    s.flags = load<uint32_t>(entry, 16);
    s.offset = load<uint64_t>(entry, 24);
    s.size = load<uint64_t>(entry, 32);
    s.checksum = load_checksum(entry, 40);
    if (s.offset % kSectionAlignment || s.offset < end || s.offset > file.size() ||
        s.size > file.size() - s.offset)
      damaged(cat("section '", s.name, "' does not lie in the file"));
    end = s.offset + s.size;
    sections.push_back(std::move(s));
  }
  if (end != file.size()) damaged(cat(file.size() - end, " bytes follow the last section"));
  return sections;
}

std::span<const std::byte> verify_section(std::span<const std::byte> file, const Section& section,
                                          bool keep) {
  auto bytes = file.subspan(section.offset, section.size);
  // Large sections are read once here and by the one who needs them later.
  if (piecewise_checksum(bytes, !keep && bytes.size() >= kForgottenBytes) != section.checksum)
    damaged(cat("section '", section.name, "' does not match its checksum"));
  return bytes;
}

void write_sections(const std::string& path, const std::vector<SectionContent>& sections) {
  AtomicFile file(path);
  std::string head(kHeaderBytes + sections.size() * kEntryBytes, '\0');
  file.write(head);
  std::memcpy(head.data(), kPlanMagic, 8);
  store(head, 8, kPlanVersion);
  store(head, 12, static_cast<uint32_t>(sections.size()));
  for (size_t i = 0; i < sections.size(); ++i) {
    const SectionContent& s = sections[i];
    PELTON_CHECK(s.name.size() <= kNameBytes, s.name);
    file.pad_to(s.alignment);
    uint64_t offset = file.size_bytes(), size = 0;
    // Of a large section beside the writing.
    uint64_t total = 0;
    for (const Part& part : s.parts) total = round_up(total, kSectionAlignment) + part.size();
    std::future<Checksum> sum =
        std::async(total >= kForgottenBytes ? std::launch::async : std::launch::deferred,
                   [&s] { return checksum_of(s.parts); });
    for (const Part& part : s.parts) {
      file.write(std::span(kZeros).first(round_up(size, kSectionAlignment) - size));
      file.write(part);
      size = round_up(size, kSectionAlignment) + part.size();
    }
    const Checksum done = sum.get();
    size_t at = kHeaderBytes + i * kEntryBytes;
    std::memcpy(head.data() + at, s.name.data(), s.name.size());
    store(head, at + 16, s.flags);
    store(head, at + 24, offset);
    store(head, at + 32, size);
    store(head, at + 40, done.high);
    store(head, at + 48, done.low);
  }
  store(head, 16, file.size_bytes());
  Checksum table = checksum(bytes_of(head).subspan(kHeaderBytes));
  store(head, 24, table.high);
  store(head, 32, table.low);
  file.write_at(0, bytes_of(head));
  file.commit();
}

}  // namespace pelton::runtime
