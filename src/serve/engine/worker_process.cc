// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

extern char** environ;

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxHead = 256 << 20;
constexpr size_t kMaxData = size_t{16} << 30;

// Reads the program from the socket and runs it.
constexpr const char* kBoot =
    "import socket,struct,sys\n"
    "s=socket.socket(fileno=3)\n"
    "def r(n):\n"
    " b=b''\n"
    " while len(b)<n:\n"
    "  c=s.recv(n-len(b))\n"
    "  if not c: sys.exit(0)\n"
    "  b+=c\n"
    " return b\n"
    "n,=struct.unpack('<I',r(4))\n"
    "exec(compile(r(n),'pelton_worker','exec'),{'__name__':'__main__','SOCKET':s})\n";

// Writes everything; false once the other end is closed.
bool write_vectors(int fd, std::vector<iovec> parts) {
  size_t first = 0;
  while (first < parts.size()) {
    msghdr m{};
    m.msg_iov = parts.data() + first;
    m.msg_iovlen = std::min<size_t>(parts.size() - first, 512);
    ssize_t n = ::sendmsg(fd, &m, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    while (first < parts.size() && static_cast<size_t>(n) >= parts[first].iov_len)
      n -= static_cast<ssize_t>(parts[first++].iov_len);
    if (first < parts.size() && n > 0) {
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + n;
      parts[first].iov_len -= static_cast<size_t>(n);
    }
  }
  return true;
}

}  // namespace

Frame::Frame() : head(std::make_unique<Json>()) {}
Frame::~Frame() = default;
Frame::Frame(Frame&&) noexcept = default;

Blob Frame::blob(size_t offset, size_t length) const {
  if (offset > size || length > size - offset)
    fail(ErrorCode::bad_format, "the model's process describes a tensor outside the data it sent");
  return {memory.get() + offset, length, memory};
}

WorkerProcess::WorkerProcess(const std::string& python, const std::string& source) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    fail_errno(errno, "make a connection to", python);
  socket_ = Fd(pair[0]);
  const Fd theirs(pair[1]);
  const int buffer = 1 << 20;
  for (int fd : pair) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, 2, 1);  // standard output belongs to the server's results
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), 3);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 4);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigemptyset(&defaults);
  for (int s : {SIGPIPE, SIGTERM, SIGINT}) ::sigaddset(&defaults, s);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  // A group of its own: signals to the server's group, such as Ctrl-C, do not reach the model before its end.
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string program = python, flag = "-c", boot = kBoot;
  char* arguments[] = {program.data(), flag.data(), boot.data(), nullptr};
  const int error = ::posix_spawnp(&pid_, python.c_str(), &actions, &attributes, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error)
    fail(ErrorCode::io, cat("cannot start '", python, "': ", std::strerror(error)), "",
         "name a Python with NumPy by --python-executable");
  const uint32_t size = static_cast<uint32_t>(source.size());
  write_vectors(socket_.get(), {{const_cast<uint32_t*>(&size), sizeof size},
                                {const_cast<char*>(source.data()), source.size()}});
}

WorkerProcess::~WorkerProcess() {
  end();
}

bool WorkerProcess::send(const Json& head, const std::vector<Blob>& blobs) {
  static const char kZeros[64] = {};
  const std::string text = head.dump(-1, ' ', false, Json::error_handler_t::replace);
  char sizes[12];
  const uint32_t head_size = static_cast<uint32_t>(text.size());
  uint64_t data_size = 0;
  std::vector<iovec> parts = {{sizes, sizeof sizes}, {const_cast<char*>(text.data()), text.size()}};
  for (const Blob& b : blobs) {
    const size_t pad = (64 - b.size % 64) % 64;
    if (b.size) parts.push_back({const_cast<char*>(b.data), b.size});
    if (pad) parts.push_back({const_cast<char*>(kZeros), pad});
    data_size += b.size + pad;
  }
  std::memcpy(sizes, &head_size, 4);
  std::memcpy(sizes + 4, &data_size, 8);
  std::lock_guard lock(write_mutex_);
  return write_vectors(socket_.get(), std::move(parts));
}

bool WorkerProcess::read_all(char* to, size_t n) const {
  while (n > 0) {
    const ssize_t got = ::recv(socket_.get(), to, n, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    n -= static_cast<size_t>(got);
  }
  return true;
}

bool WorkerProcess::receive(Frame& frame) {
  char sizes[12];
  if (!read_all(sizes, sizeof sizes)) return false;
  uint32_t head_size;
  uint64_t data_size;
  std::memcpy(&head_size, sizes, 4);
  std::memcpy(&data_size, sizes + 4, 8);
  if (head_size > kMaxHead || data_size > kMaxData)
    fail(ErrorCode::limit, cat("the model's process sends ", head_size, " + ", data_size, " bytes at once"));
  std::string text(head_size, '\0');
  if (!read_all(text.data(), text.size())) return false;
  frame.memory = data_size ? allocate_bytes(data_size) : nullptr;
  frame.size = data_size;
  if (data_size && !read_all(frame.memory.get(), data_size)) return false;
  *frame.head = Json::parse(text, nullptr, false);
  if (!frame.head->is_object())
    fail(ErrorCode::bad_format, "the model's process sends what is no JSON object");
  return true;
}

bool WorkerProcess::readable(int timeout_ms) const {
  pollfd p{socket_.get(), POLLIN, 0};
  return ::poll(&p, 1, timeout_ms) > 0;
}

void WorkerProcess::kill() const {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

std::string WorkerProcess::end() {
  std::lock_guard lock(end_mutex_);
  if (pid_ <= 0) return ended_;
  ::shutdown(socket_.get(), SHUT_RDWR);
  int status = 0;
  pid_t got = 0;
  for (int i = 0; i < 100 && got == 0; ++i) {  // a process that has crashed is gone within moments
    got = ::waitpid(pid_, &status, WNOHANG);
    if (got == 0) ::usleep(i < 20 ? 1000 : 10000);
  }
  if (got == 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status, 0);
  }
  pid_ = -1;
  ended_ = WIFSIGNALED(status) ? cat("ended with signal ", WTERMSIG(status))
                               : cat("ended with status ", WEXITSTATUS(status));
  return ended_;
}

}  // namespace pelton::serve
