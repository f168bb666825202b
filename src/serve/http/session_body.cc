// SPDX-License-Identifier: Apache-2.0
// How a connection reads the body of a request. Room in the memory gate is taken as the bytes come: a client
// that announces much and sends little takes it from nobody.
#include <cstring>

#include "base/error.h"
#include "serve/http/infer_json.h"
#include "serve/http/session.h"

namespace pelton::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kFirstRoom = 1 << 20;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr const char* kFull = "the server holds as many request bytes as it may";

}  // namespace

// Gives back its room when the last tensor that lies in it is freed.
struct Session::Body {
  explicit Body(MemoryGate& g) : gate(g) {}
  ~Body() { gate.give_back(room); }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  // Takes room up to `size` bytes in all; false if the gate has none.
  bool take(size_t size) {
    if (size <= room) return true;
    if (!gate.try_take(size - room)) return false;
    room = size;
    return true;
  }

  MemoryGate& gate;
  size_t room = 0;
  std::shared_ptr<char> memory;
};

void Session::read_body() {
  const size_t limit = server_.options.router.max_body_bytes;
  const bool chunked = parser_->chunked();
  const uint64_t size = parser_->content_length() ? *parser_->content_length() : 0;
  if (size > limit) return refuse(413, cat("the body has ", size, " bytes, at most ", limit, " are allowed"));
  if (!chunked && size == 0) return dispatch({});
  MemoryGate& gate = server_.router.core().gate();
  if (!gate.has_room(size)) return refuse(503, kFull);
  body_ = std::make_shared<Body>(gate);
  const bool asks = version_11_ && boost::beast::iequals(parser_->get()[http::field::expect], "100-continue");
  expect_continue(asks && buffer_.size() == 0 ? kContinue : std::string_view(), [this, chunked, size] {
    set(State::body);
    chunked ? begin_chunked() : read_sized(static_cast<size_t>(size));
  });
}

// Tells a client that waits for it to send the body; `then` runs once that has left.
void Session::expect_continue(std::string_view left, std::function<void()> then) {
  if (left.empty()) return then();
  set(State::writing);
  channel_.write_some(asio::buffer(left.data(), left.size()),
                      [self = shared_from_this(), left, then = std::move(then)](error_code ec, size_t n) {
                        if (ec) return self->close();
                        self->expect_continue(left.substr(n), then);
                      });
}

// A body of known size goes from the socket straight to where it stays. The binary part, when announced,
// starts on a 64-byte boundary.
void Session::read_sized(size_t size) {
  size_t json = 0;
  const std::string_view announced = request_.header("Inference-Header-Content-Length");
  for (char c : announced)
    json = c >= '0' && c <= '9' && json < (size_t{1} << 40) ? json * 10 + static_cast<size_t>(c - '0') : json;
  const size_t shift = json <= size ? (64 - json % 64) % 64 : 0;
  try {
    body_->memory = allocate_bytes(shift + size + kBodyPadding);
  } catch (const std::bad_alloc&) {
    return refuse(503, "out of memory");
  }
  std::memset(body_->memory.get() + shift + size, 0, kBodyPadding);
  char* at = body_->memory.get() + shift;
  const size_t have = std::min(size, buffer_.size());
  std::memcpy(at, buffer_.data().data(), have);
  buffer_.consume(have);
  read_rest(at, have, size);
}

void Session::read_rest(char* body, size_t have, size_t size) {
  const size_t room = std::min(size, std::max(kFirstRoom, 2 * have));
  if (!body_->take(room)) return refuse(503, kFull);
  if (have == size) return dispatch({body, size, std::shared_ptr<const void>(body_, body)});
  channel_.read_some(asio::buffer(body + have, room - have),
                     [self = shared_from_this(), body, have, size](error_code ec, size_t n) {
                       if (ec) return self->close();
                       self->moved(n);
                       self->read_rest(body, have + n, size);
                     });
}

void Session::begin_chunked() {
  chunked_.emplace(std::move(*parser_));
  chunked_->body_limit(server_.options.router.max_body_bytes);
  chunked_->eager(true);
  read_chunked();
}

void Session::read_chunked() {
  error_code ec;
  if (buffer_.size()) {
    buffer_.consume(chunked_->put(buffer_.data(), ec));
    if (ec == http::error::body_limit)
      return refuse(413, cat("the body exceeds ", server_.options.router.max_body_bytes, " bytes"));
    if (ec && ec != http::error::need_more)
      return refuse(400, cat("the chunked body is broken: ", ec.message()));
  }
  std::string& text = chunked_->get().body();
  if (!body_->take(text.capacity())) return refuse(503, kFull);
  if (chunked_->is_done()) {
    const size_t size = text.size();
    text.append(kBodyPadding, '\0');
    auto held = std::make_shared<std::pair<std::string, std::shared_ptr<Body>>>(std::move(text), body_);
    chunked_.reset();
    return dispatch({held->first.data(), size, held});
  }
  // What the parser leaves is the beginning of a chunk's first line or of the trailer.
  if (const size_t limit = server_.options.max_header_bytes; buffer_.size() > limit)
    return refuse(400, cat("the chunked body is broken: a chunk's first line or the trailer is longer than ",
                           limit, " bytes"));
  channel_.read_some(buffer_.prepare(65536), [self = shared_from_this()](error_code e, size_t n) {
    if (e) return self->close();
    self->buffer_.commit(n);
    self->moved(n);
    self->read_chunked();
  });
}

}  // namespace pelton::serve
