// SPDX-License-Identifier: Apache-2.0
// A process that serves one instance of a model, at the other end of a socket pair. Messages are frames of a
// JSON text and tensor data (see python/worker.py).
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "serve/core/blob.h"
#include "serve/core/model_dir.h"

namespace pelton::serve {

struct Frame {
  Frame();
  ~Frame();
  Frame(Frame&&) noexcept;
  std::unique_ptr<nlohmann::json> head;
  std::shared_ptr<char> memory;
  size_t size = 0;
  // bad_format if the range lies outside the data.
  Blob blob(size_t offset, size_t length) const;
};

class WorkerProcess {
 public:
  // Starts `python` with `source` as its program. io error if it cannot be started.
  WorkerProcess(const std::string& python, const std::string& source);
  ~WorkerProcess();  // ends it at once if it still runs

  // Any thread. False if the process has ended. Data is padded to 64 bytes after each blob.
  bool send(const nlohmann::json& head, const std::vector<Blob>& blobs = {});
  // One thread at a time. False if the process has ended; bad_format if it sends nonsense.
  bool receive(Frame& frame);
  bool readable(int timeout_ms) const;  // also when it has ended
  // Ends it and says how it ended ("ended with signal 9").
  std::string end();
  void kill() const;
  pid_t pid() const { return pid_; }

 private:
  bool read_all(char* to, size_t n) const;

  Fd socket_;
  pid_t pid_ = -1;
  std::mutex write_mutex_;
  std::mutex end_mutex_;
  std::string ended_;
};

}  // namespace pelton::serve
