// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "base/file.h"
#include "ir/numerics.h"

using namespace pelton;

TEST_CASE("docs/numerics.md holds the numerics table") {
  std::string page = read_file("docs/numerics.md"), table = ir::numerics_table();
  CAPTURE(table);
  CHECK(page.find(table) != page.npos);
}
