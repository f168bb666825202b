// SPDX-License-Identifier: Apache-2.0
// A long test case that several processes share: PELTON_TEST_SHARE=2/4 is the second of four.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace pelton::test {

struct Share {
  int64_t number = 1, of = 1;
  bool has(int64_t index) const { return index % of == number - 1; }
};

inline Share share() {
  Share s;
  if (const char* text = std::getenv("PELTON_TEST_SHARE")) {
    long long number = 0, of = 0;
    if (std::sscanf(text, "%lld/%lld", &number, &of) != 2 || number < 1 || number > of) {
      std::fprintf(stderr, "PELTON_TEST_SHARE is \"%s\", wanted NUMBER/OF, as 2/4\n", text);
      std::exit(2);
    }
    s = {number, of};
  }
  return s;
}

}  // namespace pelton::test
