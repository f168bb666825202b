// SPDX-License-Identifier: Apache-2.0
#include "cli/libraries.h"

#include <oneapi/tbb/version.h>
#include <openssl/crypto.h>
#include <xxhash.h>
#include <zlib.h>
#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

#include "base/cat.h"

namespace pelton::cli {

std::vector<Library> used_libraries() {
  unsigned xxh = XXH_versionNumber();
  return {
      {"oneTBB", TBB_runtime_version(), ""},
      {"OpenSSL", OpenSSL_version(OPENSSL_VERSION_STRING), ""},
      {"zlib", zlibVersion(), ""},
      {"xxHash", cat(xxh / 10000, ".", xxh / 100 % 100, ".", xxh % 100), ""},
      {"CLI11", CLI11_VERSION, ""},
      {"nlohmann/json",
       cat(NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR, ".", NLOHMANN_JSON_VERSION_PATCH),
       ""},
  };
}

}  // namespace pelton::cli
