// SPDX-License-Identifier: Apache-2.0
// Insides of the HTTP front end that the acceptor (server.cc) and its connections (session.cc) share.
#pragma once

#include <utility>  // Boost.Asio uses it and does not include it

#include <atomic>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "serve/core/listener.h"
#include "serve/http/server.h"

namespace pelton::serve {

class Session;
using StreamSocket = boost::asio::generic::stream_protocol::socket;

struct HttpServer::Impl {
  // One event loop with its connections; everything in it belongs to its thread.
  struct Loop {
    std::list<Session*> sessions;    // outlives io, whose handlers hold the sessions
    std::atomic<bool> ended{false};  // the thread is gone
    bool ticking = false;
    boost::asio::io_context io{1};
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
    boost::asio::steady_timer ticker{io};
    std::thread thread;
  };

  Impl(Core& core, HttpOptions o) : options(std::move(o)), router(core, options.router) {}
  void set_up_tls();  // usage or io errors name the file
  void listen();
  void accept();
  void tick(Loop& loop);
  void run(Loop& loop);  // until stop()

  const HttpOptions options;
  const Router router;
  std::unique_ptr<boost::asio::ssl::context> tls;  // null: plain text
  std::atomic<size_t> connections{0};
  std::atomic<bool> draining{false};
  std::vector<std::unique_ptr<Loop>> loops;
  std::unique_ptr<boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>> acceptor;
  std::unique_ptr<boost::asio::steady_timer> accept_pause;
  std::vector<StreamSocket> refused;  // a few connections beyond the limit, that may still read why
  Listener listener;                  // its descriptor is the acceptor's
  size_t next_loop = 0;
  bool accepting = false;  // an accept is out; of the first loop's thread
};

}  // namespace pelton::serve
