// SPDX-License-Identifier: Apache-2.0
#include "cli/libraries.h"

#include <oneapi/tbb/version.h>
#include <openssl/crypto.h>
#include <xxhash.h>
#include <zlib.h>
#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>
#include <utility>
#ifdef PELTON_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl_version.h>
#endif
#ifdef PELTON_HAVE_HWY
#include <hwy/highway.h>
#endif
#ifdef PELTON_HAVE_HTTP
#include <boost/version.hpp>
#endif
#ifdef PELTON_HAVE_GRPC
#include <grpcpp/version_info.h>
#endif
#ifdef PELTON_HAVE_JPEG
#include <jconfig.h>
#endif
#ifdef PELTON_HAVE_PNG
#include <png.h>
#endif
#ifdef PELTON_HAVE_WEBP
#include <webp/decode.h>
#endif
#ifdef PELTON_HAVE_TIFF
#include <tiffvers.h>
#endif
#ifdef PELTON_HAVE_SNDFILE
#include <sndfile.h>
#endif
#ifdef PELTON_HAVE_CURL
#include <curl/curlver.h>
#endif
#ifdef PELTON_HAVE_ZSTD
#include <zstd.h>
#endif

#include "base/cat.h"

namespace pelton::cli {
namespace {

#define PELTON_TEXT_OF(x) #x
#define PELTON_TEXT(x) PELTON_TEXT_OF(x)

// A library that a build may lack (cmake/PeltonDepends.cmake): no version, and what is off without it.
void add_optional(std::vector<Library>& out, const char* name, std::string version, const char* without) {
  std::string note = version.empty() ? cat("not found when this was built: ", without) : "";
  out.push_back({name, std::move(version), std::move(note)});
}

void add_optional(std::vector<Library>& out) {
  std::string version;
#ifdef PELTON_HAVE_ONEDNN
  version = cat(DNNL_VERSION_MAJOR, ".", DNNL_VERSION_MINOR, ".", DNNL_VERSION_PATCH);
#endif
  add_optional(out, "oneDNN", std::exchange(version, {}), "own kernels serve");
#ifdef PELTON_HAVE_HWY
  version = cat(HWY_MAJOR, ".", HWY_MINOR);
#endif
  add_optional(out, "Highway", std::exchange(version, {}), "kernels are scalar");
#ifdef PELTON_HAVE_HTTP
  version = BOOST_LIB_VERSION;
#endif
  add_optional(out, "Boost", std::exchange(version, {}), "there is no server");
#ifdef PELTON_HAVE_GRPC
  version = GRPC_CPP_VERSION_STRING;
#endif
  add_optional(out, "gRPC", std::exchange(version, {}), "the server speaks HTTP alone");
#ifdef PELTON_HAVE_JPEG
  version = PELTON_TEXT(LIBJPEG_TURBO_VERSION);
#endif
  add_optional(out, "libjpeg", std::exchange(version, {}), "JPEG is refused");
#ifdef PELTON_HAVE_PNG
  version = PNG_LIBPNG_VER_STRING;
#endif
  add_optional(out, "libpng", std::exchange(version, {}), "PNG is refused");
#ifdef PELTON_HAVE_WEBP
  const int webp = WebPGetDecoderVersion();
  version = cat(webp >> 16, ".", (webp >> 8) & 255, ".", webp & 255);
#endif
  add_optional(out, "libwebp", std::exchange(version, {}), "WebP is refused");
#ifdef PELTON_HAVE_TIFF
  version = cat(TIFFLIB_VERSION);
#endif
  add_optional(out, "libtiff", std::exchange(version, {}), "TIFF is refused");
#ifdef PELTON_HAVE_SNDFILE
  version = sf_version_string();
#endif
  add_optional(out, "libsndfile", std::exchange(version, {}), "sound other than WAV is refused");
#ifdef PELTON_HAVE_CURL
  version = LIBCURL_VERSION;
#endif
  add_optional(out, "libcurl", std::exchange(version, {}), "URLs are refused");
#ifdef PELTON_HAVE_ZSTD
  version = ZSTD_VERSION_STRING;
#endif
  add_optional(out, "zstd", std::exchange(version, {}), "zstd files are refused");
}

}  // namespace

std::vector<Library> used_libraries() {
  unsigned xxh = XXH_versionNumber();
  std::vector<Library> out = {
      {"oneTBB", TBB_runtime_version(), ""},
      {"OpenSSL", OpenSSL_version(OPENSSL_VERSION_STRING), ""},
      {"zlib", zlibVersion(), ""},
      {"xxHash", cat(xxh / 10000, ".", xxh / 100 % 100, ".", xxh % 100), ""},
      {"CLI11", CLI11_VERSION, ""},
      {"nlohmann/json",
       cat(NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR, ".", NLOHMANN_JSON_VERSION_PATCH),
       ""},
  };
  add_optional(out);
  return out;
}

}  // namespace pelton::cli
