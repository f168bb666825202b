// SPDX-License-Identifier: Apache-2.0
#include "tensor/zip_read.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace pelton {
namespace {

[[noreturn]] void bad(std::string what) {
  fail(ErrorCode::bad_format, std::move(what), "zip archive");
}

// Little-endian fields with the bounds check that every offset from the file needs.
struct Bytes {
  std::string_view s;
  uint64_t at(uint64_t offset, int width) const {
    if (offset > s.size() || s.size() - offset < static_cast<uint64_t>(width)) bad("it ends inside a record");
    uint64_t v = 0;
    std::memcpy(&v, s.data() + offset, static_cast<size_t>(width));
    return v;
  }
  std::string_view slice(uint64_t offset, uint64_t size) const {
    if (offset > s.size() || s.size() - offset < size)
      bad(cat("a member of ", size, " bytes leads out of the file"));
    return s.substr(offset, size);
  }
};

constexpr uint64_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kEntry = 0x02014b50,
                   kLocal = 0x04034b50;

struct Directory {
  uint64_t offset, entries;
};

Directory find_directory(const Bytes& b) {
  if (b.s.size() < 22) bad("it is too short");
  uint64_t last = b.s.size() - 22, lowest = last > 0xffff ? last - 0xffff : 0;
  for (uint64_t at = last + 1; at-- > lowest;) {
    if (b.at(at, 4) != kEnd) continue;
    Directory d{b.at(at + 16, 4), b.at(at + 10, 2)};
    if (at >= 20 && b.at(at - 20, 4) == kLocator64) {
      uint64_t end64 = b.at(at - 12, 8);
      if (b.at(end64, 4) != kEnd64) bad("its ZIP64 record is damaged");
      d = {b.at(end64 + 48, 8), b.at(end64 + 32, 8)};
    }
    return d;
  }
  bad("it has no directory; the file may be cut short");
}

// Sizes that do not fit 32 bits stand in extra field 1, in this order and only if marked.
void read_zip64(const Bytes& b, uint64_t extra, uint64_t length, uint64_t& size, uint64_t& packed,
                uint64_t& local) {
  for (uint64_t at = extra; at + 4 <= extra + length;) {
    uint64_t id = b.at(at, 2), n = b.at(at + 2, 2), value = at + 4;
    if (id == 1)
      for (uint64_t* field : {&size, &packed, &local})
        if (*field == 0xffffffff) {
          *field = b.at(value, 8);
          value += 8;
        }
    at += 4 + n;
  }
}

}  // namespace

std::vector<ZipMember> list_zip(std::string_view archive) {
  Bytes b{archive};
  Directory dir = find_directory(b);
  std::vector<ZipMember> out;
  uint64_t at = dir.offset;
  for (uint64_t i = 0; i < dir.entries; ++i) {
    if (b.at(at, 4) != kEntry) bad(cat("entry ", i, " of its directory is damaged"));
    uint64_t flags = b.at(at + 8, 2), method = b.at(at + 10, 2), crc = b.at(at + 16, 4),
             packed = b.at(at + 20, 4), size = b.at(at + 24, 4), name = b.at(at + 28, 2),
             extra = b.at(at + 30, 2), comment = b.at(at + 32, 2), local = b.at(at + 42, 4);
    read_zip64(b, at + 46 + name, extra, size, packed, local);
    ZipMember m{b.slice(at + 46, name), {}, size, static_cast<uint32_t>(crc), method == 8};
    if (flags & 1) bad(cat("member \"", m.name, "\" is encrypted"));
    if (method != 0 && method != 8) bad(cat("member \"", m.name, "\" uses compression method ", method));
    if (b.at(local, 4) != kLocal) bad(cat("member \"", m.name, "\" has no header"));
    m.packed = b.slice(local + 30 + b.at(local + 26, 2) + b.at(local + 28, 2), packed);
    if (method == 0 && packed != size) bad(cat("member \"", m.name, "\" has two different sizes"));
    out.push_back(m);
    at += 46 + name + extra + comment;
  }
  return out;
}

std::string inflate_member(const ZipMember& member, uint64_t limit_bytes) {
  if (member.size_bytes > limit_bytes || member.size_bytes / 1100 > member.packed.size())
    fail(ErrorCode::limit,
         cat("member \"", member.name, "\" claims ", member.size_bytes, " bytes from ", member.packed.size()),
         "zip archive");
  std::string out(member.size_bytes, '\0');
  z_stream z = {};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
    fail(ErrorCode::out_of_memory, "no memory to unpack a zip member");
  uint64_t in_at = 0, out_at = 0;
  int status = Z_OK;
  char spare;  // zlib wants a buffer even when nothing is left to write
  while (status == Z_OK) {
    auto in = std::min<uint64_t>(member.packed.size() - in_at, 1u << 30);
    auto room = std::min<uint64_t>(out.size() - out_at, 1u << 30);
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(member.packed.data() + in_at));
    z.avail_in = static_cast<uInt>(in);
    z.next_out = reinterpret_cast<Bytef*>(room ? out.data() + out_at : &spare);
    z.avail_out = static_cast<uInt>(room ? room : 1);
    uInt offered = z.avail_out;
    status = inflate(&z, Z_NO_FLUSH);
    in_at += in - z.avail_in;
    if (room == 0 && z.avail_out != offered)
      status = Z_DATA_ERROR;
    else
      out_at += offered - z.avail_out;
  }
  inflateEnd(&z);
  if (status != Z_STREAM_END || out_at != out.size())
    bad(cat("member \"", member.name, "\" does not unpack"));
  return out;
}

void check_crc(const ZipMember& member, std::string_view bytes) {
  if (crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) != member.crc)
    bad(cat("member \"", member.name, "\" fails its checksum"));
}

}  // namespace pelton
