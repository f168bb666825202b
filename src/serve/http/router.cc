// SPDX-License-Identifier: Apache-2.0
#include "serve/http/router.h"

#include <strings.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/log.h"
#include "serve/http/compress.h"
#include "serve/http/infer_json.h"
#include "serve/http/management_json.h"
#include "serve/http/raw_request.h"

namespace pelton::serve {
namespace {

HttpResponse empty(int status) {
  return HttpResponse::text("", "text/plain", status);
}

HttpResponse no_such_path(const HttpRequest& request, std::string_view hint = "") {
  return HttpResponse::error(404, cat("no such path: ", request.target, hint));
}

HttpResponse error_now() {
  try {
    throw;
  } catch (const Error& e) {
    return HttpResponse::error(e);
  } catch (const std::bad_alloc&) {
    return HttpResponse::error(503, "out of memory");
  } catch (const std::exception& e) {
    return HttpResponse::error(500, e.what());
  }
}

// "host:port" without the port; brackets of IPv6 stay.
std::string_view host_name(std::string_view host) {
  if (!host.empty() && host[0] == '[') return host.substr(0, std::min(host.size(), host.find(']') + 1));
  return host.substr(0, host.find(':'));
}

bool same_text(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::string decode_base64(std::string_view text, std::string_view what) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  unsigned bits = 0, count = 0;
  size_t padding = 0;
  for (char c : text) {
    int v = c >= 'A' && c <= 'Z'   ? c - 'A'
            : c >= 'a' && c <= 'z' ? c - 'a' + 26
            : c >= '0' && c <= '9' ? c - '0' + 52
            : c == '+'             ? 62
            : c == '/'             ? 63
                                   : -1;
    if (c == '=' && padding < 2) {
      ++padding;
      continue;
    }
    if (v < 0 || padding) fail(ErrorCode::bad_format, cat("parameter '", what, "' is not base64"));
    bits = bits << 6 | static_cast<unsigned>(v);
    if (++count % 4 != 1) out += static_cast<char>(bits >> (count % 4 == 0 ? 0 : count % 4 == 3 ? 2 : 4));
  }
  if ((count + padding) % 4 != 0) fail(ErrorCode::bad_format, cat("parameter '", what, "' is not base64"));
  return out;
}

}  // namespace

std::vector<std::string> split_path(std::string_view target) {
  target = target.substr(0, target.find('?'));
  std::vector<std::string> out;
  std::string part;
  auto end = [&] {
    if (!part.empty()) out.push_back(std::move(part));
    part.clear();
  };
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == '/') {
      end();
    } else if (target[i] == '%') {
      unsigned char v = 0;
      auto r = i + 2 < target.size() ? std::from_chars(target.data() + i + 1, target.data() + i + 3, v, 16)
                                     : std::from_chars_result{target.data(), std::errc::invalid_argument};
      if (r.ec != std::errc() || r.ptr != target.data() + i + 3 || v == 0)
        fail(ErrorCode::bad_format, "the path has a broken % escape");
      part += static_cast<char>(v);
      i += 2;
    } else {
      part += target[i];
    }
  }
  end();
  return out;
}

std::optional<HttpResponse> Router::refuse_early(const HttpRequest& request) const {
  const std::string_view host = request.header("Host");
  if (options_.check_host && !host.empty()) {
    const auto& allowed = options_.allowed_hosts;
    if (std::none_of(allowed.begin(), allowed.end(),
                     [&](const std::string& h) { return same_text(h, host_name(host)); }))
      return HttpResponse::error(
          403, cat("host '", host_name(host), "' is not allowed: add it with --http-allowed-host"));
  }
  const std::string_view origin = request.header("Origin");
  if (!origin.empty()) {
    const size_t scheme = origin.find("://");
    const bool own = scheme != origin.npos && same_text(origin.substr(scheme + 3), host);
    const auto& allowed = options_.allowed_origins;
    if (!own && std::find(allowed.begin(), allowed.end(), origin) == allowed.end())
      return HttpResponse::error(403, "requests from other origins are not allowed");
  }
  if (options_.api && options_.access.any()) {
    std::optional<EndpointGroup> group;
    try {
      group = group_of(split_path(request.target));
    } catch (const Error& e) {
      return HttpResponse::error(e);
    }
    if (group &&
        !options_.access.allows(*group, [&](const std::string& name) { return request.header(name); }))
      return HttpResponse::error(403, cat("the ", to_string(*group), " endpoints want a key in header '",
                                          options_.access.key_header(*group), "'"));
  }
  return std::nullopt;
}

std::optional<EndpointGroup> group_of(const std::vector<std::string>& path) {
  using G = EndpointGroup;
  if (path.empty()) return G::statistics;  // the status page
  if (path[0] != "v2") return std::nullopt;
  if (path.size() == 1) return G::metadata;
  const std::string& last = path.back();
  if (path[1] == "health") return G::health;
  if (path[1] == "logging") return G::logging;
  if (path[1] == "trace") return G::trace;
  if (path[1] == "repository") return G::model_repository;
  if (path[1] == "systemsharedmemory" || path[1] == "cudasharedmemory") return G::shared_memory;
  if (path[1] != "models") return std::nullopt;
  if (path.size() == 3) return last == "stats" ? G::statistics : G::metadata;
  if (last == "infer" || last == "generate" || last == "generate_stream") return G::inference;
  if (last == "ready") return G::health;
  if (last == "config") return G::model_config;
  if (last == "stats") return G::statistics;
  if (last == "setting") return G::trace;
  return G::metadata;
}

void Router::handle(HttpRequest&& request, std::shared_ptr<HttpPeer> peer) const {
  try {
    const std::vector<std::string> path = split_path(request.target);
    const bool post = request.method == "POST";
    if (options_.api && path.size() >= 3 && path[0] == "v2" && path[1] == "models" &&
        (path.back() == "generate" || path.back() == "generate_stream")) {
      const bool versioned = path.size() == 6 && path[3] == "versions";
      if (path.size() == 4 || versioned) {
        if (!post) return peer->respond(HttpResponse::wrong_method("POST", "generation wants POST"));
        return generate(std::move(request), path[2], versioned ? path[4] : "",
                        path.back() == "generate_stream", peer);
      }
    }
    if (options_.api && path.size() >= 3 && path[0] == "v2" && path[1] == "models" &&
        path.back() == "infer") {
      const bool versioned = path.size() == 6 && path[3] == "versions";
      if (path.size() == 4 || versioned) {
        if (!post) return peer->respond(HttpResponse::wrong_method("POST", "inference wants POST"));
        return infer(std::move(request), path[2], versioned ? path[4] : "", peer);
      }
    }
    if (options_.api && post && path.size() >= 5 && path[0] == "v2" && path[1] == "repository" &&
        path[path.size() - 3] == "models" && path.size() <= 6 &&
        (path.back() == "load" || path.back() == "unload"))
      return repository_control(std::move(request), path[path.size() - 2], path.back() == "load", peer);
    peer->respond(answer(request, path));
  } catch (...) {
    peer->respond(error_now());
  }
}

HttpResponse Router::answer(HttpRequest& request, const std::vector<std::string>& path) const {
  const bool get = request.method == "GET", post = request.method == "POST";
  if (!get && !post)
    return HttpResponse::wrong_method("GET, HEAD, POST", cat("method ", request.method, " is not supported"));
  if (options_.metrics && path.size() == 1 && path[0] == "metrics")
    return get ? HttpResponse::text(core_.metrics(), "text/plain; version=0.0.4; charset=utf-8")
               : HttpResponse::wrong_method("GET, HEAD", "metrics want GET");
  if (!options_.api) return no_such_path(request, "; this port has /metrics only");
  if (path.empty())
    return get ? HttpResponse::text(core_.status_page(), "text/html; charset=utf-8")
               : HttpResponse::wrong_method("GET, HEAD", "the status page wants GET");
  if (path[0] == "metrics" && path.size() == 1)
    return no_such_path(request, "; metrics have a port of their own (--metrics-port)");
  if (path[0] != "v2") return no_such_path(request);
  if (get && path.size() == 1) return HttpResponse::json(core_.server_metadata_json());
  if (path.size() == 1) return HttpResponse::wrong_method("GET, HEAD", "server metadata wants GET");
  if (path[1] == "health" && path.size() == 3 && get) {
    if (path[2] == "live") return empty(core_.live() ? 200 : 400);
    if (path[2] == "ready") return empty(core_.ready() ? 200 : 400);
  }
  if (path[1] == "models" && get) {
    if (path.size() == 3 && path[2] == "stats") return HttpResponse::json(core_.statistics_json("", ""));
    if (path.size() >= 3) return model_get(request, path);
  }
  if (path[1] == "models" && path.size() == 5 && path[3] == "trace" && path[4] == "setting")
    return HttpResponse::json(
        core_.trace_settings_json(path[2], post ? checked_json_object(request.body) : ""));
  if (path[1] == "trace" && path.size() == 3 && path[2] == "setting")
    return HttpResponse::json(core_.trace_settings_json("", post ? checked_json_object(request.body) : ""));
  if (path[1] == "logging" && path.size() == 2)
    return HttpResponse::json(core_.log_settings_json(post ? checked_json_object(request.body) : ""));
  if (path[1] == "repository" && path.back() == "index" && path.size() <= 4 && !post)
    return HttpResponse::wrong_method("POST", "the repository's index wants POST");
  if (path[1] == "repository" && path.back() == "index" && path.size() <= 4)
    return HttpResponse::json(core_.index_json(read_ready_flag(request.body)));
  if (path[1] == "systemsharedmemory" || path[1] == "cudasharedmemory") return shared_memory(request, path);
  return no_such_path(request);
}

// /v2/systemsharedmemory[/region/R]/status, /register, /unregister; the same under cudasharedmemory
HttpResponse Router::shared_memory(HttpRequest& request, const std::vector<std::string>& path) const {
  SharedMemory& memory = core_.shared_memory();
  const bool of_gpus = path[1] == "cudasharedmemory";
  const bool named = path.size() == 5 && path[2] == "region";
  if (!named && path.size() != 3) return no_such_path(request);
  const std::string region = named ? path[3] : "";
  if (path.back() == "status" && request.method == "GET")
    return HttpResponse::json(core_.shared_memory_json(region, of_gpus));
  if (request.method != "POST")
    return HttpResponse::wrong_method("POST", "shared memory is registered with POST");
  if (path.back() == "unregister") {
    named ? memory.remove(region, of_gpus) : memory.remove_all(of_gpus);
    return empty(200);
  }
  if (path.back() != "register" || !named) return no_such_path(request);
  memory.require();
  const RegionRequest r = read_region_request(request.body);
  if (of_gpus)
    memory.add_gpu(region, decode_base64(r.raw_handle, "raw_handle"), r.device, r.size);
  else
    memory.add(region, r.key, r.offset, r.size);
  return empty(200);
}

// /v2/models/NAME[/versions/V][/ready|/config|/stats]
HttpResponse Router::model_get(const HttpRequest& request, const std::vector<std::string>& path) const {
  const std::string& name = path[2];
  size_t at = 3;
  std::string version;
  if (path.size() >= 5 && path[3] == "versions") version = path[4], at = 5;
  if (path.size() == at) return HttpResponse::json(core_.model_metadata_json(name, version));
  if (path.size() == at + 1) {
    if (path[at] == "ready") {
      if (core_.repository().ready(name, version) && !core_.draining()) return empty(200);
      return HttpResponse::error(400, cat("model '", name, "' is not ready"));
    }
    if (path[at] == "config") return HttpResponse::json(core_.model_config_json(name, version));
    if (path[at] == "stats") return HttpResponse::json(core_.statistics_json(name, version));
  }
  if (path.size() == at + 2 && path[at] == "trace" && path[at + 1] == "setting")
    return HttpResponse::json(core_.trace_settings_json(name, ""));
  return no_such_path(request);
}

void Router::decode_body(HttpRequest& http) const {
  const Coding coding = coding_of(http.header("Content-Encoding"));
  if (coding != Coding::identity)
    http.body = counted(core_.gate(), decompress(http.body, coding, options_.max_body_bytes, kBodyPadding));
}

// What goes wrong from here on reaches the request's callback: a request that is destroyed answers.
void Router::submit(RequestPtr request) const {
  try {
    core_.infer(std::move(request));
  } catch (const std::exception& e) {
    log_error("a request ended early: ", e.what());
  }
}

void Router::read_infer_body(HttpRequest& http, Request& request, bool& binary_default) const {
  decode_body(http);
  size_t json_size = http.body.size;
  if (const std::string_view length = http.header("Inference-Header-Content-Length"); !length.empty()) {
    auto r = std::from_chars(length.data(), length.data() + length.size(), json_size);
    if (r.ec != std::errc() || r.ptr != length.data() + length.size())
      fail(ErrorCode::bad_format, cat("Inference-Header-Content-Length '", length, "' is not a number"));
  }
  if (json_size == 0 && http.body.size > 0) {
    const auto target = core_.repository().find(request.model, request.version);
    binary_default = true;
    return read_raw_request(request, http.body, target->config(), core_.gate());
  }
  read_infer_request(request, http.body, json_size, binary_default, core_.shared_memory());
}

void Router::forward_headers(const HttpRequest& http, Request& request) const {
  if (!options_.forward) return;
  for (const auto& [name, value] : http.headers)
    if (!is_reserved_parameter(name) && options_.forward.matches(name))
      request.parameters.emplace(name, value);  // a parameter of the body stays
}

void Router::infer(HttpRequest&& http, std::string model, std::string version,
                   std::shared_ptr<HttpPeer> peer) const {
  auto request = std::make_unique<Request>();
  request->arrival = http.arrival;
  request->model = std::move(model);
  request->version = std::move(version);
  request->token = http.token;
  if (core_.tracing()) request->traceparent = http.header("traceparent");
  bool binary_default = false;
  try {
    read_infer_body(http, *request, binary_default);
  } catch (const Error& e) {
    core_.count_refused(*request, e.code());
    throw;
  }
  forward_headers(http, *request);
  const Coding answer_coding = accepted_coding(http.header("Accept-Encoding"));
  request->set_callback([&core = core_, peer = std::move(peer), outputs = request->outputs,
                         mapped = core_.shared_memory().mapped_inputs(*request), binary_default,
                         answer_coding](Response&& response, bool final) {
    if (!final) return;
    try {
      if (response.error) return peer->respond(HttpResponse::error(*response.error));
      core.shared_memory().store(response, outputs, mapped);
      InferBody body = write_infer_response(response, outputs, binary_default);
      HttpResponse http_response;
      http_response.body = std::move(body.parts);
      if (body.binary) {
        http_response.content_type = "application/octet-stream";
        http_response.headers.emplace_back("Inference-Header-Content-Length", cat(body.json_size));
      }
      // A body of one packet gains nothing from compression.
      if (answer_coding != Coding::identity && http_response.size() > 1024) {
        http_response.body = {compress(http_response.body, answer_coding)};
        http_response.headers.emplace_back("Content-Encoding",
                                           answer_coding == Coding::gzip ? "gzip" : "deflate");
      }
      peer->respond(std::move(http_response));
    } catch (...) {
      peer->respond(error_now());
    }
  });
  submit(std::move(request));
}

void Router::repository_control(HttpRequest&& http, const std::string& model, bool load,
                                std::shared_ptr<HttpPeer> peer) const {
  Parameters parameters = read_parameters(http.body);
  LoadOverride changes;
  bool dependents = false;
  for (auto& [name, value] : parameters) {
    if (load && name == "config") {
      if (!std::holds_alternative<std::string>(value))
        fail(ErrorCode::bad_format, "parameter 'config' is not a string");
      changes.config_json = std::get<std::string>(value);
    } else if (load && name.starts_with("file:")) {
      if (!std::holds_alternative<std::string>(value))
        fail(ErrorCode::bad_format, cat("parameter '", name, "' is not a string"));
      changes.files[name.substr(5)] = decode_base64(std::get<std::string>(value), name);
    } else if (!load && name == "unload_dependents") {
      if (!std::holds_alternative<bool>(value))
        fail(ErrorCode::bad_format, "parameter 'unload_dependents' expects true or false");
      dependents = std::get<bool>(value);
    } else {
      fail(ErrorCode::bad_format, cat("unknown parameter '", name, "'"));
    }
  }
  auto work = [this, model, load, dependents, changes = std::move(changes), peer] {
    try {
      if (load)
        core_.repository().load(model, changes);
      else
        core_.repository().unload(model, dependents);
    } catch (...) {
      return peer->respond(error_now());
    }
    peer->respond(empty(200));
  };
  if (!core_.admin().try_post(std::move(work)))
    peer->respond(HttpResponse::error(503, "too many management requests wait"));
}

}  // namespace pelton::serve
