// SPDX-License-Identifier: Apache-2.0
// A ModelInfer call whose answer nobody reads: made of HTTP/2 frames, since every client of the library
// reads.
#include <doctest/doctest.h>

#include "grpc_service.pb.h"
#include "serve/core/loopback.h"
#include "serve/grpc/front_end.h"

namespace pelton::serve::test {
namespace {

constexpr size_t kElements = 1 << 20;

std::string big_endian(uint64_t v, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(v >> (8 * i));
  return out;
}
std::string frame(char kind, char flags, uint32_t stream, const std::string& payload) {
  return big_endian(payload.size(), 3) + kind + flags + big_endian(stream, 4) + payload;
}
std::string header(const std::string& name, const std::string& value) {  // HPACK: a literal, not indexed
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) +
         value;
}

std::string request() {
  inference::ModelInferRequest m;
  m.set_model_name("m");
  auto& in = *m.add_inputs();
  in.set_name("INPUT0");
  in.set_datatype("INT32");
  in.add_shape(kElements);
  m.add_raw_input_contents(std::string(kElements * 4, '\1'));
  return m.SerializeAsString();
}

// Opens a connection whose answers have no window to leave by, and makes the call.
class SilentClient {
 public:
  explicit SilentClient(const std::string& endpoint) : fd_(connect_to(endpoint)) {
    send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, big_endian(4, 2) + big_endian(0, 4)));
    send(frame(1, 4, 1,
               header(":method", "POST") + header(":scheme", "http") +
                   header(":path", "/inference.GRPCInferenceService/ModelInfer") + header(":authority", "m") +
                   header("te", "trailers") + header("content-type", "application/grpc")));
    const std::string message = request();
    const std::string bytes = std::string(1, '\0') + big_endian(message.size(), 4) + message;
    size_t room = 65535;  // of the stream; the connection's grows with it
    for (size_t at = 0; at < bytes.size();) {
      while (room == 0) room = read_window();
      const size_t n = std::min({size_t{16384}, bytes.size() - at, room});
      send(frame(0, at + n == bytes.size(), 1, bytes.substr(at, n)));
      at += n, room -= n;
    }
  }

 private:
  void send(const std::string& data) { REQUIRE(send_all(fd_, data)); }
  std::string receive(size_t size) {
    std::string out(size, '\0');
    if (size) REQUIRE(::recv(fd_.get(), out.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
    return out;
  }
  // How much more may go, if the next frame says so. Windows of the connection come before those of the
  // stream.
  size_t read_window() {
    const auto number = [](const std::string& s) {
      size_t v = 0;
      for (unsigned char c : s) v = v << 8 | c;
      return v;
    };
    const std::string head = receive(9), payload = receive(number(head.substr(0, 3)));
    if (head[3] == 4 && !(head[4] & 1)) send(frame(4, 1, 0, ""));
    return head[3] == 8 && number(head.substr(5)) == 1 ? number(payload) : 0;
  }
  Fd fd_;
};

}  // namespace

TEST_CASE("a large answer that nobody reads ends its call and gives its memory back") {
  TestServer s;
  REQUIRE(s.start_echo().empty());
  const auto server = grpc_front_end(s, std::chrono::milliseconds(500));
  {
    const SilentClient silent(server->endpoint());
    CHECK(until([&] { return s.core->answers().used() > 4 * kElements; }));
    CHECK(s.core->gate().used() == 0);  // the request is done with
    CHECK(until([&] { return s.core->answers().used() == 0; }));
  }
  CHECK(s.end(*server));
}

}  // namespace pelton::serve::test
