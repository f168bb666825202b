// SPDX-License-Identifier: Apache-2.0
// /generate and /generate_stream: one JSON object, or server-sent events as the responses come.
#include <mutex>

#include "base/error.h"
#include "serve/http/generate.h"
#include "serve/http/infer_json.h"
#include "serve/http/router.h"

namespace pelton::serve {
namespace {

bool is_end_marker(const Response& r) {
  return r.outputs.empty() && !r.error;
}

HttpResponse too_many() {
  return HttpResponse::error(Error(ErrorCode::unsupported_op, "the model sent more or less than one response",
                                   "", "use generate_stream"));
}

// One answer from exactly one response.
class Single {
 public:
  explicit Single(std::shared_ptr<HttpPeer> peer) : peer_(std::move(peer)) {}
  void take(Response&& r, bool final) {
    std::lock_guard lock(mutex_);
    if (!is_end_marker(r)) {
      ++count_;
      if (count_ == 1) first_ = std::move(r);
    }
    if (!final) return;
    if (count_ != 1) return peer_->respond(too_many());
    if (first_.error) return peer_->respond(HttpResponse::error(*first_.error));
    try {
      peer_->respond(HttpResponse::json(write_generate_response(first_)));
    } catch (const Error& e) {
      peer_->respond(HttpResponse::error(e));
    }
  }

 private:
  const std::shared_ptr<HttpPeer> peer_;
  std::mutex mutex_;
  int count_ = 0;
  Response first_;
};

// One event a response. An error before the first has its HTTP status, a later one is an event.
class Events {
 public:
  explicit Events(std::shared_ptr<HttpPeer> peer) : peer_(std::move(peer)) {}
  void take(Response&& r, bool final) {
    std::lock_guard lock(mutex_);
    if (!begun_ && final && r.error) return peer_->respond(HttpResponse::error(*r.error));
    if (!begun_) {
      HttpResponse head;
      head.content_type = "text/event-stream; charset=utf-8";
      head.headers.emplace_back("Cache-Control", "no-cache");
      peer_->begin_stream(std::move(head));
      begun_ = true;
    }
    std::string event;
    if (r.error) {
      event = cat("data: ", error_json(*r.error), "\n\n");
    } else if (!is_end_marker(r)) {
      try {
        event = cat("data: ", write_generate_response(r), "\n\n");
      } catch (const Error& e) {
        event = cat("data: ", error_json(e), "\n\n");
      }
    }
    peer_->stream(std::move(event), final);
  }

 private:
  const std::shared_ptr<HttpPeer> peer_;
  std::mutex mutex_;
  bool begun_ = false;
};

}  // namespace

void Router::generate(HttpRequest&& http, std::string model, std::string version, bool stream,
                      std::shared_ptr<HttpPeer> peer) const {
  auto request = std::make_unique<Request>();
  request->arrival = http.arrival;
  request->model = std::move(model);
  request->version = std::move(version);
  request->token = http.token;
  if (core_.tracing()) request->traceparent = http.header("traceparent");
  request->streams = true;
  const auto target = core_.repository().find(request->model, request->version);
  try {
    decode_body(http);
    read_generate_request(*request, http.body, target->config(), core_.gate());
  } catch (const Error& e) {
    core_.count_refused(*request, e.code());
    throw;
  }
  forward_headers(http, *request);
  request->parameters.erase("triton_enable_empty_final_response");
  if (stream)
    request->set_callback([events = std::make_shared<Events>(std::move(peer))](Response&& r, bool final) {
      events->take(std::move(r), final);
    });
  else
    request->set_callback([single = std::make_shared<Single>(std::move(peer))](Response&& r, bool final) {
      single->take(std::move(r), final);
    });
  submit(std::move(request));
}

}  // namespace pelton::serve
