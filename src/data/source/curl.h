// SPDX-License-Identifier: Apache-2.0
// The calls of libcurl that are used, from the library of the machine: it is opened when the first URL is
// read, so that a process without URLs needs none.
#pragma once

#include <curl/curl.h>

namespace pelton::data {

struct CurlApi {
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_reset) easy_reset;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_strerror) easy_strerror;
  CURLcode (*easy_setopt)(CURL*, CURLoption, ...);
  CURLcode (*easy_getinfo)(CURL*, CURLINFO, ...);
  decltype(&curl_url) url_new;
  decltype(&curl_url_set) url_set;
  decltype(&curl_url_get) url_get;
  decltype(&curl_url_cleanup) url_cleanup;
  decltype(&curl_free) free;
  decltype(&curl_slist_append) list_append;
  decltype(&curl_slist_free_all) list_free;
};
const CurlApi& curl();  // not_found error when the machine has no libcurl

}  // namespace pelton::data
