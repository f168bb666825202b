// SPDX-License-Identifier: Apache-2.0
// The floor under the server's HTTP front end: the same library, one thread, no protocol. Reads a request and
// answers with bytes of its own size: what an identity model returns, without looking at any of it.
//   bare_http_echo PORT
#include <algorithm>
#include <utility>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

namespace {

// What the load generator asks before it begins, and the model's answer.
constexpr const char* kMeta =
    R"({"name":"id","versions":["1"],"platform":"identity","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[-1]}],"outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[-1]}],"max_batch_size":0})";

class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(tcp::socket socket) : socket_(std::move(socket)) {}
  void read() {
    parser_.emplace();
    parser_->body_limit(1 << 30);
    http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](beast::error_code ec, size_t) {
      if (!ec) self->answer();
    });
  }

 private:
  void answer() {
    const auto& request = parser_->get();
    response_ = {};
    response_.result(http::status::ok);
    response_.set(http::field::content_type, "application/octet-stream");
    if (request.method() == http::verb::get) {
      response_.body() = kMeta;
    } else {
      const auto announced = request["Inference-Header-Content-Length"];
      const size_t json = std::strtoul(std::string(announced).c_str(), nullptr, 10);
      const size_t data = request.body().size() - std::min(json, request.body().size());
      std::string head =
          R"({"model_name":"id","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[)" +
          std::to_string(data / 4) + R"(],"parameters":{"binary_data_size":)" + std::to_string(data) + "}}]}";
      response_.set("Inference-Header-Content-Length", std::to_string(head.size()));
      response_.body() = std::move(head);
      response_.body().append(request.body(), json);
    }
    response_.prepare_payload();
    http::async_write(socket_, response_, [self = shared_from_this()](beast::error_code ec, size_t) {
      if (!ec) self->read();
    });
  }

  tcp::socket socket_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
};

void accept(tcp::acceptor& acceptor) {
  acceptor.async_accept([&](beast::error_code ec, tcp::socket socket) {
    if (!ec) {
      socket.set_option(tcp::no_delay(true));
      std::make_shared<Session>(std::move(socket))->read();
    }
    accept(acceptor);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const auto port = static_cast<unsigned short>(argc > 1 ? std::atoi(argv[1]) : 0);
  asio::io_context io{1};
  tcp::acceptor acceptor(io, {asio::ip::make_address("127.0.0.1"), port});
  std::printf("ready: http 127.0.0.1:%d\n", acceptor.local_endpoint().port());
  std::fflush(stdout);
  accept(acceptor);
  io.run();
}
