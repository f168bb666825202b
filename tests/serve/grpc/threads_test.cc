// SPDX-License-Identifier: Apache-2.0
// The gRPC front end with many clients at once: calls, streams, calls that are given up, models loaded anew.
// Meant for the thread sanitizer too: the clients use the callback interface, whose order happens_before.cc
// tells it.
#include <doctest/doctest.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "grpc_service.grpc.pb.h"
#include "serve/grpc/front_end.h"

namespace pelton::serve::test {
namespace {

namespace pb = inference;

pb::ModelInferRequest request(int32_t value) {
  pb::ModelInferRequest m;
  m.set_model_name("m");
  auto& in = *m.add_inputs();
  in.set_name("INPUT0");
  in.set_datatype("INT32");
  in.add_shape(1);
  in.add_shape(1);
  m.add_raw_input_contents(reinterpret_cast<const char*>(&value), sizeof value);
  return m;
}

bool answers(const pb::ModelInferResponse& m, int32_t value) {
  return m.raw_output_contents_size() == 1 &&
         m.raw_output_contents(0) == std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// What a call ends with, for the thread that waits for it.
class Outcome {
 public:
  void set(grpc::Status status) {
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
    done_ = true;
    changed_.notify_all();
  }
  grpc::Status wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::Status status_;
  bool done_ = false;
};

using Async = pb::GRPCInferenceService::StubInterface::async_interface;

class Client {
 public:
  explicit Client(const std::string& endpoint) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = pb::GRPCInferenceService::NewStub(
        grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments));
  }
  // One call to its end.
  template <class Method, class In, class Out>
  grpc::Status call(Method method, const In& in, Out& out,
                    std::chrono::microseconds limit = std::chrono::hours(1)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    Outcome outcome;
    method(*stub_->async(), &context, &in, &out,
           [&](grpc::Status status) { outcome.set(std::move(status)); });
    return outcome.wait();
  }
  grpc::Status infer(int32_t value, pb::ModelInferResponse& answer,
                     std::chrono::microseconds limit = std::chrono::hours(1)) {
    return call([](Async& stub, auto... a) { stub.ModelInfer(a...); }, request(value), answer, limit);
  }
  Async& async() { return *stub_->async(); }

 private:
  std::unique_ptr<pb::GRPCInferenceService::Stub> stub_;
};

// A stream that sends `count` requests, reading the answers meanwhile, and counts the right ones.
class StreamOfRequests final
    : public grpc::ClientBidiReactor<pb::ModelInferRequest, pb::ModelStreamInferResponse> {
 public:
  StreamOfRequests(Async& stub, int32_t first, int count) : first_(first), count_(count) {
    stub.ModelStreamInfer(&context_, this);
    send();
    StartRead(&answer_);
    StartCall();
  }
  void OnWriteDone(bool ok) override {
    if (ok) send();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (answer_.error_message().empty() && answers(answer_.infer_response(), first_ + read_)) ++right_;
    ++read_;
    StartRead(&answer_);
  }
  void OnDone(const grpc::Status& status) override { outcome_.set(status); }
  // The right answers, once the server has ended the stream; -1 if it ended badly.
  int wait() { return outcome_.wait().ok() ? right_ : -1; }

 private:
  void send() {
    if (sent_ == count_) return StartWritesDone();
    message_ = request(first_ + sent_++);
    StartWrite(&message_);
  }
  grpc::ClientContext context_;
  Outcome outcome_;
  pb::ModelInferRequest message_;
  pb::ModelStreamInferResponse answer_;
  const int first_, count_;
  int sent_ = 0, read_ = 0, right_ = 0;
};

}  // namespace

TEST_CASE(
    "many gRPC clients, streams, reloads and calls that are given up: every answer belongs to its request") {
  TestServer s;
  REQUIRE(s.start_reloadable().empty());
  const auto server = grpc_front_end(s);
  std::atomic<bool> stop{false};
  std::atomic<int> right{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 2; ++k)
    threads.emplace_back([&, k] {
      Client client(server->endpoint());
      for (int i = 0; i < 100; ++i) {
        pb::ModelInferResponse answer;
        const auto status = client.infer(k * 1000 + i, answer);
        ++(status.ok() && answers(answer, k * 1000 + i) ? right : wrong);
      }
    });
  threads.emplace_back([&] {
    Client client(server->endpoint());
    right += StreamOfRequests(client.async(), 5000, 100).wait();
  });
  threads.emplace_back([&] {
    Client client(server->endpoint());
    for (int i = 0; !stop; ++i) {
      pb::ModelInferResponse answer;
      const auto status = client.infer(i, answer, std::chrono::microseconds(i % 7 * 100));
      if (status.ok() && !answers(answer, i)) ++wrong;
    }
  });
  threads.emplace_back([&] {
    Client client(server->endpoint());
    while (!stop) {
      pb::RepositoryModelLoadRequest load;
      load.set_model_name("m");
      pb::RepositoryModelLoadResponse loaded;
      if (!client.call([](Async& stub, auto... a) { stub.RepositoryModelLoad(a...); }, load, loaded).ok())
        ++wrong;
      pb::ModelStatisticsResponse statistics;
      if (!client
               .call([](Async& stub, auto... a) { stub.ModelStatistics(a...); }, pb::ModelStatisticsRequest(),
                     statistics)
               .ok())
        ++wrong;
    }
  });
  for (int k = 0; k < 3; ++k) threads[static_cast<size_t>(k)].join();
  stop = true;
  for (size_t k = 3; k < threads.size(); ++k) threads[k].join();
  CHECK(right == 300);
  CHECK(wrong == 0);
  CHECK(s.end(*server));
}

}  // namespace pelton::serve::test
