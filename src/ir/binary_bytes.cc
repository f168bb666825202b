// SPDX-License-Identifier: Apache-2.0
#include "ir/binary_bytes.h"

#include <cstring>

namespace pelton::ir {

void ByteReader::bad(std::string what) const {
  fail(ErrorCode::bad_format, std::move(what), cat("byte ", at_, " of the graph"));
}

uint64_t ByteReader::u() {
  uint64_t v = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ == bytes_.size()) bad("the graph ends early");
    auto byte = static_cast<uint8_t>(bytes_[at_++]);
    if (shift == 63 && byte > 1) break;
    v |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return v;
  }
  bad("a number has more than 64 bits");
}

int64_t ByteReader::s() {
  uint64_t v = u();
  return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
}

size_t ByteReader::count(size_t least) {
  uint64_t n = u();
  if (n > left() / least) bad(cat("a list of ", n, " items does not fit"));
  return static_cast<size_t>(n);
}

std::string_view ByteReader::raw(size_t size) {
  if (size > left()) bad("the graph ends early");
  std::string_view v = bytes_.substr(at_, size);
  at_ += size;
  return v;
}

double ByteReader::real() {
  double v;
  std::memcpy(&v, raw(8).data(), 8);
  return v;
}

}  // namespace pelton::ir
