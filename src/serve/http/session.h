// SPDX-License-Identifier: Apache-2.0
// One HTTP connection: reads requests one after the other, hands them to the router, writes the answers.
// Handlers run on the loop's thread; the HttpPeer calls may come from any.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "serve/http/channel.h"
#include "serve/http/server_impl.h"

namespace pelton::serve {

class Session final : public HttpPeer, public std::enable_shared_from_this<Session> {
 public:
  using Impl = HttpServer::Impl;
  using error_code = boost::system::error_code;

  // `place`: its destruction gives the connection's place in the server back.
  Session(Impl& server, Impl::Loop& loop, StreamSocket socket, std::shared_ptr<void> place);
  ~Session() override;
  // The last reference may be dropped by a worker thread: the session still ends on its loop.
  static std::shared_ptr<Session> make(Impl& server, Impl::Loop& loop, StreamSocket socket,
                                       std::shared_ptr<void> place);
  void start();

  void respond(HttpResponse&& response) override;
  void begin_stream(HttpResponse&& head) override;
  void stream(std::string piece, bool last) override;

  // Called by the loop's ticker.
  void check_deadline(Clock::time_point now);
  void drain();
  void close();

 private:
  // waiting: the request is being answered, the client is watched; streaming: parts of an answer are out and
  // more are to come.
  enum class State { idle, header, body, waiting, writing, streaming };
  struct Body;
  struct Piece {
    std::string text;
    std::shared_ptr<const void> room;  // in the gate of answers
  };

  template <class F>
  void or_close(F&& f);
  void set(State s);
  void moved(size_t n);
  void next_request();
  void read_header();
  void parse_header();
  void header_done();
  void read_body();
  void expect_continue(std::string_view left, std::function<void()> then);
  void read_sized(size_t size);
  void read_rest(char* body, size_t have, size_t size);
  void begin_chunked();
  void read_chunked();
  void dispatch(Blob body);
  void watch();
  void read_ahead();
  void refuse(int status, std::string message);
  void write(HttpResponse&& response);
  void write_head(HttpResponse& response, bool chunked);
  void add_piece(std::string piece, bool last);
  void write_pieces();
  void write_some();
  void written();
  void linger();

  const std::shared_ptr<void> connection_;
  Impl& server_;
  Impl::Loop& loop_;
  Channel channel_;
  std::list<Session*>::iterator place_;
  State state_ = State::header;
  Clock::time_point deadline_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::empty_body>> parser_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> chunked_;
  HttpRequest request_;
  std::shared_ptr<Body> body_;
  std::shared_ptr<CancelToken> token_;
  std::string head_;
  std::vector<Blob> out_;
  std::shared_ptr<const void> out_room_;  // of out_ in the gate of answers
  std::vector<boost::asio::const_buffer> pending_;
  std::deque<Piece> pieces_, writing_pieces_;
  size_t piece_bytes_ = 0, lingered_ = 0;
  size_t moved_ = 0;  // bytes since the deadline was set
  bool keep_alive_ = true, closing_ = false, first_ = true, version_11_ = true;
  bool headers_only_ = false;   // the request is a HEAD: its answer has no body
  bool watching_ = false;       // plain: a wait for readability is out
  bool reading_ahead_ = false;  // TLS: a read is out while an answer is awaited or written
  bool streaming_ = false, stream_ended_ = false, stream_writing_ = false;
};

}  // namespace pelton::serve
