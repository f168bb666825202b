// SPDX-License-Identifier: Apache-2.0
#include "serve/core/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace pelton::serve {
namespace {

constexpr int kBacklog = 1024;

[[noreturn]] void fail_listen(const std::string& where, const std::string& why) {
  fail(ErrorCode::io, cat("cannot listen: ", why), where, "choose another address or port");
}

Fd make_socket(int family, const std::string& where) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) fail_listen(where, std::strerror(errno));
  return fd;
}

void bind_and_listen(const Listener& l, const sockaddr* address, socklen_t size, const std::string& where) {
  if (::bind(l.fd.get(), address, size) != 0 || ::listen(l.fd.get(), kBacklog) != 0)
    fail_listen(where, std::strerror(errno));
}

Listener open_unix(const std::string& where) {
  const std::string path = where.substr(5);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path || path.find('\0') != path.npos)
    fail(ErrorCode::usage,
         cat("'", where, "' is not unix:PATH with a path of 1 to ", sizeof address.sun_path - 1, " bytes"));
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* a = reinterpret_cast<const sockaddr*>(&address);
  struct stat st {};
  if (::lstat(path.c_str(), &st) == 0) {
    if (!S_ISSOCK(st.st_mode)) fail_listen(where, "there is a file of this name, and it is no socket");
    const Fd probe = make_socket(AF_UNIX, where);
    if (::connect(probe.get(), a, sizeof address) == 0) fail_listen(where, std::strerror(EADDRINUSE));
    if (errno == ECONNREFUSED) ::unlink(path.c_str());  // nobody listens any more
  }
  Listener l{make_socket(AF_UNIX, where), AF_UNIX, 0, where, 0};
  bind_and_listen(l, a, sizeof address, where);
  if (::lstat(path.c_str(), &st) == 0) l.inode = st.st_ino;
  return l;
}

}  // namespace

Listener open_listener(const std::string& address, uint16_t port, bool reuse_port) {
  if (address.starts_with("unix:")) return open_unix(address);
  const std::string ip = address == "localhost" ? "127.0.0.1" : address;
  const std::string where = cat(address, ":", port);
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  Listener l;
  if (::inet_pton(AF_INET, ip.c_str(), &v4.sin_addr) == 1)
    l.family = AF_INET;
  else if (::inet_pton(AF_INET6, ip.c_str(), &v6.sin6_addr) == 1)
    l.family = AF_INET6;
  else
    fail(ErrorCode::usage, cat("'", address, "' is not an IP address"), "",
         "use an address such as 127.0.0.1 or ::1");
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(port);
  l.fd = make_socket(l.family, where);
  const int on = 1;
  ::setsockopt(l.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(l.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // its connections inherit it
  if (reuse_port) ::setsockopt(l.fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  if (l.family == AF_INET)
    bind_and_listen(l, reinterpret_cast<sockaddr*>(&v4), sizeof v4, where);
  else
    bind_and_listen(l, reinterpret_cast<sockaddr*>(&v6), sizeof v6, where);
  sockaddr_in6 bound{};  // the port stands at the same place for both families
  socklen_t size = sizeof bound;
  ::getsockname(l.fd.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  l.port = ntohs(bound.sin6_port);
  l.endpoint = cat(l.family == AF_INET6 ? cat("[", address, "]") : address, ":", l.port);
  return l;
}

void remove_socket_file(Listener& l) {
  if (l.family != AF_UNIX || l.inode == 0) return;
  const std::string path = l.endpoint.substr(5);
  struct stat st {};
  if (::lstat(path.c_str(), &st) == 0 && st.st_ino == l.inode) ::unlink(path.c_str());
  l.inode = 0;
}

}  // namespace pelton::serve
