// SPDX-License-Identifier: Apache-2.0
#include "base/toml_text.h"

#include <doctest/doctest.h>

#include "support/expect_error.h"

using namespace pelton;
using pelton::test::expect_error;

TEST_CASE("toml text: what TOML allows passes") {
  for (const char* text : {
           "",
           "a = 1\n[t]\nb = 2\n[[list]]\nc = 3\n[ spaced . key ]\n[[ 'quoted' ]]\n[\"x.y\"]\n",
           "nested = [[[1, 2]], [[3]]]\nlines = [\n  [[1]],\n  [\n[[2]]\n]]\nafter = 1\n",
           "s = \"[[[ \xc3\xa9 # no comment\" # \xc3\xa9 [[[\nl = '\xc3\xa9 \\'\nm = \"\"\"\n[[[ \xc3\xa9 "
           "\"\" \\\"\"\"\"\n",
           "m = '''\n[[[\n\xc3\xa9'''\nempty = \"\"\nnone = ''\n",
           "\xef\xbb\xbf# with a mark in front\n[table]\n",
           "open = \"a string that does not end\nis for the parser\n",
       }) {
    CAPTURE(text);
    CHECK_NOTHROW(check_toml_text(text, "x.toml"));
  }
}

TEST_CASE("toml text: what the library does not survive is refused with its line") {
  expect_error(ErrorCode::bad_format, {"x.toml line 2", "begin with a key"},
               [] { check_toml_text("a = 1\n[[[t]]]\n", "x.toml"); });
  expect_error(ErrorCode::bad_format, {"line 1", "begin with a key"},
               [] { check_toml_text("[ ]\n", "x.toml"); });
  expect_error(ErrorCode::bad_format, {"line 3", "beyond ASCII"},
               [] { check_toml_text("a = '''\n'''\n\xc3\xa9 = 1\n", "x.toml"); });
  expect_error(ErrorCode::bad_format, {"line 1", "beyond ASCII"},
               [] { check_toml_text("\t\xcd\xb1\n", "x.toml"); });
  expect_error(ErrorCode::bad_format, {"line 1", "64 brackets"},
               [] { check_toml_text("a = " + std::string(65, '['), "x.toml"); });
}
