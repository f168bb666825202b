// SPDX-License-Identifier: Apache-2.0
#include "serve/core/access.h"

#include <regex.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"

namespace pelton::serve {
namespace {

constexpr std::string_view kNames[kEndpointGroups] = {"health",        "metadata",     "inference",
                                                      "shared-memory", "model-config", "model-repository",
                                                      "statistics",    "trace",        "logging"};
constexpr size_t kMaxSecret = 64 << 10;

}  // namespace

std::string_view to_string(EndpointGroup g) {
  return kNames[static_cast<size_t>(g)];
}

bool same_secret(std::string_view given, std::string_view secret) {
  volatile unsigned difference = given.size() != secret.size() || secret.empty();
  for (size_t i = 0; i < given.size(); ++i) {
    const char expected = secret.empty() ? '\0' : secret[i % secret.size()];
    difference = difference | static_cast<unsigned>(static_cast<unsigned char>(given[i]) ^
                                                    static_cast<unsigned char>(expected));
  }
  return difference == 0;
}

std::string read_secret(std::string_view source, std::string_view what) {
  std::string text;
  if (source.starts_with("env:")) {
    const std::string name(source.substr(4));
    const char* value = std::getenv(name.c_str());
    if (!value) fail(ErrorCode::usage, cat("environment variable ", name, " of ", what, " is not set"));
    text = value;
  } else if (source.starts_with("file:")) {
    const std::string path(source.substr(5));
    struct stat st {};
    if (::stat(path.c_str(), &st) == 0 && (st.st_mode & (S_IRWXG | S_IRWXO) & ~S_IRGRP))
      fail(ErrorCode::usage, cat("the file of ", what, " may be read or changed by others"), path,
           cat("chmod 600 ", path));
    text = read_file(path, kMaxSecret);
  } else {
    fail(ErrorCode::usage, cat(what, " stands in the command line, where others can read it"), "",
         "name where it is: file:PATH or env:NAME");
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty()) fail(ErrorCode::usage, cat(what, " is empty"));
  return text;
}

void AccessRules::restrict(const std::string& rule) {
  const size_t colon = rule.find(':'), equal = rule.find('=', colon == rule.npos ? 0 : colon);
  if (colon == rule.npos || equal == rule.npos || equal == colon + 1)
    fail(ErrorCode::usage, cat("'", rule.substr(0, equal), "' is not GROUP[,GROUP...]:HEADER=SOURCE"));
  Rule r{rule.substr(colon + 1, equal - colon - 1), ""};
  r.secret = read_secret(std::string_view(rule).substr(equal + 1), cat("the key '", r.header, "'"));
  for (size_t at = 0; at <= colon;) {
    const size_t end = std::min(rule.find(',', at), colon);
    const std::string name = rule.substr(at, end - at);
    const auto* it = std::find(std::begin(kNames), std::end(kNames), name);
    if (it == std::end(kNames)) {
      std::string known;
      for (std::string_view n : kNames) known += cat(known.empty() ? "" : ", ", n);
      fail(ErrorCode::usage, cat("no group of endpoints is named '", name, "'"), "", cat("use ", known));
    }
    auto& slot = rules_[static_cast<size_t>(it - std::begin(kNames))];
    if (slot) fail(ErrorCode::usage, cat("group '", name, "' is restricted twice"));
    slot = r;
    at = end + 1;
  }
}

bool AccessRules::any() const {
  return std::any_of(rules_.begin(), rules_.end(), [](const auto& r) { return r.has_value(); });
}

bool AccessRules::allows(EndpointGroup g,
                         const std::function<std::string_view(const std::string&)>& header) const {
  const auto& rule = rules_[static_cast<size_t>(g)];
  return !rule || same_secret(header(rule->header), rule->secret);
}

TlsTexts read_tls_texts(const TlsOptions& o) {
  TlsTexts t;
  if (o.cert.empty() || o.key.empty())
    fail(ErrorCode::usage, "TLS needs a certificate and a key", "",
         "name both with --*-server-cert and --*-server-key");
  if (o.mutual && o.root.empty())
    fail(ErrorCode::usage, "mutual TLS needs the certificate of the clients' authority", "",
         "name it with --*-root-cert");
  t.cert = read_file(o.cert, 1 << 20);
  t.key = read_secret(o.key.starts_with("env:") ? o.key : cat("file:", o.key), "the TLS key");
  t.key += '\n';
  if (!o.root.empty()) t.root = read_file(o.root, 16 << 20);
  return t;
}

HeaderPattern::HeaderPattern(const std::string& pattern) {
  const std::string text = pattern.starts_with("(?i)") ? pattern.substr(4) : pattern;  // case never matters
  auto* compiled = new regex_t;
  if (int e = ::regcomp(compiled, text.c_str(), REG_EXTENDED | REG_ICASE | REG_NOSUB)) {
    char why[200];
    ::regerror(e, compiled, why, sizeof why);
    delete compiled;
    fail(ErrorCode::usage, cat("'", pattern, "' is not an extended regular expression: ", why));
  }
  compiled_ = std::shared_ptr<const void>(compiled, [](const void* p) {
    auto* r = static_cast<regex_t*>(const_cast<void*>(p));
    ::regfree(r);
    delete r;
  });
}

bool HeaderPattern::matches(const std::string& name) const {
  return compiled_ && name.size() <= 256 &&
         ::regexec(static_cast<const regex_t*>(compiled_.get()), name.c_str(), 0, nullptr, 0) == 0;
}

}  // namespace pelton::serve
