// SPDX-License-Identifier: Apache-2.0
// Who may ask what: groups of endpoints that want a key in a header, where secrets come from, and the files
// of TLS. Secrets never stand in a command line, where every user of the machine can read them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace pelton::serve {

enum class EndpointGroup : uint8_t {
  health,
  metadata,
  inference,
  shared_memory,
  model_config,
  model_repository,
  statistics,
  trace,
  logging,
};
inline constexpr size_t kEndpointGroups = 9;
std::string_view to_string(EndpointGroup g);  // "model-repository"

// Whether both are equal, in a time that depends on the length of `given` only.
bool same_secret(std::string_view given, std::string_view secret);
// The secret that "file:PATH" or "env:NAME" names, without a newline at its end. usage error on anything
// else, on an empty secret, and on a file that others than its owner and group may read.
std::string read_secret(std::string_view source, std::string_view what);

class AccessRules {
 public:
  // "GROUP[,GROUP...]:HEADER=SOURCE"; a group may be named once. usage errors.
  void restrict(const std::string& rule);
  bool any() const;
  bool restricted(EndpointGroup g) const { return rules_[static_cast<size_t>(g)].has_value(); }
  // The header that a restricted group wants its key in; its name is no secret.
  const std::string& key_header(EndpointGroup g) const { return rules_[static_cast<size_t>(g)]->header; }
  // `header` gives the value of a header, empty if it is absent.
  bool allows(EndpointGroup g, const std::function<std::string_view(const std::string&)>& header) const;

 private:
  struct Rule {
    std::string header, secret;
  };
  std::array<std::optional<Rule>, kEndpointGroups> rules_;
};

// TLS of one front end. Paths of PEM files; the key may also be "env:NAME".
struct TlsOptions {
  bool on = false, mutual = false;
  std::string cert, key, root;
};
struct TlsTexts {
  std::string cert, key, root;
};
// Reads what `o` names. usage errors name what is missing.
TlsTexts read_tls_texts(const TlsOptions& o);

// Which request headers become parameters of inference requests: names that match a POSIX extended regular
// expression, in any case.
class HeaderPattern {
 public:
  HeaderPattern() = default;
  explicit HeaderPattern(const std::string& pattern);  // usage error if it is none
  bool matches(const std::string& name) const;
  explicit operator bool() const { return compiled_ != nullptr; }

 private:
  std::shared_ptr<const void> compiled_;
};

}  // namespace pelton::serve
