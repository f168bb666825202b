// SPDX-License-Identifier: Apache-2.0
// What each path answers. Free of sockets, so that it can be tested by calling it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/core/access.h"
#include "serve/core/core.h"
#include "serve/http/message.h"

namespace pelton::serve {

struct RouterOptions {
  bool api = true, metrics = false;  // which paths this port answers
  size_t max_body_bytes = 64 << 20;  // after decompression
  bool check_host = true;            // on loopback: Host must be one of allowed_hosts
  std::vector<std::string> allowed_hosts = {"localhost", "127.0.0.1", "[::1]"};
  std::vector<std::string> allowed_origins;  // none: a foreign Origin gets 403
  AccessRules access;
  HeaderPattern forward;  // headers that become parameters of inference requests
};

class Router {
 public:
  Router(Core& core, RouterOptions options) : core_(core), options_(std::move(options)) {}

  // Before the body is read: the refusal that Host, Origin or a missing key already calls for, if any.
  std::optional<HttpResponse> refuse_early(const HttpRequest& request) const;
  // Answers on `peer`, now or later.
  void handle(HttpRequest&& request, std::shared_ptr<HttpPeer> peer) const;
  const RouterOptions& options() const { return options_; }
  Core& core() const { return core_; }

 private:
  HttpResponse answer(HttpRequest& request, const std::vector<std::string>& path) const;
  HttpResponse shared_memory(HttpRequest& request, const std::vector<std::string>& path) const;
  HttpResponse model_get(const HttpRequest& request, const std::vector<std::string>& path) const;
  void decode_body(HttpRequest& http) const;  // by its Content-Encoding
  void read_infer_body(HttpRequest& http, Request& request, bool& binary_default) const;
  void forward_headers(const HttpRequest& http, Request& request) const;
  void submit(RequestPtr request) const;
  void infer(HttpRequest&& request, std::string model, std::string version,
             std::shared_ptr<HttpPeer> peer) const;
  void generate(HttpRequest&& request, std::string model, std::string version, bool stream,
                std::shared_ptr<HttpPeer> peer) const;
  void repository_control(HttpRequest&& request, const std::string& model, bool load,
                          std::shared_ptr<HttpPeer> peer) const;

  Core& core_;
  const RouterOptions options_;
};

// The group that a path belongs to; nullopt for paths that answer nothing.
std::optional<EndpointGroup> group_of(const std::vector<std::string>& path);
// Path segments, percent-decoded; the query is dropped. bad_format on a broken escape.
std::vector<std::string> split_path(std::string_view target);

}  // namespace pelton::serve
