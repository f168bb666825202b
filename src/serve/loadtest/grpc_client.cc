// SPDX-License-Identifier: Apache-2.0
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "grpc_service.grpc.pb.h"
#include "serve/loadtest/client.h"
#include "serve/loadtest/region.h"

namespace pelton::serve {
namespace {

namespace pb = inference;

class GrpcClient final : public LoadClient {
 public:
  GrpcClient(const Endpoint& endpoint, double timeout_s) : timeout_(static_cast<int64_t>(timeout_s * 1e3)) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    stub_ = pb::GRPCInferenceService::NewStub(
        grpc::CreateCustomChannel(endpoint.authority(), grpc::InsecureChannelCredentials(), arguments));
  }
  ~GrpcClient() override {
    if (stream_) {
      stream_context_->TryCancel();
      end_stream();
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
    if (!region_) return;
    pb::SystemSharedMemoryUnregisterRequest ask;
    ask.set_name(region_->name());
    pb::SystemSharedMemoryUnregisterResponse answer;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    stub_->SystemSharedMemoryUnregister(&context, ask, &answer);
  }

  TargetModel describe(const LoadOptions& o) override {
    pb::ModelMetadataRequest ask;
    ask.set_name(o.model);
    ask.set_version(o.version);
    pb::ModelMetadataResponse meta;
    check([&](grpc::ClientContext& c) { return stub_->ModelMetadata(&c, ask, &meta); });
    pb::ModelConfigRequest ask_config;
    ask_config.set_name(o.model);
    ask_config.set_version(o.version);
    pb::ModelConfigResponse config;
    check([&](grpc::ClientContext& c) { return stub_->ModelConfig(&c, ask_config, &config); });
    TargetModel m;
    m.version = meta.versions_size() ? meta.versions(0) : "";
    m.batches = config.config().max_batch_size() > 0;
    m.decoupled = config.config().model_transaction_policy().decoupled();
    for (const auto& in : meta.inputs()) {
      const auto dtype = dtype_from_wire(in.datatype());
      if (!dtype) fail(ErrorCode::bad_type, cat("input '", in.name(), "' has an unknown type"), o.model);
      m.inputs.push_back({in.name(), *dtype, Dims(in.shape().begin(), in.shape().end())});
    }
    for (const auto& out : meta.outputs()) m.outputs.push_back(out.name());
    return m;
  }

  void prepare(const LoadOptions& o, const TargetModel& model,
               const std::vector<TensorValue>& inputs) override {
    request_.Clear();
    request_.set_model_name(o.model);
    request_.set_model_version(o.version);
    for (const TensorValue& t : inputs) {
      auto& in = *request_.add_inputs();
      in.set_name(t.name);
      in.set_datatype(std::string(wire_name(t.dtype)));
      for (int64_t d : t.dims) in.add_shape(d);
      if (!o.shared_memory) request_.add_raw_input_contents(t.data.data, t.data.size);
    }
    if (o.shared_memory) use_region(o, model, inputs);
    streaming_ = o.streaming;
    decoupled_ = model.decoupled;
    if (streaming_ && decoupled_)
      (*request_.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
  }

  std::string infer(const SequenceMark& mark) override {
    if (mark.id) {
      auto& p = *request_.mutable_parameters();
      p["sequence_id"].set_uint64_param(mark.id);
      p["sequence_start"].set_bool_param(mark.start);
      p["sequence_end"].set_bool_param(mark.end);
    }
    if (streaming_) return exchange();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout_);
    pb::ModelInferResponse answer;
    const grpc::Status status = stub_->ModelInfer(&context, request_, &answer);
    return status.ok() ? "" : text(status);
  }

 private:
  static std::string text(const grpc::Status& s) {
    return cat("gRPC ", static_cast<int>(s.error_code()), ": ", s.error_message());
  }

  // One request of the stream, with all of its responses. A stream that has broken is begun anew next time.
  std::string exchange() {
    const auto until = std::chrono::system_clock::now() + timeout_;
    if (!stream_) {
      stream_context_.emplace();
      stream_ = stub_->PrepareAsyncModelStreamInfer(&*stream_context_, &queue_);
      stream_->StartCall(this);
      if (!done(until)) return end_stream();
    }
    stream_->Write(request_, this);
    if (!done(until)) return end_stream();
    for (std::string error;;) {
      pb::ModelStreamInferResponse answer;
      stream_->Read(&answer, this);
      if (!done(until)) return end_stream();
      if (error.empty()) error = answer.error_message();
      const auto& parameters = answer.infer_response().parameters();
      const auto mark = parameters.find("triton_final_response");
      const bool more = decoupled_ && (mark != parameters.end() ? !mark->second.bool_param() : error.empty());
      if (!more) return error;
    }
  }

  // The end of the step that the stream has begun; false if it failed or took too long.
  bool done(std::chrono::system_clock::time_point until) {
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, until) == grpc::CompletionQueue::GOT_EVENT) return ok;
    stream_context_->TryCancel();
    queue_.Next(&tag, &ok);
    timed_out_ = true;
    return false;
  }

  std::string end_stream() {
    grpc::Status status;
    stream_->Finish(&status, this);
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    stream_.reset();
    const bool late = std::exchange(timed_out_, false);
    if (late) return "the stream gave no answer in time";
    return status.ok() ? "the server ended the stream" : text(status);
  }

  void use_region(const LoadOptions& o, const TargetModel& model, const std::vector<TensorValue>& inputs) {
    size_t size = 0;
    for (const TensorValue& t : inputs) size += region_step(t.data.size);
    size += region_step(o.output_bytes) * model.outputs.size();
    region_ = std::make_unique<LoadRegion>(size);
    size_t at = 0;
    auto place = [&](auto& parameters, size_t bytes) {
      parameters["shared_memory_region"].set_string_param(region_->name());
      parameters["shared_memory_byte_size"].set_int64_param(static_cast<int64_t>(bytes));
      if (at) parameters["shared_memory_offset"].set_int64_param(static_cast<int64_t>(at));
      at += region_step(bytes);
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::memcpy(region_->data() + at, inputs[i].data.data, inputs[i].data.size);
      place(*request_.mutable_inputs(static_cast<int>(i))->mutable_parameters(), inputs[i].data.size);
    }
    for (const std::string& name : model.outputs) {
      auto& out = *request_.add_outputs();
      out.set_name(name);
      place(*out.mutable_parameters(), o.output_bytes);
    }
    pb::SystemSharedMemoryRegisterRequest ask;
    ask.set_name(region_->name());
    ask.set_key(region_->key());
    ask.set_byte_size(size);
    pb::SystemSharedMemoryRegisterResponse answer;
    check([&](grpc::ClientContext& c) { return stub_->SystemSharedMemoryRegister(&c, ask, &answer); });
  }

  template <class F>
  void check(F&& f) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    const grpc::Status status = f(context);
    if (!status.ok())
      fail(status.error_code() == grpc::StatusCode::NOT_FOUND ? ErrorCode::not_found : ErrorCode::io,
           status.error_message());
  }

  std::unique_ptr<pb::GRPCInferenceService::Stub> stub_;
  pb::ModelInferRequest request_;
  std::unique_ptr<LoadRegion> region_;
  const std::chrono::milliseconds timeout_;
  bool streaming_ = false, decoupled_ = false, timed_out_ = false;
  grpc::CompletionQueue queue_;  // of the stream
  std::optional<grpc::ClientContext> stream_context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<pb::ModelInferRequest, pb::ModelStreamInferResponse>> stream_;
};

}  // namespace

std::unique_ptr<LoadClient> make_grpc_client(const Endpoint& endpoint, double timeout_s) {
  return std::make_unique<GrpcClient>(endpoint, timeout_s);
}

}  // namespace pelton::serve
