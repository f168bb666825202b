// SPDX-License-Identifier: Apache-2.0
#include "serve/http/server.h"

#include "base/error.h"
#include "base/log.h"
#include "serve/core/access.h"
#include "serve/http/server_impl.h"
#include "serve/http/session.h"

namespace pelton::serve {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = StreamSocket;

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr auto kPause = std::chrono::milliseconds(100);  // until some memory or a descriptor is free again
constexpr size_t kRefused = 16;

}  // namespace

void HttpServer::Impl::set_up_tls() {
  namespace ssl = asio::ssl;
  const TlsOptions& o = options.tls;
  if (!o.on) return;
  tls = std::make_unique<ssl::context>(ssl::context::tls_server);
  tls->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                   ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | ssl::context::no_compression);
  const TlsTexts texts = read_tls_texts(o);
  auto use = [](const std::string& what, auto&& f) {
    error_code ec;
    f(ec);
    if (ec) fail(ErrorCode::usage, cat("the TLS ", what, " is unusable: ", ec.message()));
  };
  use("certificate", [&](error_code& ec) { tls->use_certificate_chain(asio::buffer(texts.cert), ec); });
  use("key", [&](error_code& ec) { tls->use_private_key(asio::buffer(texts.key), ssl::context::pem, ec); });
  if (!::SSL_CTX_check_private_key(tls->native_handle()))
    fail(ErrorCode::usage, "the TLS key does not belong to the certificate");
  if (!o.mutual) return;
  use("root certificate",
      [&](error_code& ec) { tls->add_certificate_authority(asio::buffer(texts.root), ec); });
  tls->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
}

void HttpServer::Impl::listen() {
  using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
  listener = open_listener(options.address, options.port, options.reuse_port);
  acceptor = std::make_unique<Acceptor>(loops[0]->io);
  acceptor->assign(asio::generic::stream_protocol(listener.family, 0), listener.fd.release());
}

void HttpServer::Impl::accept() {
  if (accepting || !acceptor->is_open()) return;
  Loop& target = *loops[next_loop++ % loops.size()];
  acceptor->async_accept(target.io, [this, &target](error_code ec, Socket socket) {
    accepting = false;
    if (!acceptor->is_open() || ec == asio::error::operation_aborted) return;
    if (ec) {  // out of descriptors or memory: let some be freed first
      accept_pause->expires_after(kPause);
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
      // Closed at once, what the client has sent meanwhile would reset the connection before it reads this.
      if (refused.size() >= kRefused) refused.erase(refused.begin());
      refused.push_back(std::move(socket));
    } else {
      std::shared_ptr<void> place(&connections,
                                  [](void* n) { static_cast<std::atomic<size_t>*>(n)->fetch_sub(1); });
      asio::post(target.io,
                 [this, &target, place = std::move(place), s = std::make_shared<Socket>(std::move(socket))] {
                   error_code ignored;
                   s->set_option(asio::ip::tcp::no_delay(true), ignored);
                   Session::make(*this, target, std::move(*s), place)->start();
                   tick(target);
                 });
    }
    accept();
  });
  accepting = true;
}

// Deadlines are looked at four times a second while there are connections; an idle server never wakes up.
void HttpServer::Impl::tick(Loop& loop) {
  if (loop.ticking || loop.sessions.empty()) return;
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
  loop.ticking = true;
}

// What leaves a handler, memory that runs out above all, costs the connection of that handler, which goes
// with the last reference to it. Whatever else the handler would have set up anew is set up here.
void HttpServer::Impl::run(Loop& loop) {
  for (;;) {
    bool running = false;
    try {
      if (&loop == loops[0].get()) accept();
      tick(loop);
      running = true;
      loop.io.run();
      return;
    } catch (const std::exception& e) {
      try {
        log_error("a connection is given up: ", e.what());
      } catch (const std::bad_alloc&) {  // not even for that
      }
    }
    if (!running) std::this_thread::sleep_for(kPause);
  }
}

HttpServer::HttpServer(Core& core, HttpOptions options)
    : impl_(std::make_unique<Impl>(core, std::move(options))) {
  for (int i = 0; i < std::max(1, impl_->options.threads); ++i)
    impl_->loops.push_back(std::make_unique<Impl::Loop>());
  impl_->accept_pause = std::make_unique<asio::steady_timer>(impl_->loops[0]->io);
  impl_->set_up_tls();
  impl_->listen();
  for (auto& loop : impl_->loops) loop->thread = std::thread([this, &l = *loop] { impl_->run(l); });
}

HttpServer::~HttpServer() {
  stop();
}

std::string HttpServer::endpoint() const {
  return impl_->listener.endpoint;
}
uint16_t HttpServer::port() const {
  return impl_->listener.port;
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
  remove_socket_file(impl_->listener);
}

}  // namespace pelton::serve
