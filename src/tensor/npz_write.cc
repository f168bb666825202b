// SPDX-License-Identifier: Apache-2.0
// Zip archives as NumPy reads them: members stored, ZIP64 records throughout, so any size fits.
#include <zlib.h>

#include <algorithm>

#include "base/file.h"
#include "tensor/npy.h"

namespace pelton {
namespace {

// Little-endian record.
class Record {
 public:
  Record& u16(uint64_t v) { return put(v, 2); }
  Record& u32(uint64_t v) { return put(v, 4); }
  Record& u64(uint64_t v) { return put(v, 8); }
  Record& text(std::string_view s) {
    bytes_.append(s);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& put(uint64_t v, int width) {
    for (int i = 0; i < width; ++i) bytes_.push_back(static_cast<char>(v >> (8 * i)));
    return *this;
  }
  std::string bytes_;
};

constexpr uint64_t kVersion = 45, kDate = 0x21, kMarked = 0xFFFFFFFF;  // 1 January 1980

struct Member {
  std::string name;
  uint64_t offset, size, crc;
};

}  // namespace

void save_npz(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  AtomicFile file(path);
  std::vector<Member> members;
  for (const auto& [name, tensor] : tensors) {
    std::string content = format_npy(tensor);
    Member m{name + ".npy", file.size_bytes(), content.size(), 0};
    m.crc = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
    Record local;
    local.u32(0x04034b50).u16(kVersion).u16(0x800).u16(0).u16(0).u16(kDate).u32(m.crc);
    local.u32(kMarked).u32(kMarked).u16(m.name.size()).u16(20).text(m.name);
    local.u16(1).u16(16).u64(m.size).u64(m.size);
    file.write(local.bytes());
    file.write(content);
    members.push_back(std::move(m));
  }
  uint64_t start = file.size_bytes();
  for (const Member& m : members) {
    Record entry;
    entry.u32(0x02014b50).u16(kVersion).u16(kVersion).u16(0x800).u16(0).u16(0).u16(kDate).u32(m.crc);
    entry.u32(kMarked).u32(kMarked).u16(m.name.size()).u16(28).u16(0).u16(0).u16(0).u32(0).u32(kMarked);
    entry.text(m.name).u16(1).u16(24).u64(m.size).u64(m.size).u64(m.offset);
    file.write(entry.bytes());
  }
  uint64_t size = file.size_bytes() - start, count = members.size();
  Record end;
  end.u32(0x06064b50)
      .u64(44)
      .u16(kVersion)
      .u16(kVersion)
      .u32(0)
      .u32(0)
      .u64(count)
      .u64(count)
      .u64(size)
      .u64(start);
  end.u32(0x07064b50).u32(0).u64(start + size).u32(1);
  uint64_t few = std::min<uint64_t>(count, 0xFFFF);
  end.u32(0x06054b50).u16(0).u16(0).u16(few).u16(few);
  end.u32(std::min(size, kMarked)).u32(std::min(start, kMarked)).u16(0);
  file.write(end.bytes());
  file.commit();
}

}  // namespace pelton
