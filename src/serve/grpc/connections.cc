// SPDX-License-Identifier: Apache-2.0
#include "serve/grpc/connections.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <string_view>

namespace pelton::serve {
namespace {

// HTTP/2: empty settings, then the end of the connection with ENHANCE_YOUR_CALM and a reason that clients
// show.
constexpr std::string_view kFull(
    "\0\0\0\x04\0\0\0\0\0"
    "\0\0\x1c\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b"
    "too many connections",
    9 + 9 + 8 + 20);

}  // namespace

void GrpcConnections::start(std::unique_ptr<Library> library) {
  library_ = std::move(library);
  thread_ = std::thread([this] { run(); });
}

void GrpcConnections::stop() {
  stopping_ = true;
  ::shutdown(listener_.fd.get(), SHUT_RDWR);  // wakes the thread
  if (thread_.joinable()) thread_.join();
  listener_.fd = Fd();
  remove_socket_file(listener_);
}

void GrpcConnections::run() {
  while (!stopping_) {
    const int fd = ::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      take(fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // let some be freed first
    } else if (errno == EBADF || errno == EINVAL) {
      return;  // stopped
    }
  }
}

void GrpcConnections::take(int fd) {
  Fd owned(fd);
  struct stat st {};
  if (stopping_ || ::fstat(fd, &st) != 0) return;
  if (full()) {
    (void)::send(fd, kFull.data(), kFull.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    ::shutdown(fd, SHUT_WR);
    // Closed at once, what the client has sent meanwhile would reset the connection before it reads this.
    refused_[next_refused_++ % refused_.size()] = std::move(owned);
    return;
  }
  taken_.push_back({fd, st.st_dev, st.st_ino});
  Library::NewConnectionParameters p;
  p.listener_fd = listener_.fd.get();
  p.fd = owned.release();
  library_->HandleNewConnection(&p);
}

bool GrpcConnections::full() {
  if (taken_.size() < limit_) return false;
  std::erase_if(taken_, [](const Taken& t) {
    struct stat st {};
    return ::fstat(t.fd, &st) != 0 || st.st_dev != t.device || st.st_ino != t.inode;
  });
  return taken_.size() >= limit_;
}

}  // namespace pelton::serve
