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
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"

extern char** environ;

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxHead = 256 << 20;
constexpr size_t kMaxData = size_t{1} << 40;
constexpr size_t kMaxLine = 8192;

// Before every frame; the head is padded to 16 bytes, so that data lies as aligned in memory as its frame
// does.
struct FrameSizes {
  uint32_t kind = 0, head = 0;
  uint64_t data = 0;
  size_t padded_head() const { return (head + size_t{15}) & ~size_t{15}; }
};
static_assert(sizeof(FrameSizes) == 16);

void check(const FrameSizes& sizes) {
  if (sizes.head > kMaxHead || sizes.data > kMaxData || sizes.data % 16 ||
      sizes.kind > static_cast<uint32_t>(Frame::Kind::wake))
    fail(ErrorCode::limit,
         cat("the model's process sends ", sizes.head, " + ", sizes.data, " bytes of kind ", sizes.kind));
}

// Processes that have not been waited for: the only ones whose number is surely theirs.
std::mutex living_mutex;
std::set<pid_t> living;

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
    "exec(compile(r(n),'pelton_worker','exec'),{'__name__':'__main__','SOCKET':s,'RING':4})\n";

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

Blob Frame::blob(size_t offset, size_t length) const {
  if (dropped)
    fail(ErrorCode::busy, "the server holds as many bytes of answers as it may", "", "retry later");
  if (offset > size || length > size - offset)
    fail(ErrorCode::bad_format, "the model's process describes a tensor outside the data it sent");
  return {data + offset, length, memory};
}

Json Frame::json() const {
  Json j = Json::parse(head, nullptr, false);
  if (!j.is_object()) fail(ErrorCode::bad_format, "the model's process sends what is no JSON object");
  return j;
}

WorkerProcess::WorkerProcess(const std::string& python, const std::string& source, MemoryGate& gate,
                             Printed printed)
    : gate_(gate), printed_(std::move(printed)) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    fail_errno(errno, "make a connection to", python);
  socket_ = Fd(pair[0]);
  // With numbers that none of the others is to get in the new process.
  const Fd sent(pair[1]), theirs(::fcntl(pair[1], F_DUPFD_CLOEXEC, 5)),
      ring(::fcntl(ring_.fd(), F_DUPFD_CLOEXEC, 5));
  const int buffer = 1 << 20;
  for (int fd : pair) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  // A pipe of its own: were it the server's standard error, a reader of that could stop the model.
  if (::pipe2(pair, O_CLOEXEC) != 0) fail_errno(errno, "make a pipe to", python);
  prints_ = Fd(pair[0]);
  const Fd printing(pair[1]), prints(::fcntl(pair[1], F_DUPFD_CLOEXEC, 5));
  if (theirs.get() < 0 || ring.get() < 0 || prints.get() < 0)
    fail_errno(errno, "make a connection to", python);
  ::fcntl(prints_.get(), F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, prints.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, prints.get(), 2);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), 3);
  ::posix_spawn_file_actions_adddup2(&actions, ring.get(), 4);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 5);
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
  {
    std::lock_guard lock(living_mutex);
    living.insert(pid_);
  }
  const uint32_t size = static_cast<uint32_t>(source.size());
  write_vectors(socket_.get(), {{const_cast<uint32_t*>(&size), sizeof size},
                                {const_cast<char*>(source.data()), source.size()}});
}

WorkerProcess::~WorkerProcess() {
  end();
}

bool WorkerProcess::send(Frame::Kind kind, std::string_view head, const std::vector<Blob>& blobs) {
  static const char kZeros[64] = {};
  FrameSizes sizes{static_cast<uint32_t>(kind), static_cast<uint32_t>(head.size())};
  std::vector<iovec> parts;
  parts.reserve(3 + 2 * blobs.size());
  parts.push_back({&sizes, sizeof sizes});
  parts.push_back({const_cast<char*>(head.data()), head.size()});
  if (const size_t pad = sizes.padded_head() - head.size()) parts.push_back({const_cast<char*>(kZeros), pad});
  for (const Blob& b : blobs) {
    const size_t pad = (64 - b.size % 64) % 64;
    if (b.size) parts.push_back({const_cast<char*>(b.data), b.size});
    if (pad) parts.push_back({const_cast<char*>(kZeros), pad});
    sizes.data += b.size + pad;
  }
  std::lock_guard lock(write_mutex_);
  return write_vectors(socket_.get(), std::move(parts));
}

bool WorkerProcess::send(const Json& head, const std::vector<Blob>& blobs) {
  return send(Frame::Kind::json, head.dump(-1, ' ', false, Json::error_handler_t::replace), blobs);
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

// Memory for a frame of that many bytes, which `frame` then describes. False if there is none for its data; a
// frame whose head does not fit either cannot be answered for.
bool WorkerProcess::make_room(Frame& frame, uint32_t kind, size_t head, size_t data) const {
  const size_t padded = (head + size_t{15}) & ~size_t{15};
  frame.kind = static_cast<Frame::Kind>(kind);
  frame.memory = allocate_leased(gate_, padded + data);
  frame.dropped = !frame.memory;
  if (frame.dropped) frame.memory = allocate_leased(gate_, padded);
  if (!frame.memory)
    fail(ErrorCode::limit, cat("the server has no room for ", head, " bytes that the model's process sends"));
  frame.head = {frame.memory.get(), head};
  frame.data = frame.memory.get() + padded;
  frame.size = frame.dropped ? 0 : data;
  return !frame.dropped;
}

bool WorkerProcess::from_ring(Frame& frame) {
  FrameSizes sizes;
  const size_t there = ring_.peek(&sizes, sizeof sizes);
  if (!there) return false;
  check(sizes);
  const size_t rest = sizes.padded_head() + sizes.data;
  if (rest > there - sizeof sizes)
    fail(ErrorCode::bad_format, "the model's process has damaged the memory it answers in");
  ring_.skip(sizeof sizes);
  const bool whole = make_room(frame, sizes.kind, sizes.head, sizes.data);
  ring_.read(frame.memory.get(), whole ? rest : sizes.padded_head());
  if (!whole) ring_.skip(sizes.data);
  return true;
}

bool WorkerProcess::from_socket(Frame& frame) {
  FrameSizes sizes;
  if (!read_all(reinterpret_cast<char*>(&sizes), sizeof sizes)) return false;
  check(sizes);
  if (make_room(frame, sizes.kind, sizes.head, sizes.data))
    return read_all(frame.memory.get(), sizes.padded_head() + sizes.data);
  if (!read_all(frame.memory.get(), sizes.padded_head())) return false;
  std::vector<char> scratch(64 << 10);
  for (uint64_t left = sizes.data; left > 0;) {
    const size_t n = std::min<uint64_t>(left, scratch.size());
    if (!read_all(scratch.data(), n)) return false;
    left -= n;
  }
  return true;
}

bool WorkerProcess::receive(Frame& frame, int timeout_ms) {
  for (;;) {
    if (from_ring(frame)) return true;
    if (!ring_.may_sleep()) continue;
    pollfd p[2] = {{socket_.get(), POLLIN, 0}, {prints_.get(), POLLIN, 0}};
    const int n = ::poll(p, prints_.get() < 0 ? 1 : 2, timeout_ms);
    ring_.awake();
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    if (p[1].revents) read_printed(false);
    if (!p[0].revents) continue;
    if (!from_socket(frame)) {
      if (from_ring(frame)) return true;  // left before it ended
      read_printed(true);
      return false;
    }
    if (frame.kind != Frame::Kind::wake) return true;
  }
}

void WorkerProcess::read_printed(bool last) {
  char buffer[4096];
  ssize_t n = -1;
  for (int i = 0; i < 64 && prints_.get() >= 0; ++i) {
    n = ::read(prints_.get(), buffer, sizeof buffer);
    if (n <= 0) break;
    for (const char c : std::string_view(buffer, static_cast<size_t>(n))) {
      if (c != '\n') line_ += c;
      if (c != '\n' && line_.size() < kMaxLine) continue;
      if (!line_.empty()) printed_(line_);
      line_.clear();
    }
  }
  if (n == 0 || last) {
    if (!line_.empty()) printed_(line_);
    line_.clear();
    prints_ = Fd();
  }
}

void WorkerProcess::kill() const {
  std::lock_guard lock(living_mutex);
  if (living.contains(pid_)) ::kill(pid_, SIGKILL);
}

void WorkerProcess::kill_all() {
  std::lock_guard lock(living_mutex);
  for (const pid_t pid : living) ::kill(pid, SIGKILL);
}

std::string WorkerProcess::end() {
  std::lock_guard lock(end_mutex_);
  if (pid_ <= 0) return ended_;
  ::shutdown(socket_.get(), SHUT_RDWR);
  {
    std::lock_guard lock(living_mutex);
    living.erase(pid_);
  }
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
