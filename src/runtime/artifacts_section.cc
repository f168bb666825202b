// SPDX-License-Identifier: Apache-2.0
#include "runtime/artifacts_section.h"

#include <cstring>

#include "base/cat.h"
#include "base/error.h"

namespace pelton::runtime {
namespace {

void put(std::string& out, std::string_view text) {
  const uint64_t size = text.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out.append(text);
}

std::string_view take(std::string_view& rest) {
  uint64_t size = 0;
  if (rest.size() < sizeof size)
    fail(ErrorCode::bad_format, cat("an entry is cut off: ", rest.size(), " bytes are left"));
  std::memcpy(&size, rest.data(), sizeof size);
  rest.remove_prefix(sizeof size);
  if (size > rest.size())
    fail(ErrorCode::bad_format, cat("an entry of ", size, " bytes is cut off: ", rest.size(), " are left"));
  const std::string_view text = rest.substr(0, size);
  rest.remove_prefix(size);
  return text;
}

}  // namespace

std::string artifacts_bytes(const device::Artifacts& artifacts) {
  std::string out;
  for (const auto& [name, content] : artifacts.entries()) {
    put(out, name.first);
    put(out, name.second);
    put(out, content);
  }
  return out;
}

device::Artifacts::Entries read_artifacts(std::string_view bytes) {
  device::Artifacts::Entries entries;
  while (!bytes.empty()) {
    std::string kind(take(bytes)), key(take(bytes));
    entries.insert_or_assign({std::move(kind), std::move(key)}, std::string(take(bytes)));
  }
  return entries;
}

}  // namespace pelton::runtime
