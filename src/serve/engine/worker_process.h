// SPDX-License-Identifier: Apache-2.0
// A process that serves one instance of a model, at the other end of a socket pair; it answers over the
// socket or in a WorkerRing. What is said either way are frames (see python/worker.py). What it prints is
// collected line by line.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serve/core/memory_gate.h"
#include "serve/engine/worker_ring.h"

namespace pelton::serve {

struct Frame {
  // How `head` is written: a JSON object; executions and their answers (python_frames.h); nothing, to wake
  // the reader.
  enum class Kind : uint32_t { json, execute, executed, wake };
  Kind kind = Kind::json;
  std::shared_ptr<char> memory;  // head and data
  std::string_view head;
  const char* data = nullptr;
  size_t size = 0;       // of the data
  bool dropped = false;  // there was no room for the data, which is not there
  // bad_format if the range lies outside the data, busy if that was dropped.
  Blob blob(size_t offset, size_t length) const;
  nlohmann::json json() const;  // bad_format if the head is no JSON object
};

class WorkerProcess {
 public:
  using Printed = std::function<void(std::string_view line)>;

  // Starts `python` with `source` as its program. io error if it cannot be started. What it sends is held at
  // the expense of `gate`.
  WorkerProcess(const std::string& python, const std::string& source, MemoryGate& gate, Printed printed);
  ~WorkerProcess();  // ends it at once if it still runs

  // Any thread. False if the process has ended. Data is padded to 64 bytes after each blob.
  bool send(Frame::Kind kind, std::string_view head, const std::vector<Blob>& blobs = {});
  bool send(const nlohmann::json& head, const std::vector<Blob>& blobs = {});
  // One thread at a time. False if the process has ended, or has said nothing for that long (negative: no
  // limit) and still runs; bad_format if it sends nonsense.
  bool receive(Frame& frame, int timeout_ms = -1);
  pid_t pid() const { return pid_; }
  uint64_t begun() const { return ring_.begun(); }
  // Ends it and says how it ended ("ended with signal 9").
  std::string end();
  void kill() const;
  // Kills the processes of all models, for a server whose time to stop is over.
  static void kill_all();

 private:
  bool from_ring(Frame& frame);
  bool from_socket(Frame& frame);
  bool read_all(char* to, size_t n) const;
  bool make_room(Frame& frame, uint32_t kind, size_t head, size_t data) const;
  void read_printed(bool last);

  MemoryGate& gate_;
  WorkerRing ring_;
  Fd socket_, prints_;
  pid_t pid_ = -1;
  const Printed printed_;
  std::string line_;  // printed so far
  std::mutex write_mutex_;
  std::mutex end_mutex_;
  std::string ended_;
};

}  // namespace pelton::serve
