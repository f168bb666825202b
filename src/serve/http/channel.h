// SPDX-License-Identifier: Apache-2.0
// A connection's bytes, plain or under TLS, behind one pair of calls.
#pragma once

#include <utility>  // Boost.Asio uses it and does not include it

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <memory>

namespace pelton::serve {

class Channel {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  // `tls` outlives the channel; null for plain text.
  Channel(Socket socket, boost::asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls) tls_ = std::make_unique<boost::asio::ssl::stream<Socket&>>(socket_, *tls);
  }

  bool secure() const { return tls_ != nullptr; }
  Socket& socket() { return socket_; }

  template <class Handler>
  void handshake(Handler&& h) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Handler>(h));
  }
  template <class Buffers, class Handler>
  void read_some(const Buffers& b, Handler&& h) {
    if (tls_)
      tls_->async_read_some(b, std::forward<Handler>(h));
    else
      socket_.async_read_some(b, std::forward<Handler>(h));
  }
  template <class Buffers, class Handler>
  void write_some(const Buffers& b, Handler&& h) {
    if (tls_)
      tls_->async_write_some(b, std::forward<Handler>(h));
    else
      socket_.async_write_some(b, std::forward<Handler>(h));
  }

 private:
  Socket socket_;
  std::unique_ptr<boost::asio::ssl::stream<Socket&>> tls_;
};

}  // namespace pelton::serve
