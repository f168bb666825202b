// SPDX-License-Identifier: Apache-2.0
// The floor under the server's gRPC front end: the same library and messages, one method that hands the
// tensor data back without looking at it, and what the load generator asks before it begins.
//   bare_grpc_echo PORT
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <string>

#include "grpc_service.grpc.pb.h"

namespace {

class Echo final : public inference::GRPCInferenceService::CallbackService {
 public:
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context,
                                          const inference::ModelMetadataRequest*,
                                          inference::ModelMetadataResponse* out) override {
    out->set_name("id");
    out->add_versions("1");
    auto& in = *out->add_inputs();
    in.set_name("INPUT0");
    in.set_datatype("FP32");
    in.add_shape(-1);
    auto& result = *out->add_outputs();
    result = in;
    result.set_name("OUTPUT0");
    return done(context);
  }
  grpc::ServerUnaryReactor* ModelConfig(grpc::CallbackServerContext* context,
                                        const inference::ModelConfigRequest*,
                                        inference::ModelConfigResponse* out) override {
    out->mutable_config()->set_name("id");
    return done(context);
  }
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const inference::ModelInferRequest* in,
                                       inference::ModelInferResponse* out) override {
    out->set_model_name("id");
    out->set_model_version("1");
    auto& result = *out->add_outputs();
    result.set_name("OUTPUT0");
    result.set_datatype("FP32");
    for (int64_t d : in->inputs(0).shape()) result.add_shape(d);
    // The message belongs to this call.
    out->add_raw_output_contents(
        std::move(*const_cast<inference::ModelInferRequest*>(in)->mutable_raw_input_contents(0)));
    return done(context);
  }

 private:
  static grpc::ServerUnaryReactor* done(grpc::CallbackServerContext* context) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

int main(int argc, char** argv) {
  Echo echo;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(std::string("127.0.0.1:") + (argc > 1 ? argv[1] : "0"),
                           grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(&echo);
  const auto server = builder.BuildAndStart();
  std::printf("ready: grpc 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
}
