// SPDX-License-Identifier: Apache-2.0
#include "serve/http/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstring>
#include <limits>
#include <list>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "serve/http/infer_json.h"

namespace pelton::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr auto kLinger = std::chrono::seconds(1);

// Bytes of the memory gate, given back when the body is freed.
struct GateLease {
  MemoryGate& gate;
  size_t bytes;
  ~GateLease() { gate.give_back(bytes); }
};

struct Body {
  std::shared_ptr<char> memory;
  std::unique_ptr<GateLease> lease;
};

class Session;

}  // namespace

struct HttpServer::Impl {
  // One event loop with its connections; everything in it belongs to its thread.
  struct Loop {
    std::list<Session*> sessions;    // outlives io, whose handlers hold the sessions
    std::atomic<bool> ended{false};  // the thread is gone
    bool ticking = false;
    asio::io_context io{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
    asio::steady_timer ticker{io};
    std::thread thread;
  };

  Impl(Core& core, HttpOptions o) : options(std::move(o)), router(core, options.router) {}
  void listen();
  void accept();
  void accepted(Socket socket);
  void tick(Loop& loop);

  const HttpOptions options;
  const Router router;
  std::atomic<size_t> connections{0};
  std::atomic<bool> draining{false};
  std::vector<std::unique_ptr<Loop>> loops;
  std::unique_ptr<asio::basic_socket_acceptor<asio::generic::stream_protocol>> acceptor;
  std::unique_ptr<asio::steady_timer> accept_pause;
  std::string endpoint;
  uint16_t port = 0;
  size_t next_loop = 0;
};

namespace {

// One connection. Handlers run on the loop's thread; respond() may come from any.
class Session final : public HttpPeer, public std::enable_shared_from_this<Session> {
 public:
  using Impl = HttpServer::Impl;
  Session(Impl& server, Impl::Loop& loop, Socket socket)
      : server_(server), loop_(loop), socket_(std::move(socket)) {
    loop_.sessions.push_front(this);
    place_ = loop_.sessions.begin();
  }
  ~Session() override {
    loop_.sessions.erase(place_);
    server_.connections.fetch_sub(1);
  }

  // The last reference may be dropped by a worker thread: the session still ends on its loop.
  static std::shared_ptr<Session> make(Impl& server, Impl::Loop& loop, Socket socket) {
    return {new Session(server, loop, std::move(socket)), [&loop](Session* s) {
              std::unique_ptr<Session> owned(s);
              if (!loop.ended && !loop.io.get_executor().running_in_this_thread())
                asio::post(loop.io, [o = std::move(owned)] {});
            }};
  }

  void start() { next_request(); }

  void respond(HttpResponse&& response) override {
    if (loop_.io.get_executor().running_in_this_thread()) return write(std::move(response));
    asio::post(loop_.io,
               [self = shared_from_this(), r = std::make_shared<HttpResponse>(std::move(response))] {
                 self->write(std::move(*r));
               });
  }

  // Called by the loop's ticker.
  void check_deadline(Clock::time_point now) {
    if (now >= deadline_ && state_ != State::waiting) close();
  }
  void drain() {
    if (state_ == State::idle) close();
  }
  void close() {
    error_code ignored;
    socket_.close(ignored);
    if (token_) token_->cancel();
  }

 private:
  enum class State { idle, header, body, waiting, writing };

  void set(State s) {
    state_ = s;
    const auto& o = server_.options;
    deadline_ = Clock::now() + (s == State::idle     ? o.idle_timeout
                                : s == State::header ? o.header_timeout
                                                     : o.stall_timeout);
  }

  void next_request() {
    if (server_.draining) return close();
    parser_.emplace();
    parser_->header_limit(
        static_cast<uint32_t>(server_.options.max_headers * server_.options.max_header_bytes));
    parser_->body_limit(std::numeric_limits<uint64_t>::max());
    set(first_ ? State::header : State::idle);
    first_ = false;
    if (buffer_.size()) return parse_header();
    read_header();
  }

  void read_header() {
    const size_t limit = server_.options.max_headers * server_.options.max_header_bytes + 4096;
    if (buffer_.size() >= limit) return refuse(431, "the request's headers are too large");
    socket_.async_read_some(buffer_.prepare(std::min<size_t>(16384, limit - buffer_.size())),
                            [self = shared_from_this()](error_code ec, size_t n) {
                              if (ec) return self->close();
                              self->buffer_.commit(n);
                              if (self->state_ == State::idle) self->set(State::header);
                              self->parse_header();
                            });
  }

  void parse_header() {
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

  void header_done() {
    const auto& head = parser_->get();
    HttpRequest r;
    r.arrival = Clock::now();
    r.method = std::string(head.method_string());
    r.target = std::string(head.target());
    size_t hosts = 0;
    for (const auto& field : head) {
      if (field.name_string().size() + field.value().size() > server_.options.max_header_bytes)
        return refuse(431, cat("a header is longer than ", server_.options.max_header_bytes, " bytes"));
      r.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
      hosts += field.name() == http::field::host;
    }
    if (r.headers.size() > server_.options.max_headers)
      return refuse(431, cat("more than ", server_.options.max_headers, " headers"));
    if (hosts > 1 || (hosts == 0 && head.version() >= 11))
      return refuse(400, "a request needs exactly one Host header");
    const bool length = head.find(http::field::content_length) != head.end();
    if (length && head.find(http::field::transfer_encoding) != head.end())
      return refuse(400, "Content-Length and Transfer-Encoding exclude each other");
    keep_alive_ = head.keep_alive();
    if (auto refusal = server_.router.refuse_early(r)) {
      refusal->close = true;
      return write(std::move(*refusal));
    }
    request_ = std::move(r);
    const size_t limit = server_.options.router.max_body_bytes;
    if (parser_->chunked()) return begin_chunked(limit);
    const uint64_t size = parser_->content_length() ? *parser_->content_length() : 0;
    if (size > limit)
      return refuse(413, cat("the body has ", size, " bytes, at most ", limit, " are allowed"));
    if (size == 0) return dispatch({});
    if (!reserve(size)) return;
    expect_continue();
    read_sized(static_cast<size_t>(size));
  }

  bool reserve(size_t size) {
    if (!server_.router.core().gate().try_take(size)) {
      refuse(503, "the server holds as many request bytes as it may");
      return false;
    }
    body_ = std::make_shared<Body>();
    body_->lease.reset(new GateLease{server_.router.core().gate(), size});
    return true;
  }

  void expect_continue() {
    if (boost::beast::iequals(parser_->get()[http::field::expect], "100-continue") && buffer_.size() == 0) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      error_code ignored;
      socket_.write_some(asio::buffer(kContinue.data(), kContinue.size()), ignored);
    }
  }

  // A body of known size goes from the socket straight to where it stays. The binary part, when announced,
  // starts on a 64-byte boundary.
  void read_sized(size_t size) {
    size_t json = 0;
    const std::string_view announced = request_.header("Inference-Header-Content-Length");
    for (char c : announced)
      json =
          c >= '0' && c <= '9' && json < (size_t{1} << 40) ? json * 10 + static_cast<size_t>(c - '0') : json;
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
    set(State::body);
    read_rest(at, have, size);
  }

  void read_rest(char* body, size_t have, size_t size) {
    if (have == size) return dispatch({body, size, std::shared_ptr<const void>(body_, body)});
    socket_.async_read_some(asio::buffer(body + have, size - have),
                            [self = shared_from_this(), body, have, size](error_code ec, size_t n) {
                              if (ec) return self->close();
                              self->set(State::body);
                              self->read_rest(body, have + n, size);
                            });
  }

  void begin_chunked(size_t limit) {
    if (!reserve(limit)) return;
    expect_continue();
    chunked_.emplace(std::move(*parser_));
    chunked_->body_limit(limit);
    chunked_->eager(true);
    set(State::body);
    read_chunked();
  }

  void read_chunked() {
    error_code ec;
    if (buffer_.size()) {
      buffer_.consume(chunked_->put(buffer_.data(), ec));
      if (ec == http::error::body_limit)
        return refuse(413, cat("the body exceeds ", server_.options.router.max_body_bytes, " bytes"));
      if (ec && ec != http::error::need_more)
        return refuse(400, cat("the chunked body is broken: ", ec.message()));
    }
    if (chunked_->is_done()) {
      std::string text = std::move(chunked_->get().body());
      chunked_.reset();
      const size_t size = text.size();
      server_.router.core().gate().give_back(body_->lease->bytes - size);
      body_->lease->bytes = size;
      text.append(kBodyPadding, '\0');
      auto held = std::make_shared<std::pair<std::string, std::shared_ptr<Body>>>(std::move(text), body_);
      return dispatch({held->first.data(), size, held});
    }
    socket_.async_read_some(buffer_.prepare(65536), [self = shared_from_this()](error_code e, size_t n) {
      if (e) return self->close();
      self->buffer_.commit(n);
      self->set(State::body);
      self->read_chunked();
    });
  }

  void dispatch(Blob body) {
    body_.reset();
    request_.body = std::move(body);
    token_ = std::make_shared<CancelToken>();
    request_.token = token_;
    set(State::waiting);
    server_.router.handle(std::move(request_), shared_from_this());
    if (state_ == State::waiting) watch();
  }

  // While an answer is awaited: a client that closes its end cancels the request.
  void watch() {
    char byte;
    const ssize_t n = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return close();
    if (n > 0) return;  // the next request is already here
    watching_ = true;
    socket_.async_wait(Socket::wait_read, [self = shared_from_this()](error_code ec) {
      if (ec || self->state_ != State::waiting) return;
      self->watching_ = false;
      self->watch();
    });
  }

  void refuse(int status, std::string message) {
    HttpResponse r = HttpResponse::error(status, message);
    r.close = true;
    write(std::move(r));
  }

  void write(HttpResponse&& response) {
    if (!socket_.is_open()) return;
    if (watching_) {
      error_code ignored;
      socket_.cancel(ignored);
      watching_ = false;
    }
    set(State::writing);
    token_.reset();
    body_.reset();
    chunked_.reset();
    closing_ = response.close || !keep_alive_ || server_.draining;
    out_ = std::move(response.body);
    size_t size = 0;
    for (const Blob& b : out_) size += b.size;
    head_ = cat("HTTP/1.1 ", response.status, " ", reason_phrase(response.status),
                "\r\nContent-Type: ", response.content_type, "\r\nContent-Length: ", size, "\r\n");
    for (const auto& [name, value] : response.headers) head_ += cat(name, ": ", value, "\r\n");
    head_ += closing_ ? "Connection: close\r\n\r\n" : "\r\n";
    pending_.clear();
    pending_.push_back(asio::buffer(head_));
    for (const Blob& b : out_) pending_.push_back(asio::buffer(b.data, b.size));
    write_some();
  }

  void write_some() {
    socket_.async_write_some(pending_, [self = shared_from_this()](error_code ec, size_t n) {
      if (ec) return self->close();
      auto& p = self->pending_;
      size_t done = 0;
      while (done < p.size() && n >= p[done].size()) n -= p[done++].size();
      p.erase(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(done));
      if (!p.empty()) {
        p.front() += n;
        self->set(State::writing);
        return self->write_some();
      }
      self->written();
    });
  }

  void written() {
    out_.clear();
    if (!closing_) return next_request();
    // Closing with unread input would reset the connection before the client has the answer.
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    set(State::writing);
    deadline_ = Clock::now() + kLinger;
    linger();
  }

  void linger() {
    auto scratch = std::make_shared<std::array<char, 4096>>();
    socket_.async_read_some(asio::buffer(*scratch),
                            [self = shared_from_this(), scratch](error_code ec, size_t n) {
                              if (ec || (self->lingered_ += n) > (1 << 20)) return self->close();
                              self->linger();
                            });
  }

  Impl& server_;
  Impl::Loop& loop_;
  Socket socket_;
  std::list<Session*>::iterator place_;
  State state_ = State::idle;
  Clock::time_point deadline_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<http::request_parser<http::string_body>> chunked_;
  HttpRequest request_;
  std::shared_ptr<Body> body_;
  std::shared_ptr<CancelToken> token_;
  std::string head_;
  std::vector<Blob> out_;
  std::vector<asio::const_buffer> pending_;
  size_t lingered_ = 0;
  bool keep_alive_ = true, closing_ = false, first_ = true, watching_ = false;
};

}  // namespace

void HttpServer::Impl::listen() {
  using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
  Loop& loop = *loops[0];
  auto fail_listen = [&](const std::string& where, const std::string& why) {
    fail(ErrorCode::io, cat("cannot listen: ", why), where, "choose another address or port");
  };
  if (options.address.starts_with("unix:")) {
    const std::string path = options.address.substr(5);
    ::unlink(path.c_str());
    try {
      acceptor = std::make_unique<Acceptor>(loop.io, asio::local::stream_protocol::endpoint(path), false);
    } catch (const boost::system::system_error& e) {
      fail_listen(options.address, e.code().message());
    }
    endpoint = options.address;
    return;
  }
  const std::string where = cat(options.address, ":", options.port);
  error_code ec;
  const auto address =
      asio::ip::make_address(options.address == "localhost" ? "127.0.0.1" : options.address, ec);
  if (ec)
    fail(ErrorCode::usage, cat("'", options.address, "' is not an IP address"), "",
         "use an address such as 127.0.0.1 or ::1");
  const asio::ip::tcp::endpoint wanted(address, options.port);
  try {
    acceptor = std::make_unique<Acceptor>(loop.io);
    acceptor->open(asio::generic::stream_protocol(wanted.protocol()));
    acceptor->set_option(asio::socket_base::reuse_address(true));
    if (options.reuse_port) {
      int on = 1;
      ::setsockopt(acceptor->native_handle(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    }
    acceptor->bind(wanted);
    acceptor->listen(1024);
  } catch (const boost::system::system_error& e) {
    fail_listen(where, e.code().message());
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(acceptor->native_handle(), reinterpret_cast<sockaddr*>(&bound), &size);
  port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
  endpoint = cat(address.is_v6() ? cat("[", options.address, "]") : options.address, ":", port);
}

void HttpServer::Impl::accept() {
  Loop& target = *loops[next_loop++ % loops.size()];
  acceptor->async_accept(target.io, [this, &target](error_code ec, Socket socket) {
    if (!acceptor->is_open() || ec == asio::error::operation_aborted) return;
    if (ec) {  // out of descriptors or memory: let some be freed first
      accept_pause->expires_after(std::chrono::milliseconds(100));
      accept_pause->async_wait([this](error_code e) {
        if (!e) accept();
      });
      return;
    }
    if (connections.fetch_add(1) >= options.max_connections) {
      connections.fetch_sub(1);
      static constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: "
          "32\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
          "{\"error\":\"too many connections\"}";
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kFull.data(), kFull.size()), ignored);
      socket.shutdown(Socket::shutdown_send, ignored);
    } else {
      asio::post(target.io, [this, &target, s = std::make_shared<Socket>(std::move(socket))] {
        error_code ignored;
        s->set_option(asio::ip::tcp::no_delay(true), ignored);
        Session::make(*this, target, std::move(*s))->start();
        tick(target);
      });
    }
    accept();
  });
}

// Deadlines are looked at four times a second while there are connections; an idle server never wakes up.
void HttpServer::Impl::tick(Loop& loop) {
  if (loop.ticking || loop.sessions.empty()) return;
  loop.ticking = true;
  loop.ticker.expires_after(kTick);
  loop.ticker.async_wait([this, &loop](error_code ec) {
    loop.ticking = false;
    if (ec) return;
    const auto now = Clock::now();
    for (auto it = loop.sessions.begin(); it != loop.sessions.end();) {
      Session* s = *it++;
      s->check_deadline(now);
      if (draining) s->drain();
    }
    tick(loop);
  });
}

HttpServer::HttpServer(Core& core, HttpOptions options)
    : impl_(std::make_unique<Impl>(core, std::move(options))) {
  for (int i = 0; i < std::max(1, impl_->options.threads); ++i)
    impl_->loops.push_back(std::make_unique<Impl::Loop>());
  impl_->accept_pause = std::make_unique<asio::steady_timer>(impl_->loops[0]->io);
  impl_->listen();
  impl_->accept();
  for (auto& loop : impl_->loops) loop->thread = std::thread([&io = loop->io] { io.run(); });
}

HttpServer::~HttpServer() {
  stop();
}

std::string HttpServer::endpoint() const {
  return impl_->endpoint;
}
uint16_t HttpServer::port() const {
  return impl_->port;
}

void HttpServer::drain() {
  if (impl_->draining.exchange(true)) return;
  asio::post(impl_->loops[0]->io, [this] {
    error_code ignored;
    impl_->acceptor->close(ignored);
  });
}

bool HttpServer::drained() const {
  return impl_->connections.load() == 0;
}

void HttpServer::stop() {
  drain();
  for (auto& loop : impl_->loops) {
    if (!loop->thread.joinable()) continue;
    asio::post(loop->io, [&l = *loop] {
      for (auto it = l.sessions.begin(); it != l.sessions.end();) (*it++)->close();
      l.ticker.cancel();
      l.work.reset();
    });
  }
  for (auto& loop : impl_->loops)
    if (loop->thread.joinable()) loop->thread.join(), loop->ended = true;
  if (impl_->options.address.starts_with("unix:")) ::unlink(impl_->options.address.substr(5).c_str());
}

}  // namespace pelton::serve
