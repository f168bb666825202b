// SPDX-License-Identifier: Apache-2.0
#include "serve/http/session.h"

#include <sys/socket.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "serve/http/infer_json.h"

namespace pelton::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr auto kLinger = std::chrono::seconds(1);
constexpr size_t kMaxStreamBytes = 16 << 20;  // of a streamed answer that the client does not read
constexpr size_t kSmallAnswer = 16 << 10;     // up to it an answer hides behind its connection

constexpr size_t kProgress = 64 << 10;

// "http://HOST/PATH", as clients send it that take us for a proxy, becomes PATH, and HOST the Host.
void take_absolute_form(HttpRequest& r) {
  const size_t scheme = r.target.find("://");
  if (scheme == r.target.npos || r.target[0] == '/') return;
  const size_t begin = scheme + 3, end = std::min(r.target.find_first_of("/?", begin), r.target.size());
  for (auto& [name, value] : r.headers)
    if (boost::beast::iequals(name, "host")) value = r.target.substr(begin, end - begin);
  r.target.erase(0, end);
  if (!r.target.starts_with("/")) r.target.insert(0, "/");
}

}  // namespace

Session::Session(Impl& server, Impl::Loop& loop, StreamSocket socket, std::shared_ptr<void> place)
    : connection_(std::move(place)),
      server_(server),
      loop_(loop),
      channel_(std::move(socket), server.tls.get()) {
  loop_.sessions.push_front(this);
  place_ = loop_.sessions.begin();
}
Session::~Session() {
  loop_.sessions.erase(place_);
}

std::shared_ptr<Session> Session::make(Impl& server, Impl::Loop& loop, StreamSocket socket,
                                       std::shared_ptr<void> place) {
  return {new Session(server, loop, std::move(socket), std::move(place)), [&loop](Session* s) {
            std::unique_ptr<Session> owned(s);
            if (!loop.ended && !loop.io.get_executor().running_in_this_thread())
              asio::post(loop.io, [o = std::move(owned)] {});
          }};
}

void Session::start() {
  if (!channel_.secure()) return next_request();
  set(State::header);  // the handshake has the header's time
  channel_.handshake(
      [self = shared_from_this()](error_code ec) { ec ? self->close() : self->next_request(); });
}

// An answer that cannot be sent for want of memory ends the connection, or the client would wait for ever.
template <class F>
void Session::or_close(F&& f) {
  try {
    f();
  } catch (...) {
    close();
    throw;
  }
}

void Session::respond(HttpResponse&& response) {
  if (loop_.io.get_executor().running_in_this_thread()) return or_close([&] { write(std::move(response)); });
  asio::post(loop_.io, [self = shared_from_this(), r = std::make_shared<HttpResponse>(std::move(response))] {
    self->or_close([&] { self->write(std::move(*r)); });
  });
}

// Pieces are always posted, so that they leave in the order of the calls.
void Session::begin_stream(HttpResponse&& head) {
  asio::post(loop_.io, [self = shared_from_this(), r = std::make_shared<HttpResponse>(std::move(head))] {
    if (!self->channel_.socket().is_open()) return;
    self->or_close([&] {
      self->streaming_ = true;
      self->keep_alive_ = self->keep_alive_ && self->version_11_;
      self->write_head(*r, self->version_11_);
      self->pieces_.push_front({std::move(self->head_), nullptr});
      self->set(State::streaming);
      self->write_pieces();
    });
  });
}
void Session::stream(std::string piece, bool last) {
  asio::post(loop_.io, [self = shared_from_this(), p = std::move(piece), last]() mutable {
    self->or_close([&] { self->add_piece(std::move(p), last); });
  });
}

void Session::check_deadline(Clock::time_point now) {
  if (now >= deadline_ && state_ != State::waiting && state_ != State::streaming) close();
}
void Session::drain() {
  if (state_ == State::idle) close();
}
void Session::close() {
  error_code ignored;
  channel_.socket().close(ignored);
  if (token_) token_->cancel();
}

void Session::set(State s) {
  state_ = s;
  const auto& o = server_.options;
  auto limit = o.stall_timeout;
  if (s == State::idle) limit = o.idle_timeout;
  if (s == State::header) limit = o.header_timeout;
  deadline_ = Clock::now() + limit;
  moved_ = 0;
}

// A trickle of bytes is no reason to hold a place for ever: the deadline moves once there is real progress.
void Session::moved(size_t n) {
  if ((moved_ += n) >= kProgress) set(state_);
}

void Session::next_request() {
  if (server_.draining) return close();
  parser_.emplace();
  parser_->header_limit(
      static_cast<uint32_t>(server_.options.max_headers * server_.options.max_header_bytes));
  parser_->body_limit(std::numeric_limits<uint64_t>::max());
  set(first_ ? State::header : State::idle);
  first_ = headers_only_ = false;
  if (buffer_.size()) return parse_header();
  read_header();
}

void Session::read_header() {
  if (reading_ahead_) return;  // its handler goes on
  const size_t limit = server_.options.max_headers * server_.options.max_header_bytes + 4096;
  if (buffer_.size() >= limit) return refuse(431, "the request's headers are too large");
  channel_.read_some(buffer_.prepare(std::min<size_t>(16384, limit - buffer_.size())),
                     [self = shared_from_this()](error_code ec, size_t n) {
                       if (ec) return self->close();
                       self->buffer_.commit(n);
                       if (self->state_ == State::idle) self->set(State::header);
                       self->parse_header();
                     });
}

void Session::parse_header() {
  if (state_ == State::idle) set(State::header);
  error_code ec;
  const size_t used = parser_->put(buffer_.data(), ec);
  buffer_.consume(used);
  if (ec == http::error::need_more) return read_header();
  if (ec == http::error::header_limit) return refuse(431, "the request's headers are too large");
  if (ec) return refuse(400, cat("the request is not HTTP: ", ec.message()));
  if (!parser_->is_header_done()) return read_header();
  header_done();
}

void Session::header_done() {
  const auto& head = parser_->get();
  HttpRequest r;
  r.arrival = Clock::now();
  r.method = std::string(head.method_string());
  r.target = std::string(head.target());
  size_t hosts = 0, codings = 0;
  for (const auto& field : head) {
    if (field.name_string().size() + field.value().size() > server_.options.max_header_bytes)
      return refuse(431, cat("a header is longer than ", server_.options.max_header_bytes, " bytes"));
    r.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    hosts += field.name() == http::field::host;
    codings += field.name() == http::field::transfer_encoding;
  }
  if (r.headers.size() > server_.options.max_headers)
    return refuse(431, cat("more than ", server_.options.max_headers, " headers"));
  if (hosts > 1 || (hosts == 0 && head.version() >= 11))
    return refuse(400, "a request needs exactly one Host header");
  if (codings && head.find(http::field::content_length) != head.end())
    return refuse(400, "Content-Length and Transfer-Encoding exclude each other");
  // Of a body in a coding that is not understood nobody knows the end: what follows it would be taken for the
  // next request.
  const std::string coding(head[http::field::transfer_encoding]);
  if (codings > 1 || (codings && (head.version() < 11 || !boost::beast::iequals(coding, "chunked"))))
    return refuse(501, cat("Transfer-Encoding '", coding, "' of HTTP/", head.version() / 10, ".",
                           head.version() % 10, " is not supported: send chunked or a Content-Length"));
  keep_alive_ = head.keep_alive();
  version_11_ = head.version() >= 11;
  headers_only_ = r.method == "HEAD";
  if (headers_only_) r.method = "GET";
  take_absolute_form(r);
  if (auto refusal = server_.router.refuse_early(r)) {
    refusal->close = true;
    return write(std::move(*refusal));
  }
  request_ = std::move(r);
  read_body();
}

void Session::dispatch(Blob body) {
  body_.reset();
  request_.body = std::move(body);
  token_ = std::make_shared<CancelToken>();
  request_.token = token_;
  set(State::waiting);
  server_.router.handle(std::move(request_), shared_from_this());
  if (state_ == State::waiting) watch();
}

// While an answer is awaited or streamed: a client that closes its end cancels the request.
void Session::watch() {
  if (channel_.secure()) return read_ahead();
  char byte;
  const ssize_t n = ::recv(channel_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return close();
  if (n > 0) return;  // the next request is already here
  watching_ = true;
  channel_.socket().async_wait(StreamSocket::wait_read, [self = shared_from_this()](error_code ec) {
    if (ec || (self->state_ != State::waiting && self->state_ != State::streaming)) return;
    self->watching_ = false;
    self->watch();
  });
}

void Session::refuse(int status, std::string message) {
  HttpResponse r = HttpResponse::error(status, message);
  r.close = true;
  write(std::move(r));
}

// TLS: whether the client has gone shows only in reading; what it sends early waits in the buffer.
void Session::read_ahead() {
  if (reading_ahead_ || buffer_.size()) return;  // as in watch(): the next request is already here
  reading_ahead_ = true;
  channel_.read_some(buffer_.prepare(16384), [self = shared_from_this()](error_code ec, size_t n) {
    self->reading_ahead_ = false;
    if (ec) return self->close();
    self->buffer_.commit(n);
    if (self->state_ == State::idle || self->state_ == State::header) self->parse_header();
  });
}

void Session::write_head(HttpResponse& response, bool chunked) {
  if (watching_) {
    error_code ignored;
    channel_.socket().cancel(ignored);
    watching_ = false;
  }
  closing_ = response.close || !keep_alive_ || server_.draining;
  head_ = cat("HTTP/1.1 ", response.status, " ", reason_phrase(response.status),
              "\r\nContent-Type: ", response.content_type, "\r\n");
  if (chunked)
    head_ += "Transfer-Encoding: chunked\r\n";
  else if (!streaming_)
    head_ += cat("Content-Length: ", response.size(), "\r\n");
  for (const auto& [name, value] : response.headers) head_ += cat(name, ": ", value, "\r\n");
  head_ += closing_ ? "Connection: close\r\n\r\n" : "\r\n";
}

void Session::write(HttpResponse&& response) {
  if (!channel_.socket().is_open()) return;
  set(State::writing);
  token_.reset();
  body_.reset();
  chunked_.reset();
  MemoryGate& answers = server_.router.core().answers();
  if (response.size() > kSmallAnswer && !(out_room_ = take_room(answers, response.size())))
    response = HttpResponse::error(503, "the server holds as many bytes of answers as it may");
  write_head(response, false);
  out_ = std::move(response.body);
  pending_.clear();
  pending_.push_back(asio::buffer(head_));
  if (headers_only_) out_.clear();
  for (const Blob& b : out_) pending_.push_back(asio::buffer(b.data, b.size));
  write_some();
}

void Session::add_piece(std::string piece, bool last) {
  if (!channel_.socket().is_open() || stream_ended_) return;
  stream_ended_ = last;
  if (version_11_) {
    if (!piece.empty()) {
      static constexpr char kHex[] = "0123456789abcdef";
      std::string size;
      for (size_t n = piece.size(); n; n >>= 4) size.insert(size.begin(), kHex[n & 15]);
      piece = cat(size, "\r\n", piece, "\r\n");
    }
    if (last) piece += "0\r\n\r\n";
  }
  if (piece_bytes_ > kMaxStreamBytes) return close();  // however large one piece is, it may leave
  piece_bytes_ += piece.size();
  if (!piece.empty()) {
    auto room = take_room(server_.router.core().answers(), piece.size());
    if (!room) return close();
    pieces_.push_back({std::move(piece), std::move(room)});
  }
  write_pieces();
}

void Session::write_pieces() {
  if (stream_writing_) return;
  if (pieces_.empty()) {
    if (!stream_ended_) {
      set(State::streaming);
      return watch();
    }
    streaming_ = stream_ended_ = false;
    token_.reset();
    return written();
  }
  if (watching_) {
    error_code ignored;
    channel_.socket().cancel(ignored);
    watching_ = false;
  }
  stream_writing_ = true;
  writing_pieces_.swap(pieces_);
  pending_.clear();
  for (const Piece& p : writing_pieces_) pending_.push_back(asio::buffer(p.text));
  piece_bytes_ = 0;
  set(State::writing);
  write_some();
}

void Session::write_some() {
  channel_.write_some(pending_, [self = shared_from_this()](error_code ec, size_t n) {
    if (ec) return self->close();
    self->moved(n);
    auto& p = self->pending_;
    size_t done = 0;
    while (done < p.size() && n >= p[done].size()) n -= p[done++].size();
    p.erase(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(done));
    if (!p.empty()) {
      p.front() += n;
      return self->write_some();
    }
    if (!self->streaming_) return self->written();
    self->stream_writing_ = false;
    self->writing_pieces_.clear();
    self->write_pieces();
  });
}

void Session::written() {
  out_.clear();
  out_room_.reset();
  if (!closing_) return next_request();
  // Closing with unread input would reset the connection before the client has the answer.
  error_code ignored;
  channel_.socket().shutdown(StreamSocket::shutdown_send, ignored);
  set(State::writing);
  deadline_ = Clock::now() + kLinger;
  if (!reading_ahead_) linger();
}

void Session::linger() {
  auto scratch = std::make_shared<std::array<char, 4096>>();
  channel_.socket().async_read_some(asio::buffer(*scratch),
                                    [self = shared_from_this(), scratch](error_code ec, size_t n) {
                                      if (ec || (self->lingered_ += n) > (1 << 20)) return self->close();
                                      self->linger();
                                    });
}

}  // namespace pelton::serve
