// SPDX-License-Identifier: Apache-2.0
#include "serve/grpc/stream.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <deque>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "grpc_service.pb.h"
#include "serve/grpc/answer.h"
#include "serve/grpc/convert.h"

namespace pelton::serve {
namespace {

constexpr size_t kWindow = 64;     // requests of one stream that may run at the same time
constexpr size_t kMuch = 1 << 20;  // bytes of responses that wait: worth a look whether they are read

class Stream;

// What the requests' callbacks hold: it outlives the reactor, whose pointer it forgets when the call is done.
struct Link {
  std::mutex mutex;
  Stream* stream = nullptr;
};

struct Waiting {
  grpc::ByteBuffer message;  // holds its room in the memory gate
  size_t bytes = 0;
};

struct Slot {
  std::deque<Waiting> responses;
  bool final = false;
  bool decoupled = false;  // its responses need not wait for those of earlier requests
};

class Stream final : public StreamReactor {
 public:
  Stream(Core& core, const grpc::CallbackServerContext& context, const HeaderPattern& forward,
         std::chrono::milliseconds stall_timeout)
      : core_(core), context_(context), forward_(forward), stall_timeout_(stall_timeout) {
    link_->stream = this;
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    auto slot = std::make_shared<Slot>();
    {
      std::lock_guard lock(link_->mutex);
      if (finished_) return;  // what was on its way when the stream broke
      if (!ok) {
        reading_done_ = true;
        return pump();
      }
      slots_.push_back(slot);
    }
    run(slot);
    std::lock_guard lock(link_->mutex);
    if (finished_) return;
    if (slots_.size() < kWindow)
      StartRead(&message_);
    else
      paused_ = true;
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(link_->mutex);
    writing_ = false;
    ++writes_;
    backlog_ -= current_.bytes;
    current_.message.Clear();
    if (!ok) broken_ = true, token_->cancel();
    pump();
  }

  void OnCancel() override { token_->cancel(); }

  void OnDone() override {
    {
      std::lock_guard lock(link_->mutex);
      link_->stream = nullptr;
    }
    delete this;
  }

  // Holding the lock: starts what can be started.
  void pump() {
    std::erase_if(slots_, [&](const auto& s) {
      return s->final && s->responses.empty() && (s->decoupled || s == slots_.front());
    });
    while (!slots_.empty() && slots_.front()->final && slots_.front()->responses.empty()) slots_.pop_front();
    if (finished_) return;
    if (paused_ && slots_.size() < kWindow && !reading_done_) {
      paused_ = false;
      StartRead(&message_);
    }
    if (writing_) return;
    const auto next = std::find_if(slots_.begin(), slots_.end(), [&](const auto& s) {
      return !s->responses.empty() && (s->decoupled || s == slots_.front());
    });
    if (next != slots_.end() && !broken_) {
      current_ = std::move((*next)->responses.front());
      (*next)->responses.pop_front();
      writing_ = true;
      return StartWrite(&current_.message);
    }
    if (broken_ || (reading_done_ && slots_.empty())) {
      finished_ = true;
      Finish(grpc::Status::OK);
    }
  }

  // Holding the lock: a response that is to be sent.
  void add(Slot& slot, Waiting&& response) {
    backlog_ += response.bytes;
    slot.responses.push_back(std::move(response));
    watch();
  }

 private:
  // Holding the lock. While much waits, it is looked at now and then whether the client reads at all: what it
  // leaves is room in the memory gate that others want.
  void watch() {
    if (watched_ || backlog_ < kMuch) return;
    watched_ = true;
    alarm_.Set(std::chrono::system_clock::now() + stall_timeout_, [link = link_, before = writes_](bool) {
      std::lock_guard lock(link->mutex);
      Stream* s = link->stream;
      if (!s) return;
      s->watched_ = false;
      if (s->writes_ != before) return s->watch();
      log_warn("a stream ends: its client has left ", s->backlog_, " bytes of responses unread");
      s->token_->cancel();
      s->context_.TryCancel();
    });
  }

  void run(const std::shared_ptr<Slot>& slot) {
    auto request = std::make_unique<Request>();
    request->token = token_;
    request->streams = true;
    auto wanted = std::make_shared<bool>(false);                      // the mark of the final response
    auto outputs = std::make_shared<std::vector<RequestedOutput>>();  // filled by reading the message
    auto mapped = std::make_shared<std::vector<Blob>>();
    const auto room = take_room(core_.gate(), message_.Length());  // of the request
    request->set_callback([&core = core_, link = link_, slot, outputs, mapped, wanted, room](
                              Response&& response, bool final) {
      const bool marker = final && response.outputs.empty() && !response.error;  // ends a decoupled request
      if (*wanted) response.parameters["triton_final_response"] = final;
      Waiting w = written(core, response, *outputs, *mapped);
      std::lock_guard lock(link->mutex);
      slot->final = final;
      slot->decoupled = slot->decoupled || !final || marker;
      if (!link->stream) return;
      if (!marker || *wanted) link->stream->add(*slot, std::move(w));
      link->stream->pump();
    });
    if (!room)
      return request->respond(Error(ErrorCode::busy, "the server holds as many request bytes as it may"));
    try {
      inference::ModelInferRequest m = parse_infer_message(message_);
      read_infer_message(m, *request, core_.shared_memory());
      forward_metadata(context_, forward_, core_.tracing(), *request);
      *outputs = request->outputs;
      *mapped = core_.shared_memory().mapped_inputs(*request);
    } catch (const Error& e) {
      core_.count_refused(*request, e.code());
      return request->respond(e);
    }
    if (auto it = request->parameters.find("triton_enable_empty_final_response");
        it != request->parameters.end()) {
      *wanted = std::holds_alternative<bool>(it->second) && std::get<bool>(it->second);
      request->parameters.erase(it);
    }
    core_.infer(std::move(request));
  }

  static Waiting written(Core& core, Response& response, const std::vector<RequestedOutput>& outputs,
                         const std::vector<Blob>& mapped) {
    Waiting w;
    try {
      if (response.error) throw *response.error;
      core.shared_memory().store(response, outputs, mapped);
      w.message = stream_answer(std::move(response), outputs, core.answers());
    } catch (const std::exception& e) {
      w.message = stream_error(response.id, e.what());
    }
    w.bytes = w.message.Length();
    return w;
  }

  Core& core_;
  const grpc::CallbackServerContext& context_;
  const HeaderPattern& forward_;
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
  const std::shared_ptr<CancelToken> token_ = std::make_shared<CancelToken>();
  grpc::ByteBuffer message_;
  Waiting current_;  // is being written
  std::deque<std::shared_ptr<Slot>> slots_;
  const std::chrono::milliseconds stall_timeout_;
  grpc::Alarm alarm_;
  bool watched_ = false;  // the alarm is set
  uint64_t writes_ = 0;
  size_t backlog_ = 0;  // bytes of all responses in slots_ and current_
  bool reading_done_ = false, paused_ = false, writing_ = false, broken_ = false, finished_ = false;
};

}  // namespace

StreamReactor* make_stream_reactor(Core& core, grpc::CallbackServerContext* context,
                                   const HeaderPattern& forward, std::chrono::milliseconds stall_timeout) {
  return new Stream(core, *context, forward, stall_timeout);
}

StreamReactor* make_failed_stream(const grpc::Status& status) {
  struct Failed final : StreamReactor {
    explicit Failed(const grpc::Status& s) { Finish(s); }
    void OnDone() override { delete this; }
  };
  return new Failed(status);
}

}  // namespace pelton::serve
