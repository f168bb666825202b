// SPDX-License-Identifier: Apache-2.0
// The layout (version 1, 64-bit, little-endian), offsets in bytes:
//   page      0 u64 number, 10 u16 flags, 12 u16 end of the pointers (16 ..), 14 u16 start of the nodes
//   meta      16 u32 magic, 20 u32 version, 40 and 88 the free table and the main one, 144 u64 transaction
//   table     0 u32 page size (free table), 4 u16 flags, 6 u16 depth, 32 u64 entries, 40 u64 root page
//   node      0 u32 size of the value (branch: the low part of a page number), 4 u16 flags (its high part),
//             6 u16 size of the key, 8 key, then the value, or u64 the first page of a large one (from its
//             byte 16)
#include "data/source/lmdb_index.h"

#include <cstring>
#include <memory>

#include "base/error.h"

namespace pelton::data {
namespace {

constexpr uint32_t kMagic = 0xbeefc0de;
constexpr int64_t kPageHeader = 16, kNodeHeader = 8, kMetaBytes = 152;
constexpr int kBranch = 1, kLeaf = 2, kOverflow = 4, kMeta = 8;
constexpr int kLargeValue = 1, kOtherTable = 2, kDuplicates = 4;
constexpr int kDeepest = 32;
constexpr uint64_t kNoPage = ~uint64_t{0};

template <class T>
T at(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

class Walk {
 public:
  Walk(int64_t file_size, const std::function<void(int64_t, std::span<uint8_t>)>& read,
       const std::string& where)
      : file_(file_size), read_(read), where_(where) {}

  std::vector<LmdbRecord> run() {
    uint64_t root = kNoPage, entries = 0, newest = 0;
    bool found = false;
    for (int64_t page = 0; page < 2; ++page) {  // two meta pages take turns
      const int64_t offset = page == 0 ? 0 : size_;
      uint8_t m[kMetaBytes];
      if (file_ - offset < kMetaBytes) break;
      read_(offset, m);
      if (at<uint32_t>(m + 16) != kMagic || !(at<uint16_t>(m + 10) & kMeta)) {
        if (page == 0) break;
        continue;
      }
      if (at<uint32_t>(m + 20) != 1)
        fail(ErrorCode::unsupported_version, cat("LMDB version ", at<uint32_t>(m + 20), " is not known"),
             where_, "version 1 is read");
      const int64_t size = at<uint32_t>(m + 40);
      if (size < 512 || size > 65536 || (size & (size - 1)) || (page == 1 && size != size_))
        bad(cat("the page size ", size, " is not a power of two in 512 .. 65536"), page);
      size_ = size;
      const uint64_t transaction = at<uint64_t>(m + 144);
      if (found && transaction < newest) continue;
      found = true;
      newest = transaction;
      flags_ = at<uint16_t>(m + 88 + 4);
      entries = at<uint64_t>(m + 88 + 32);
      root = at<uint64_t>(m + 88 + 40);
    }
    if (!found)
      fail(ErrorCode::bad_format, "not an LMDB file", where_, "name the folder, or its file data.mdb");
    if (flags_ & kDuplicates)
      fail(ErrorCode::unsupported_op, "the table holds several values a key", where_,
           "convert to tar shards");
    if (root != kNoPage) {
      seen_.resize(static_cast<size_t>(file_ / size_), false);
      walk(root, 1);
    }
    if (records_.size() != entries)
      fail(ErrorCode::bad_format, cat("the table says ", entries, " records, but holds ", records_.size()),
           where_, "the file is damaged");
    return std::move(records_);
  }

 private:
  [[noreturn]] void bad(const std::string& what, int64_t page) const {
    fail(ErrorCode::bad_format, what, cat(where_, " page ", page),
         "the file is damaged, or not an LMDB file");
  }

  // Page `number` lies in the file, and no other place has led to it.
  int64_t checked(uint64_t number, int64_t from) {
    if (number < 2 || number >= seen_.size())
      bad(cat("it leads to page ", number, " of ", seen_.size()), from);
    const auto page = static_cast<int64_t>(number);
    if (seen_[static_cast<size_t>(page)]) bad(cat("it leads to page ", page, " for the second time"), from);
    seen_[static_cast<size_t>(page)] = true;
    return page;
  }

  void walk(uint64_t number, int depth, int64_t from = 0) {
    const int64_t page = checked(number, from);
    if (depth > kDeepest) bad(cat("the tree is deeper than ", kDeepest), page);
    const std::unique_ptr<uint8_t[]> p(new uint8_t[static_cast<size_t>(size_)]);
    read_(page * size_, {p.get(), static_cast<size_t>(size_)});
    const int kind = at<uint16_t>(p.get() + 10) & (kBranch | kLeaf | kOverflow | kMeta);
    if (at<uint64_t>(p.get()) != number || (kind != kBranch && kind != kLeaf))
      bad(cat("it calls itself page ", at<uint64_t>(p.get()), " of kind ", kind), page);
    const int64_t lower = at<uint16_t>(p.get() + 12), upper = at<uint16_t>(p.get() + 14);
    if (lower < kPageHeader || lower > upper || upper > size_ || lower % 2)
      bad(cat("its nodes lie between ", lower, " and ", upper), page);
    // Nodes do not overlap: pointers that share one would make records without end out of a small file.
    int64_t left = size_ - upper;
    for (int64_t i = kPageHeader; i < lower; i += 2) {
      const int64_t start = at<uint16_t>(p.get() + i);
      if (start < upper || start > size_ - kNodeHeader) bad(cat("it has a node at byte ", start), page);
      const uint8_t* node = p.get() + start;
      const int flags = at<uint16_t>(node + 4);
      const int64_t key = at<uint16_t>(node + 6), room = size_ - start - kNodeHeader - key;
      if (room < 0) bad(cat("a key of ", key, " bytes runs past its end"), page);
      const int64_t value = kind == kBranch ? 0 : flags & kLargeValue ? 8 : at<uint32_t>(node);
      left -= kNodeHeader + key + value;
      if (left < 0 && value <= room) bad("its nodes overlap", page);
      if (kind == kBranch)
        walk(at<uint32_t>(node) | static_cast<uint64_t>(flags) << 32, depth + 1, page);
      else
        take(node, flags, key, room, page, start);
    }
  }

  void take(const uint8_t* node, int flags, int64_t key, int64_t room, int64_t page, int64_t start) {
    if (flags & (kOtherTable | kDuplicates))
      fail(ErrorCode::unsupported_op, "the file holds tables with names, or several values a key",
           cat(where_, " page ", page), "convert to tar shards");
    const int64_t size = at<uint32_t>(node);
    LmdbRecord r{std::string(reinterpret_cast<const char*>(node) + kNodeHeader, static_cast<size_t>(key)),
                 page * size_ + start + kNodeHeader + key, size};
    if (flags & kLargeValue) {
      if (room < 8) bad("the place of a large value runs past its end", page);
      const int64_t first = checked(at<uint64_t>(node + kNodeHeader + key), page);
      uint8_t head[kPageHeader];
      read_(first * size_, head);
      if (at<uint64_t>(head) != static_cast<uint64_t>(first) || !(at<uint16_t>(head + 10) & kOverflow))
        bad("it leads to a large value that is none", page);
      const int64_t pages = at<uint32_t>(head + 12), all = std::ssize(seen_);
      if (pages < 1 || pages > all - first || size > pages * size_ - kPageHeader)
        bad(cat("a value of ", size, " bytes does not fit ", pages, " pages from page ", first, " of ", all),
            page);
      for (int64_t k = 1; k < pages; ++k) checked(static_cast<uint64_t>(first + k), page);
      r.offset = first * size_ + kPageHeader;
    } else if (size > room) {
      bad(cat("a value of ", size, " bytes runs past its end"), page);
    }
    records_.push_back(std::move(r));
  }

  int64_t file_, size_ = 0;  // bytes of the file and of a page
  const std::function<void(int64_t, std::span<uint8_t>)>& read_;
  const std::string& where_;
  int flags_ = 0;
  std::vector<bool> seen_;
  std::vector<LmdbRecord> records_;
};

}  // namespace

std::vector<LmdbRecord> lmdb_index(int64_t file_size,
                                   const std::function<void(int64_t, std::span<uint8_t>)>& read,
                                   const std::string& where) {
  return Walk(file_size, read, where).run();
}

}  // namespace pelton::data
