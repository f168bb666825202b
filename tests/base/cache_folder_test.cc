// SPDX-License-Identifier: Apache-2.0
#include "base/cache_folder.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "support/temp_dir.h"

using namespace pelton;

TEST_CASE("cache: entries come back under their own key only, damaged ones do not") {
  test::TempDir dir;
  setenv("PELTON_CACHE_DIR", dir.path().c_str(), 1);
  CHECK(!read_cached("kernels", "a"));
  write_cached("kernels", "a", "first");
  write_cached("kernels", "b", std::string("se\0cond", 7));
  CHECK(read_cached("kernels", "a") == "first");
  CHECK(read_cached("kernels", "b") == std::string("se\0cond", 7));
  CHECK(!read_cached("other", "a"));
  std::string why, folder = cache_folder("kernels", why);
  struct stat s;
  REQUIRE(stat(folder.c_str(), &s) == 0);
  CHECK((s.st_mode & 0777) == 0700);
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::string all = read_file(file.path());
    all.back() ^= 1;
    write_file(file.path(), all);
  }
  CHECK(!read_cached("kernels", "a"));
  CHECK(!read_cached("kernels", "b"));
  unsetenv("PELTON_CACHE_DIR");
}

TEST_CASE("cache: a folder that others can write is not used, an empty name switches caches off") {
  test::TempDir dir;
  setenv("PELTON_CACHE_DIR", dir.path().c_str(), 1);
  write_cached("kernels", "a", "first");
  std::string why, folder = cache_folder("kernels", why);
  REQUIRE(chmod(folder.c_str(), 0770) == 0);
  CHECK(cache_folder("kernels", why).empty());
  CHECK(why.find("can be written by others") != std::string::npos);
  CHECK(!read_cached("kernels", "a"));
  setenv("PELTON_CACHE_DIR", "", 1);
  CHECK(cache_folder("kernels", why).empty());
  CHECK(why.empty());
  unsetenv("PELTON_CACHE_DIR");
}
