// SPDX-License-Identifier: Apache-2.0
#include "serve/grpc/infer_call.h"

#include <grpcpp/alarm.h>

#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "grpc_service.pb.h"
#include "serve/grpc/answer.h"
#include "serve/grpc/convert.h"

namespace pelton::serve {
namespace {

namespace pb = inference;
using grpc::CallbackServerContext;
using grpc::Status;

constexpr size_t kMuch = 1 << 20;        // bytes of an answer: worth a look whether it is read
constexpr size_t kPerTimeout = 8 << 20;  // of which a client is to read so many in its stall time

class InferCall final : public grpc::ServerUnaryReactor {
 public:
  InferCall(Core& core, CallbackServerContext* context, grpc::ByteBuffer& message, grpc::ByteBuffer& answer,
            const HeaderPattern& forward, std::chrono::milliseconds stall_timeout)
      : core_(core), context_(context), answer_(answer), stall_timeout_(stall_timeout) {
    auto request = std::make_unique<Request>();
    request->token = token_;
    const auto until = context->deadline() - std::chrono::system_clock::now();
    if (until < std::chrono::hours(24 * 365))
      request->deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(until);
    // Set after reading, which fills the outputs that the answer is shaped by; before, an error needs no
    // more.
    request->set_callback([this](Response&& r, bool) { Finish(grpc_status(*r.error)); });
    try {
      room_ = take_room(core.gate(), message.Length());
      if (!room_)
        fail(ErrorCode::busy, "the server holds as many request bytes as it may", "", "retry later");
      pb::ModelInferRequest m = parse_infer_message(message);
      read_infer_message(m, *request, core.shared_memory());
      forward_metadata(*context, forward, core.tracing(), *request);
    } catch (const Error& e) {
      core.count_refused(*request, e.code());
      request->respond(e);
      return;
    }
    request->set_callback([this, outputs = request->outputs,
                           mapped = core.shared_memory().mapped_inputs(*request)](Response&& r, bool final) {
      if (final) finish(std::move(r), outputs, mapped);
    });
    core.infer(std::move(request));
  }
  void OnCancel() override { token_->cancel(); }
  void OnDone() override {
    if (watch_) {
      std::lock_guard lock(watch_->mutex);
      watch_->context = nullptr;
    }
    delete this;
  }

 private:
  // What the alarm holds: it may outlive the call.
  struct Watch {
    std::mutex mutex;
    CallbackServerContext* context = nullptr;
  };

  void finish(Response&& r, const std::vector<RequestedOutput>& outputs, const std::vector<Blob>& mapped) {
    room_.reset();  // what of the message the answer still needs counts as answer
    if (r.error) return Finish(grpc_status(*r.error));
    try {
      core_.shared_memory().store(r, outputs, mapped);
      answer_ = infer_answer(std::move(r), outputs, core_.answers());
      if (const size_t size = answer_.Length(); size > kMuch) watch(size);
    } catch (const Error& e) {
      return Finish(grpc_status(e));
    } catch (const std::bad_alloc&) {
      return Finish(Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no memory for the answer"));
    }
    Finish(Status::OK);
  }

  // What the client leaves unread is room that others want.
  void watch(size_t size) {
    watch_ = std::make_shared<Watch>();
    watch_->context = context_;
    alarm_.emplace().Set(
        std::chrono::system_clock::now() + stall_timeout_ * static_cast<int64_t>(1 + size / kPerTimeout),
        [w = watch_, size](bool ok) {
          std::lock_guard lock(w->mutex);
          if (!ok || !w->context) return;
          log_warn("gRPC: a call ends: its client does not read the answer of ", size, " bytes");
          w->context->TryCancel();
        });
  }

  Core& core_;
  CallbackServerContext* const context_;
  grpc::ByteBuffer& answer_;
  const std::chrono::milliseconds stall_timeout_;
  const std::shared_ptr<CancelToken> token_ = std::make_shared<CancelToken>();
  std::shared_ptr<const void> room_;  // of the message
  std::shared_ptr<Watch> watch_;
  std::optional<grpc::Alarm> alarm_;
};

}  // namespace

grpc::ServerUnaryReactor* make_infer_call(Core& core, CallbackServerContext* context,
                                          grpc::ByteBuffer& message, grpc::ByteBuffer& answer,
                                          const HeaderPattern& forward,
                                          std::chrono::milliseconds stall_timeout) {
  return new InferCall(core, context, message, answer, forward, stall_timeout);
}

}  // namespace pelton::serve
