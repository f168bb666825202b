// SPDX-License-Identifier: Apache-2.0
// The socket on which a front end takes connections: an IP address and a port, or unix:PATH.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "serve/core/model_dir.h"

namespace pelton::serve {

struct Listener {
  Fd fd;                 // listens; blocking, closed on exec
  int family = 0;        // AF_INET, AF_INET6 or AF_UNIX
  uint16_t port = 0;     // the one that was given, 0 for a unix socket
  std::string endpoint;  // "127.0.0.1:8000", "[::1]:8000" or "unix:PATH"
  ino_t inode = 0;       // of the file of a unix socket
};

// `address`: an IP address, "localhost", or unix:PATH, whose file may be left from a server that has gone.
// Port 0 picks a free one. usage error on another address, io error if it is taken, which for a unix socket
// includes a file that is none.
Listener open_listener(const std::string& address, uint16_t port, bool reuse_port);
// Removes the file of a unix socket, unless another server has put its own there.
void remove_socket_file(Listener& listener);

}  // namespace pelton::serve
