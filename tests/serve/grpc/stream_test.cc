// SPDX-License-Identifier: Apache-2.0
// A stream whose client asks for much and reads nothing.
#include <doctest/doctest.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>

#include "grpc_service.grpc.pb.h"
#include "serve/grpc/front_end.h"

namespace pelton::serve::test {
namespace {

namespace pb = inference;

constexpr int kRequests = 24;
constexpr size_t kElements = 1 << 20;

// Sends its requests and reads `reads` responses.
class Client final : public grpc::ClientBidiReactor<pb::ModelInferRequest, pb::ModelStreamInferResponse> {
 public:
  Client(pb::GRPCInferenceService::Stub& stub, int reads) : reads_(reads) {
    request_.set_model_name("m");
    auto& in = *request_.add_inputs();
    in.set_name("INPUT0");
    in.set_datatype("INT32");
    in.add_shape(kElements);
    request_.add_raw_input_contents(std::string(kElements * 4, '\1'));
    stub.async()->ModelStreamInfer(&context_, this);
    AddHold();                     // of the reads, which come one after the other or not at all
    const bool none = reads == 0;  // reads_ is the callbacks' own once the call is on its way
    if (!none) StartRead(&response_);
    StartWrite(&request_);
    StartCall();
    if (none) RemoveHold();
  }
  void OnWriteDone(bool ok) override {
    if (ok && ++written_ < kRequests)
      StartWrite(&request_);
    else
      StartWritesDone();
  }
  void OnReadDone(bool ok) override {
    if (ok && response_.infer_response().raw_output_contents(0) == request_.raw_input_contents(0)) ++right_;
    if (ok && --reads_ > 0)
      StartRead(&response_);
    else
      RemoveHold();
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(mutex_);
    status_ = status;
    done_ = true;
    changed_.notify_all();
  }
  grpc::Status wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return status_;
  }
  void give_up() { context_.TryCancel(); }
  int right() const { return right_; }

 private:
  grpc::ClientContext context_;
  pb::ModelInferRequest request_;
  pb::ModelStreamInferResponse response_;
  int reads_, written_ = 0, right_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::Status status_;
  bool done_ = false;
};

}  // namespace

TEST_CASE(
    "a stream whose responses nobody reads is ended and its memory given back; one that is read is not") {
  TestServer s;
  REQUIRE(s.start_echo().empty());
  const auto server = grpc_front_end(s, std::chrono::milliseconds(1000));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const auto channel =
      grpc::CreateCustomChannel(server->endpoint(), grpc::InsecureChannelCredentials(), arguments);
  const auto stub = pb::GRPCInferenceService::NewStub(channel);
  {
    Client reader(*stub, kRequests);
    CHECK(reader.wait().ok());
    CHECK(reader.right() == kRequests);
    Client silent(*stub, 0);
    const auto used = [&] { return s.core->answers().used(); };
    CHECK(until([&] { return used() > 20 * kElements; }));
    CHECK(until([&] { return used() == 0; }));
    silent.give_up();  // it learns of the end only by reading
    CHECK(silent.wait().error_code() == grpc::StatusCode::CANCELLED);
  }
  CHECK(s.end(*server));
}

}  // namespace pelton::serve::test
