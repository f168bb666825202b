// SPDX-License-Identifier: Apache-2.0
// Must-fail cases: the call throws an Error with this code, and its line has each of these words.
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>

#include "base/error.h"

namespace pelton::test {

template <class F>
void expect_error(ErrorCode code, std::initializer_list<const char*> words, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    std::string line = e.what();
    CAPTURE(line);
    CHECK(to_string(e.code()) == to_string(code));
    for (std::string word : words) {
      CAPTURE(word);
      CHECK(line.find(word) != line.npos);
    }
    return;
  }
  FAIL_CHECK("no error, expected " << std::string(to_string(code)));
}

}  // namespace pelton::test
