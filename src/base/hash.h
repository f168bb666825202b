// SPDX-License-Identifier: Apache-2.0
// Two kinds of digest: a fast checksum that finds damage, and SHA-256 that names content.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pelton {

// XXH3, 128 bits. Finds accidental damage; a forger can match it, so it never decides identity or trust.
struct Checksum {
  uint64_t high = 0, low = 0;
  bool operator==(const Checksum&) const = default;
  std::string str() const;  // 32 hexadecimal digits
};
Checksum checksum(std::span<const std::byte> bytes);
Checksum checksum(std::string_view text);

// SHA-256, for identity: equal digests are treated as equal content.
struct Digest {
  std::array<uint8_t, 32> bytes{};
  bool operator==(const Digest&) const = default;
  auto operator<=>(const Digest&) const = default;
  std::string str() const;  // 64 hexadecimal digits
};
Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);

// The same digest over content that comes in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  Digest finish();  // once; no update may follow

 private:
  void* context_;  // EVP_MD_CTX
};

}  // namespace pelton
