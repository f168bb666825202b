// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "base/file.h"
#include "ir/numerics.h"

using namespace pelton;

TEST_CASE("docs/numerics.md holds the classes and names every op in its own") {
  std::string page = read_file("docs/numerics.md"), table = ir::numerics_table();
  std::string classes = table.substr(0, table.find("\n\n"));
  CAPTURE(classes);
  CHECK(page.find(classes) != page.npos);
  std::string unnamed;
  for (const ir::OpDef* op : ir::all_ops()) {
    std::string word = cat("`", op->name, "`");
    size_t list = page.find("| class | ops |"), at = page.find(word, list);
    REQUIRE(list != page.npos);
    if (at == page.npos) {
      append(unnamed, cat(" ", op->name));
      continue;
    }
    size_t line = page.rfind('\n', at) + 1;
    CAPTURE(word);
    CHECK(page.compare(line, 2 + ir::numerics(*op).name.size(), cat("| ", ir::numerics(*op).name)) == 0);
  }
  if (!unnamed.empty()) FAIL_CHECK("the page does not name", unnamed, "; its tables should be:\n", table);
}
