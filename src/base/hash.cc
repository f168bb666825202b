// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include "base/error.h"

namespace pelton {
namespace {

void append_hex(std::string& out, uint64_t value, int bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  for (int shift = bytes * 8 - 4; shift >= 0; shift -= 4) out.push_back(digits[(value >> shift) & 15]);
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

std::string Checksum::str() const {
  std::string out;
  append_hex(out, high, 8);
  append_hex(out, low, 8);
  return out;
}

Checksum checksum(std::span<const std::byte> bytes) {
  auto h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.high64, h.low64};
}
Checksum checksum(std::string_view text) {
  return checksum(as_bytes(text));
}

std::string Digest::str() const {
  std::string out;
  for (uint8_t b : bytes) append_hex(out, b, 1);
  return out;
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  PELTON_CHECK(context_ && EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr) == 1,
               "libcrypto has no SHA-256");
}
Sha256::~Sha256() {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_));
}

void Sha256::update(std::span<const std::byte> bytes) {
  PELTON_CHECK(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), bytes.data(), bytes.size()) == 1);
}
void Sha256::update(std::string_view text) {
  update(as_bytes(text));
}

Digest Sha256::finish() {
  Digest out;
  unsigned size = 0;
  PELTON_CHECK(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), out.bytes.data(), &size) == 1 &&
               size == out.bytes.size());
  return out;
}

Digest sha256(std::span<const std::byte> bytes) {
  Sha256 h;
  h.update(bytes);
  return h.finish();
}
Digest sha256(std::string_view text) {
  return sha256(as_bytes(text));
}

}  // namespace pelton
