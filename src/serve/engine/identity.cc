// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/identity.h"

#include <charconv>
#include <thread>

#include "base/error.h"

namespace pelton::serve {
namespace {

class IdentityInstance final : public Instance {
 public:
  IdentityInstance(const ModelConfig& config, std::chrono::milliseconds delay)
      : config_(config), delay_(delay) {}

  void execute(BatchRun& batch) override {
    batch.input_end = Clock::now();
    // Slept in short pieces, so that a single cancelled request ends its execution early.
    const auto end = batch.input_end + delay_;
    while (delay_.count() > 0 && Clock::now() < end) {
      if (batch.requests.size() == 1 && batch.requests[0]->cancelled())
        fail(ErrorCode::cancelled, "the request was cancelled", config_.name);
      std::this_thread::sleep_for(
          std::min<Clock::duration>(end - Clock::now(), std::chrono::milliseconds(5)));
    }
    for (size_t i = 0; i < batch.requests.size(); ++i) {
      for (size_t o = 0; o < config_.outputs.size(); ++o) {
        const TensorValue* in = batch.requests[i]->input(config_.inputs[o].name);
        if (!in) continue;  // an optional input that was not sent
        batch.responses[i].outputs.push_back({config_.outputs[o].name, in->dtype, in->dims, in->data});
      }
    }
    batch.infer_end = delay_.count() > 0 ? Clock::now() : batch.input_end;
  }

 private:
  const ModelConfig& config_;
  const std::chrono::milliseconds delay_;
};

class IdentityEngine final : public Engine {
 public:
  IdentityEngine(ModelConfig config, std::chrono::milliseconds delay)
      : config_(std::move(config)), delay_(delay) {}
  std::unique_ptr<Instance> make_instance(int) override {
    return std::make_unique<IdentityInstance>(config_, delay_);
  }
  bool instant() const override { return delay_.count() == 0; }

 private:
  const ModelConfig config_;
  const std::chrono::milliseconds delay_;
};

class IdentityBackend final : public Backend {
 public:
  std::shared_ptr<const void> complete(Node& config, const ModelDir&, int64_t) const override {
    if (config.has("input") || config.has("output")) return nullptr;
    Node& in = config.add_message(*config.type().find("input"));
    in.set("name", std::string("INPUT0"));
    in.set("data_type", std::string("TYPE_FP32"));
    in.add(*in.type().find("dims"), int64_t{-1});
    Node& out = config.add_message(*config.type().find("output"));
    out.set("name", std::string("OUTPUT0"));
    out.set("data_type", std::string("TYPE_FP32"));
    out.add(*out.type().find("dims"), int64_t{-1});
    return nullptr;
  }

  std::shared_ptr<Engine> load(const ModelConfig& config, const ModelDir&, int64_t,
                               std::shared_ptr<const void>) const override {
    if (config.inputs.size() < config.outputs.size())
      fail(ErrorCode::bad_format,
           cat("identity model with ", config.outputs.size(), " outputs has only ", config.inputs.size(),
               " inputs"),
           config.name);
    for (size_t i = 0; i < config.outputs.size(); ++i)
      if (config.inputs[i].dtype != config.outputs[i].dtype)
        fail(ErrorCode::bad_type,
             cat("identity output '", config.outputs[i].name, "' is ", wire_name(config.outputs[i].dtype),
                 ", its input '", config.inputs[i].name, "' is ", wire_name(config.inputs[i].dtype)),
             config.name);
    int delay = 0;
    if (auto p = config.parameters.find("execute_delay_ms"); p != config.parameters.end()) {
      auto r = std::from_chars(p->second.data(), p->second.data() + p->second.size(), delay);
      if (r.ec != std::errc() || r.ptr != p->second.data() + p->second.size() || delay < 0 || delay > 600000)
        fail(ErrorCode::bad_format,
             cat("parameter execute_delay_ms '", p->second, "' is not an integer from 0 to 600000"),
             config.name);
    }
    return std::make_shared<IdentityEngine>(config, std::chrono::milliseconds(delay));
  }
};

}  // namespace

std::shared_ptr<const Backend> make_identity_backend() {
  return std::make_shared<IdentityBackend>();
}

}  // namespace pelton::serve
