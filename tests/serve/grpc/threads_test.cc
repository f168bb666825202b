// SPDX-License-Identifier: Apache-2.0
// The gRPC front end with many clients at once: calls, streams, calls that are given up, models loaded anew.
#include <doctest/doctest.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <thread>

#include "grpc_service.grpc.pb.h"
#include "serve/core/fixture.h"
#include "serve/grpc/server.h"

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

}  // namespace

TEST_CASE(
    "many gRPC clients, streams, reloads and calls that are given up: every answer belongs to its request") {
  TestServer s;
  s.folder.model("m", io("max_batch_size: 4 dynamic_batching { } instance_group { count: 2 }", "1"));
  RepositoryOptions r;
  r.mode = ControlMode::explicit_control;
  r.load_models = {"m"};
  REQUIRE(s.start(r).empty());
  GrpcOptions o;
  o.port = 0;
  auto server = make_grpc_server(*s.core, o);
  auto stub = [&] {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return pb::GRPCInferenceService::NewStub(
        grpc::CreateCustomChannel(server->endpoint(), grpc::InsecureChannelCredentials(), arguments));
  };

  std::atomic<bool> stop{false};
  std::atomic<int> right{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 2; ++k)
    threads.emplace_back([&, k] {
      auto client = stub();
      for (int i = 0; i < 100; ++i) {
        grpc::ClientContext context;
        pb::ModelInferResponse answer;
        const auto status = client->ModelInfer(&context, request(k * 1000 + i), &answer);
        ++(status.ok() && answers(answer, k * 1000 + i) ? right : wrong);
      }
    });
  threads.emplace_back([&] {
    auto client = stub();
    grpc::ClientContext context;
    auto stream = client->ModelStreamInfer(&context);
    std::thread writer([&] {
      for (int i = 0; i < 100; ++i) stream->Write(request(5000 + i));
      stream->WritesDone();
    });
    pb::ModelStreamInferResponse answer;
    for (int i = 0; stream->Read(&answer); ++i)
      ++(answer.error_message().empty() && answers(answer.infer_response(), 5000 + i) ? right : wrong);
    writer.join();
    if (!stream->Finish().ok()) ++wrong;
  });
  threads.emplace_back([&] {
    auto client = stub();
    for (int i = 0; !stop; ++i) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(i % 7 * 100));
      pb::ModelInferResponse answer;
      const auto status = client->ModelInfer(&context, request(i), &answer);
      if (status.ok() && !answers(answer, i)) ++wrong;
    }
  });
  threads.emplace_back([&] {
    auto client = stub();
    while (!stop) {
      grpc::ClientContext load_context, statistics_context;
      pb::RepositoryModelLoadRequest load;
      load.set_model_name("m");
      pb::RepositoryModelLoadResponse loaded;
      if (!client->RepositoryModelLoad(&load_context, load, &loaded).ok()) ++wrong;
      pb::ModelStatisticsResponse statistics;
      if (!client->ModelStatistics(&statistics_context, {}, &statistics).ok()) ++wrong;
    }
  });
  for (int k = 0; k < 3; ++k) threads[static_cast<size_t>(k)].join();
  stop = true;
  for (size_t k = 3; k < threads.size(); ++k) threads[k].join();
  CHECK(right == 300);
  CHECK(wrong == 0);
  s.core->set_draining();
  server->drain(5);
  s.core->stop();
  server->stop();
  CHECK(server->drained());
}

}  // namespace pelton::serve::test
