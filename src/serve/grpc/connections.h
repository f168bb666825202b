// SPDX-License-Identifier: Apache-2.0
// Takes the connections of the gRPC front end and hands them to the library, which itself would take any
// number.
#pragma once

#include <grpcpp/server_builder.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "serve/core/listener.h"

namespace pelton::serve {

class GrpcConnections {
 public:
  using Library = grpc::experimental::ExternalConnectionAcceptor;
  // At most `limit` at one time; those beyond it are closed at once.
  GrpcConnections(Listener listener, size_t limit) : listener_(std::move(listener)), limit_(limit) {}
  ~GrpcConnections() { stop(); }
  const std::string& endpoint() const { return listener_.endpoint; }
  void start(std::unique_ptr<Library> library);  // once the server runs
  void stop();                                   // no new ones; those that are there stay

 private:
  // The library closes a connection when it is done with it and tells nobody. The descriptor's number then
  // names nothing, or something else.
  struct Taken {
    int fd;
    dev_t device;
    ino_t inode;
  };
  void run();
  void take(int fd);
  bool full();

  Listener listener_;
  const size_t limit_;
  std::unique_ptr<Library> library_;
  std::vector<Taken> taken_;
  std::array<Fd, 16> refused_;  // that may still read why
  size_t next_refused_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace pelton::serve
