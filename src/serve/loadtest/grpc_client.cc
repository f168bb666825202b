// SPDX-License-Identifier: Apache-2.0
#include <grpcpp/grpcpp.h>

#include <cstring>

#include "base/error.h"
#include "grpc_service.grpc.pb.h"
#include "serve/loadtest/client.h"
#include "serve/loadtest/region.h"

namespace pelton::serve {
namespace {

namespace pb = inference;

class GrpcClient final : public LoadClient {
 public:
  GrpcClient(const std::string& host, uint16_t port) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    stub_ = pb::GRPCInferenceService::NewStub(
        grpc::CreateCustomChannel(cat(host, ":", port), grpc::InsecureChannelCredentials(), arguments));
  }
  ~GrpcClient() override {
    if (stream_) {
      stream_->WritesDone();
      stream_context_.TryCancel();
      stream_->Finish();
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
    if (o.streaming) stream_ = stub_->ModelStreamInfer(&stream_context_);
  }

  std::string infer(const SequenceMark& mark) override {
    if (mark.id) {
      auto& p = *request_.mutable_parameters();
      p["sequence_id"].set_uint64_param(mark.id);
      p["sequence_start"].set_bool_param(mark.start);
      p["sequence_end"].set_bool_param(mark.end);
    }
    if (stream_) {
      pb::ModelStreamInferResponse answer;
      if (!stream_->Write(request_) || !stream_->Read(&answer)) return "the stream broke";
      return answer.error_message();
    }
    grpc::ClientContext context;
    pb::ModelInferResponse answer;
    const grpc::Status status = stub_->ModelInfer(&context, request_, &answer);
    return status.ok() ? ""
                       : cat("gRPC ", static_cast<int>(status.error_code()), ": ", status.error_message());
  }

 private:
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
  grpc::ClientContext stream_context_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::ModelInferRequest, pb::ModelStreamInferResponse>> stream_;
};

}  // namespace

std::unique_ptr<LoadClient> make_grpc_client(const std::string& host, uint16_t port) {
  return std::make_unique<GrpcClient>(host, port);
}

}  // namespace pelton::serve
