// SPDX-License-Identifier: Apache-2.0
#if PELTON_HAVE_CURL
#include "data/source/curl.h"

#include <dlfcn.h>

#include "base/error.h"

namespace pelton::data {

const CurlApi& curl() {
  static const CurlApi api = [] {
    void* library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library)
      fail(ErrorCode::not_found, cat("cannot open libcurl: ", dlerror()), "",
           "install libcurl4, or copy the files");
    auto find = [&](const char* name, auto& into) {
      into = reinterpret_cast<std::remove_reference_t<decltype(into)>>(dlsym(library, name));
      if (!into)
        fail(ErrorCode::unsupported_version, cat("libcurl has no ", name), "",
             "install libcurl 7.85 or newer");
    };
    decltype(&curl_global_init) global_init = nullptr;
    CurlApi a{};
    find("curl_global_init", global_init);
    find("curl_easy_init", a.easy_init);
    find("curl_easy_reset", a.easy_reset);
    find("curl_easy_perform", a.easy_perform);
    find("curl_easy_cleanup", a.easy_cleanup);
    find("curl_easy_strerror", a.easy_strerror);
    find("curl_easy_setopt", a.easy_setopt);
    find("curl_easy_getinfo", a.easy_getinfo);
    find("curl_url", a.url_new);
    find("curl_url_set", a.url_set);
    find("curl_url_get", a.url_get);
    find("curl_url_cleanup", a.url_cleanup);
    find("curl_free", a.free);
    find("curl_slist_append", a.list_append);
    find("curl_slist_free_all", a.list_free);
    if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) fail(ErrorCode::internal, "libcurl does not start");
    return a;
  }();
  return api;
}

}  // namespace pelton::data
#endif
