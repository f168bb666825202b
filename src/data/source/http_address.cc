// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "base/cat.h"
#include "data/source/http.h"
#include "data/source/s3.h"

namespace pelton::data {

bool is_url(std::string_view path) {
  return path.starts_with("http://") || path.starts_with("https://") || is_s3(path);
}

bool is_private_address(std::string_view address) {
  const std::string text(address);
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    const uint32_t a = ntohl(v4.s_addr);
    struct Net {
      uint32_t base;
      int bits;
    };
    constexpr Net nets[] = {{0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},
                            {0xa9fe0000, 16}, {0xac100000, 12}, {0xc0000000, 24}, {0xc0a80000, 16},
                            {0xc6120000, 15}, {0xe0000000, 3}};
    return std::ranges::any_of(nets, [&](const Net& n) { return (a ^ n.base) >> (32 - n.bits) == 0; });
  }
  in6_addr v6{};
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) return true;  // what it is cannot be told
  const uint8_t* b = v6.s6_addr;
  const bool zeros = std::all_of(b, b + 10, [](uint8_t v) { return v == 0; });
  const bool mapped = zeros && b[10] == 0xff && b[11] == 0xff;                        // ::ffff:a.b.c.d
  const bool low = zeros && b[10] == 0 && b[11] == 0;                                 // ::, ::1, ::a.b.c.d
  const bool translated = b[0] == 0 && b[1] == 0x64 && b[2] == 0xff && b[3] == 0x9b;  // 64:ff9b::a.b.c.d
  if (mapped || translated)
    return is_private_address(cat(int{b[12]}, ".", int{b[13]}, ".", int{b[14]}, ".", int{b[15]}));
  return low || (b[0] & 0xfe) == 0xfc || (b[0] == 0xfe && (b[1] & 0x80) == 0x80) || b[0] == 0xff;
}

}  // namespace pelton::data
