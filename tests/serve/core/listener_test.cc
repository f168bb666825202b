// SPDX-License-Identifier: Apache-2.0
#include "serve/core/listener.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <filesystem>

#include "base/file.h"
#include "serve/core/fixture.h"
#include "support/expect_error.h"

namespace pelton::serve::test {

using pelton::test::expect_error;

TEST_CASE("addresses and ports") {
  const Listener v4 = open_listener("localhost", 0, false);
  CHECK(v4.port != 0);
  CHECK(v4.endpoint == cat("localhost:", v4.port));
  expect_error(ErrorCode::io, {"cannot listen", "in use"},
               [&] { open_listener("127.0.0.1", v4.port, false); });
  expect_error(ErrorCode::usage, {"'no-address' is not an IP address"},
               [&] { open_listener("no-address", 0, false); });
  expect_error(ErrorCode::usage, {"'' is not an IP address"}, [&] { open_listener("", 0, false); });
  const Listener shared = open_listener("127.0.0.1", 0, true);
  CHECK(open_listener("127.0.0.1", shared.port, true).port == shared.port);
  const Listener v6 = open_listener("::1", 0, false);
  CHECK(v6.endpoint == cat("[::1]:", v6.port));
}

TEST_CASE("a unix socket takes nobody's file") {
  const TempFolder folder;
  const std::string path = (folder.path / "s").string(), address = "unix:" + path;
  {
    Listener l = open_listener(address, 0, false);
    expect_error(ErrorCode::io, {"in use"}, [&] { open_listener(address, 0, false); });
    CHECK(std::filesystem::exists(path));
  }
  // Left behind by a server that has gone: taken over, and the first one's end does not remove the second's.
  Listener first = open_listener(address, 0, false);
  std::filesystem::remove(path);
  Listener second = open_listener(address, 0, false);
  remove_socket_file(first);
  CHECK(std::filesystem::exists(path));
  remove_socket_file(second);
  CHECK_FALSE(std::filesystem::exists(path));
  folder.write("s", "a letter");
  expect_error(ErrorCode::io, {"no socket"}, [&] { open_listener(address, 0, false); });
  CHECK(read_file(path) == "a letter");
  expect_error(ErrorCode::usage, {"is not unix:PATH"}, [&] { open_listener("unix:", 0, false); });
  expect_error(ErrorCode::usage, {"is not unix:PATH"},
               [&] { open_listener("unix:" + std::string(200, 'x'), 0, false); });
}

}  // namespace pelton::serve::test
