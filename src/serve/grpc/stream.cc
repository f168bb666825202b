// SPDX-License-Identifier: Apache-2.0
#include "serve/grpc/stream.h"

#include <algorithm>
#include <deque>
#include <mutex>

#include "serve/grpc/convert.h"

namespace pelton::serve {
namespace {

constexpr size_t kWindow = 64;  // requests of one stream that may run at the same time

class Stream;

// What the requests' callbacks hold: it outlives the reactor, whose pointer it forgets when the call is done.
struct Link {
  std::mutex mutex;
  Stream* stream = nullptr;
};

struct Slot {
  std::deque<inference::ModelStreamInferResponse> responses;
  bool final = false;
  bool decoupled = false;  // its responses need not wait for those of earlier requests
};

class Stream final : public StreamReactor {
 public:
  Stream(Core& core, const grpc::CallbackServerContext& context, const HeaderPattern& forward)
      : core_(core), context_(context), forward_(forward) {
    link_->stream = this;
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      std::lock_guard lock(link_->mutex);
      reading_done_ = true;
      return pump();
    }
    auto slot = std::make_shared<Slot>();
    {
      std::lock_guard lock(link_->mutex);
      slots_.push_back(slot);
    }
    run(slot);
    std::lock_guard lock(link_->mutex);
    if (slots_.size() < kWindow)
      StartRead(&message_);
    else
      paused_ = true;
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(link_->mutex);
    writing_ = false;
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
    if (paused_ && slots_.size() < kWindow && !reading_done_) {
      paused_ = false;
      StartRead(&message_);
    }
    if (writing_ || finished_) return;
    const auto next = std::find_if(slots_.begin(), slots_.end(), [&](const auto& s) {
      return !s->responses.empty() && (s->decoupled || s == slots_.front());
    });
    if (next != slots_.end() && !broken_) {
      current_ = std::move((*next)->responses.front());
      (*next)->responses.pop_front();
      writing_ = true;
      return StartWrite(&current_);
    }
    if (broken_ || (reading_done_ && slots_.empty())) {
      finished_ = true;
      Finish(grpc::Status::OK);
    }
  }

 private:
  void run(const std::shared_ptr<Slot>& slot) {
    auto request = std::make_unique<Request>();
    request->token = token_;
    request->streams = true;
    auto wanted = std::make_shared<bool>(false);                      // the mark of the final response
    auto outputs = std::make_shared<std::vector<RequestedOutput>>();  // filled by reading the message
    auto mapped = std::make_shared<std::vector<Blob>>();
    auto finish = [&core = core_, link = link_, slot, outputs, mapped, wanted](Response&& response,
                                                                               bool final) {
      inference::ModelStreamInferResponse m;
      const bool marker = final && response.outputs.empty() && !response.error;  // ends a decoupled request
      if (*wanted) response.parameters["triton_final_response"] = final;
      try {
        if (!response.error) core.shared_memory().store(response, *outputs, *mapped);
      } catch (const Error& e) {
        response.error = e;
      }
      if (response.error) {
        m.set_error_message(response.error->what());
        m.mutable_infer_response()->set_id(response.id);
      } else {
        write_infer_message(response, *outputs, *m.mutable_infer_response());
      }
      std::lock_guard lock(link->mutex);
      if (!marker || *wanted) slot->responses.push_back(std::move(m));
      slot->final = final;
      slot->decoupled = slot->decoupled || !final || marker;
      if (link->stream) link->stream->pump();
    };
    request->set_callback(finish);
    try {
      read_infer_message(message_, *request, core_.shared_memory());
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

  Core& core_;
  const grpc::CallbackServerContext& context_;
  const HeaderPattern& forward_;
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
  const std::shared_ptr<CancelToken> token_ = std::make_shared<CancelToken>();
  inference::ModelInferRequest message_;
  inference::ModelStreamInferResponse current_;
  std::deque<std::shared_ptr<Slot>> slots_;
  bool reading_done_ = false, paused_ = false, writing_ = false, broken_ = false, finished_ = false;
};

}  // namespace

StreamReactor* make_stream_reactor(Core& core, grpc::CallbackServerContext* context,
                                   const HeaderPattern& forward) {
  return new Stream(core, *context, forward);
}

StreamReactor* make_failed_stream(const grpc::Status& status) {
  struct Failed final : StreamReactor {
    explicit Failed(const grpc::Status& s) { Finish(s); }
    void OnDone() override { delete this; }
  };
  return new Failed(status);
}

}  // namespace pelton::serve
