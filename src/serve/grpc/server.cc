// SPDX-License-Identifier: Apache-2.0
#include "serve/grpc/server.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <cctype>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "grpc_service.grpc.pb.h"
#include "serve/grpc/connections.h"
#include "serve/grpc/convert.h"
#include "serve/grpc/infer_call.h"
#include "serve/grpc/stream.h"

namespace pelton::serve {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::Status;
namespace pb = inference;
using Group = EndpointGroup;

struct Denied {
  std::string why;
};

// Throws when the group wants a key that the call does not bring.
void check_access(const AccessRules& rules, EndpointGroup group, const CallbackServerContext& context) {
  if (!rules.restricted(group)) return;
  std::string key = "triton-grpc-protocol-";
  for (char c : rules.key_header(group))
    key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool allowed = rules.allows(group, [&](const std::string&) {
    const auto it = context.client_metadata().find(key);
    return it == context.client_metadata().end() ? std::string_view()
                                                 : std::string_view(it->second.data(), it->second.size());
  });
  if (!allowed) throw Denied{cat("the ", to_string(group), " calls want a key in metadata '", key, "'")};
}

// Runs `f` and finishes the call with its outcome.
template <class F>
ServerUnaryReactor* answer(CallbackServerContext* context, F&& f) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  try {
    f();
    reactor->Finish(Status::OK);
  } catch (const Denied& d) {
    reactor->Finish(Status(grpc::StatusCode::PERMISSION_DENIED, d.why));
  } catch (const Error& e) {
    reactor->Finish(grpc_status(e));
  } catch (const std::exception& e) {
    reactor->Finish(Status(grpc::StatusCode::INTERNAL, e.what()));
  }
  return reactor;
}

// The core's JSON uses the messages' field names.
void fill(google::protobuf::Message& message, const std::string& json) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message, options);
  if (!status.ok())
    fail(ErrorCode::internal,
         cat("cannot express ", message.GetTypeName(), ": ", std::string(status.message())));
}

// A service whose methods are those of the mixins.
template <class Base, template <class> class... Mixins>
struct Mixed {
  using Type = Base;
};
template <class Base, template <class> class First, template <class> class... Rest>
struct Mixed<Base, First, Rest...> {
  using Type = First<typename Mixed<Base, Rest...>::Type>;
};
using S = pb::GRPCInferenceService;
// The two calls that carry tensors take and give bytes: answer.h says why.
using Calls =
    Mixed<S::Service, S::WithRawCallbackMethod_ModelInfer, S::WithRawCallbackMethod_ModelStreamInfer,
          S::WithCallbackMethod_ServerLive, S::WithCallbackMethod_ServerReady,
          S::WithCallbackMethod_ModelReady, S::WithCallbackMethod_ServerMetadata,
          S::WithCallbackMethod_ModelMetadata, S::WithCallbackMethod_ModelConfig,
          S::WithCallbackMethod_ModelStatistics, S::WithCallbackMethod_RepositoryIndex,
          S::WithCallbackMethod_RepositoryModelLoad, S::WithCallbackMethod_RepositoryModelUnload,
          S::WithCallbackMethod_SystemSharedMemoryStatus, S::WithCallbackMethod_SystemSharedMemoryRegister,
          S::WithCallbackMethod_SystemSharedMemoryUnregister, S::WithCallbackMethod_CudaSharedMemoryStatus,
          S::WithCallbackMethod_CudaSharedMemoryRegister, S::WithCallbackMethod_CudaSharedMemoryUnregister,
          S::WithCallbackMethod_TraceSetting, S::WithCallbackMethod_LogSettings>::Type;

class Service final : public Calls {
 public:
  Service(Core& core, const GrpcOptions& options) : core_(core), options_(options) {}

  ServerUnaryReactor* ServerLive(CallbackServerContext* c, const pb::ServerLiveRequest*,
                                 pb::ServerLiveResponse* out) override {
    return answer(Group::health, c, [&] { out->set_live(core_.live()); });
  }
  ServerUnaryReactor* ServerReady(CallbackServerContext* c, const pb::ServerReadyRequest*,
                                  pb::ServerReadyResponse* out) override {
    return answer(Group::health, c, [&] { out->set_ready(core_.ready()); });
  }
  ServerUnaryReactor* ModelReady(CallbackServerContext* c, const pb::ModelReadyRequest* in,
                                 pb::ModelReadyResponse* out) override {
    return answer(Group::health, c, [&] {
      out->set_ready(core_.repository().ready(in->name(), in->version()) && !core_.draining());
    });
  }
  ServerUnaryReactor* ServerMetadata(CallbackServerContext* c, const pb::ServerMetadataRequest*,
                                     pb::ServerMetadataResponse* out) override {
    return answer(Group::metadata, c, [&] { fill(*out, core_.server_metadata_json()); });
  }
  ServerUnaryReactor* ModelMetadata(CallbackServerContext* c, const pb::ModelMetadataRequest* in,
                                    pb::ModelMetadataResponse* out) override {
    return answer(Group::metadata, c,
                  [&] { fill(*out, core_.model_metadata_json(in->name(), in->version())); });
  }
  ServerUnaryReactor* ModelInfer(CallbackServerContext* c, const grpc::ByteBuffer* in,
                                 grpc::ByteBuffer* out) override {
    if (auto* refused = denied(Group::inference, c)) return refused;
    // The message belongs to this call.
    return make_infer_call(core_, c, const_cast<grpc::ByteBuffer&>(*in), *out, options_.forward,
                           options_.stall_timeout);
  }
  StreamReactor* ModelStreamInfer(CallbackServerContext* c) override {
    try {
      check_access(options_.access, Group::inference, *c);
    } catch (const Denied& d) {
      return make_failed_stream(Status(grpc::StatusCode::PERMISSION_DENIED, d.why));
    }
    return make_stream_reactor(core_, c, options_.forward, options_.stall_timeout);
  }
  ServerUnaryReactor* ModelConfig(CallbackServerContext* c, const pb::ModelConfigRequest* in,
                                  pb::ModelConfigResponse* out) override {
    return answer(Group::model_config, c, [&] {
      if (!out->mutable_config()->ParseFromString(core_.model_config_wire(in->name(), in->version())))
        fail(ErrorCode::internal, "the configuration's wire form does not parse", in->name());
    });
  }
  ServerUnaryReactor* ModelStatistics(CallbackServerContext* c, const pb::ModelStatisticsRequest* in,
                                      pb::ModelStatisticsResponse* out) override {
    return answer(Group::statistics, c,
                  [&] { fill(*out, core_.statistics_json(in->name(), in->version())); });
  }
  ServerUnaryReactor* RepositoryIndex(CallbackServerContext* c, const pb::RepositoryIndexRequest* in,
                                      pb::RepositoryIndexResponse* out) override {
    return answer(Group::model_repository, c,
                  [&] { fill(*out, cat("{\"models\":", core_.index_json(in->ready()), "}")); });
  }
  ServerUnaryReactor* RepositoryModelLoad(CallbackServerContext* c, const pb::RepositoryModelLoadRequest* in,
                                          pb::RepositoryModelLoadResponse*) override {
    if (auto* refused = denied(Group::model_repository, c)) return refused;
    LoadOverride changes;
    Error problem(ErrorCode::usage, "");
    bool bad = false;
    for (const auto& [name, p] : in->parameters()) {
      if (name == "config" && p.parameter_choice_case() == pb::ModelRepositoryParameter::kStringParam)
        changes.config_json = p.string_param();
      else if (name.starts_with("file:") &&
               p.parameter_choice_case() == pb::ModelRepositoryParameter::kBytesParam)
        changes.files[name.substr(5)] = p.bytes_param();
      else
        problem = Error(ErrorCode::bad_format, cat("unknown parameter '", name, "', or its type is wrong")),
        bad = true;
    }
    return later(c, [this, name = in->model_name(), changes = std::move(changes), bad, problem] {
      if (bad) throw problem;
      core_.repository().load(name, changes);
    });
  }
  ServerUnaryReactor* RepositoryModelUnload(CallbackServerContext* c,
                                            const pb::RepositoryModelUnloadRequest* in,
                                            pb::RepositoryModelUnloadResponse*) override {
    if (auto* refused = denied(Group::model_repository, c)) return refused;
    bool dependents = false;
    if (auto p = in->parameters().find("unload_dependents"); p != in->parameters().end())
      dependents = p->second.bool_param();
    return later(
        c, [this, name = in->model_name(), dependents] { core_.repository().unload(name, dependents); });
  }
  ServerUnaryReactor* TraceSetting(CallbackServerContext* c, const pb::TraceSettingRequest* in,
                                   pb::TraceSettingResponse* out) override {
    return answer(Group::trace, c, [&] {
      std::string changes;
      for (const auto& [name, value] : in->settings()) {
        changes += cat(changes.empty() ? "{" : ",", json_string(name), ":");
        if (value.value_size() == 0)
          changes += "null";
        else if (name != "trace_level")
          changes += json_string(value.value(0));
        else {
          std::string list;
          for (const std::string& v : value.value()) list += cat(list.empty() ? "" : ",", json_string(v));
          changes += cat("[", list, "]");
        }
      }
      const auto now = nlohmann::json::parse(
          core_.trace_settings_json(in->model_name(), changes.empty() ? "" : changes + "}"));
      for (const auto& [name, value] : now.items()) {
        auto& setting = (*out->mutable_settings())[name];
        if (value.is_array())
          for (const auto& v : value) setting.add_value(v.get<std::string>());
        else
          setting.add_value(value.get<std::string>());
      }
    });
  }
  ServerUnaryReactor* LogSettings(CallbackServerContext* c, const pb::LogSettingsRequest* in,
                                  pb::LogSettingsResponse* out) override {
    return answer(Group::logging, c, [&] {
      std::string changes;
      for (const auto& [name, v] : in->settings()) {
        changes += cat(changes.empty() ? "{" : ",", json_string(name), ":");
        if (v.parameter_choice_case() == pb::LogSettingsRequest::SettingValue::kBoolParam)
          append(changes, v.bool_param());
        else if (v.parameter_choice_case() == pb::LogSettingsRequest::SettingValue::kUint32Param)
          append(changes, v.uint32_param());
        else
          changes += json_string(v.string_param());
      }
      const std::string now = core_.log_settings_json(changes.empty() ? "" : changes + "}");
      auto& settings = *out->mutable_settings();
      auto flag = [&](const char* name) {
        settings[name].set_bool_param(now.find(cat("\"", name, "\":true")) != now.npos);
      };
      flag("log_info");
      flag("log_warning");
      flag("log_error");
      const size_t at = now.find("\"log_verbose_level\":");
      settings["log_verbose_level"].set_uint32_param(
          at == now.npos ? 0u : static_cast<uint32_t>(std::strtoul(now.c_str() + at + 20, nullptr, 10)));
      settings["log_file"].set_string_param(nlohmann::json::parse(now).at("log_file").get<std::string>());
      settings["log_format"].set_string_param("ISO8601");
    });
  }

  ServerUnaryReactor* SystemSharedMemoryStatus(CallbackServerContext* c,
                                               const pb::SystemSharedMemoryStatusRequest* in,
                                               pb::SystemSharedMemoryStatusResponse* out) override {
    return answer(Group::shared_memory, c, [&] {
      for (const auto& r : core_.shared_memory().list(in->name(), false)) {
        auto& status = (*out->mutable_regions())[r->name];
        status.set_name(r->name);
        status.set_key(r->key);
        status.set_offset(r->offset);
        status.set_byte_size(r->size);
      }
    });
  }
  ServerUnaryReactor* SystemSharedMemoryRegister(CallbackServerContext* c,
                                                 const pb::SystemSharedMemoryRegisterRequest* in,
                                                 pb::SystemSharedMemoryRegisterResponse*) override {
    return answer(Group::shared_memory, c,
                  [&] { core_.shared_memory().add(in->name(), in->key(), in->offset(), in->byte_size()); });
  }
  ServerUnaryReactor* SystemSharedMemoryUnregister(CallbackServerContext* c,
                                                   const pb::SystemSharedMemoryUnregisterRequest* in,
                                                   pb::SystemSharedMemoryUnregisterResponse*) override {
    return answer(Group::shared_memory, c, [&] { unregister(in->name(), false); });
  }
  ServerUnaryReactor* CudaSharedMemoryStatus(CallbackServerContext* c,
                                             const pb::CudaSharedMemoryStatusRequest* in,
                                             pb::CudaSharedMemoryStatusResponse* out) override {
    return answer(Group::shared_memory, c, [&] {
      for (const auto& r : core_.shared_memory().list(in->name(), true)) {
        auto& status = (*out->mutable_regions())[r->name];
        status.set_name(r->name);
        status.set_device_id(static_cast<uint64_t>(r->device));
        status.set_byte_size(r->size);
      }
    });
  }
  ServerUnaryReactor* CudaSharedMemoryRegister(CallbackServerContext* c,
                                               const pb::CudaSharedMemoryRegisterRequest* in,
                                               pb::CudaSharedMemoryRegisterResponse*) override {
    return answer(Group::shared_memory, c, [&] {
      core_.shared_memory().add_gpu(in->name(), in->raw_handle(), in->device_id(), in->byte_size());
    });
  }
  ServerUnaryReactor* CudaSharedMemoryUnregister(CallbackServerContext* c,
                                                 const pb::CudaSharedMemoryUnregisterRequest* in,
                                                 pb::CudaSharedMemoryUnregisterResponse*) override {
    return answer(Group::shared_memory, c, [&] { unregister(in->name(), true); });
  }

 private:
  void unregister(const std::string& name, bool of_gpus) {
    name.empty() ? core_.shared_memory().remove_all(of_gpus) : core_.shared_memory().remove(name, of_gpus);
  }

  template <class F>
  ServerUnaryReactor* answer(Group group, CallbackServerContext* c, F&& f) {
    return serve::answer(c, [&] {
      check_access(options_.access, group, *c);
      f();
    });
  }
  // A finished call if the group wants a key that is missing, else null.
  ServerUnaryReactor* denied(Group group, CallbackServerContext* c) {
    try {
      check_access(options_.access, group, *c);
      return nullptr;
    } catch (const Denied& d) {
      ServerUnaryReactor* reactor = c->DefaultReactor();
      reactor->Finish(Status(grpc::StatusCode::PERMISSION_DENIED, d.why));
      return reactor;
    }
  }
  // Runs `f` on the management threads.
  ServerUnaryReactor* later(CallbackServerContext* context, std::function<void()> f) {
    ServerUnaryReactor* reactor = context->DefaultReactor();
    const bool taken = core_.admin().try_post([reactor, f = std::move(f)] {
      try {
        f();
        reactor->Finish(Status::OK);
      } catch (const Error& e) {
        reactor->Finish(grpc_status(e));
      } catch (const std::exception& e) {
        reactor->Finish(Status(grpc::StatusCode::INTERNAL, e.what()));
      }
    });
    if (!taken) reactor->Finish(Status(grpc::StatusCode::UNAVAILABLE, "too many management requests wait"));
    return reactor;
  }

  Core& core_;
  const GrpcOptions options_;
};

std::shared_ptr<grpc::ServerCredentials> credentials(const TlsOptions& o) {
  if (!o.on) return grpc::InsecureServerCredentials();
  const TlsTexts texts = read_tls_texts(o);
  grpc::SslServerCredentialsOptions options(o.mutual
                                                ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                                : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_key_cert_pairs.push_back({texts.key, texts.cert});
  options.pem_root_certs = texts.root;
  return grpc::SslServerCredentials(options);
}

class Server final : public GrpcServer {
 public:
  Server(Core& core, const GrpcOptions& o)
      : service_(core, o), connections_(open_listener(o.address, o.port, o.reuse_port), o.max_connections) {
    // Neither of the two can ask for a key, so they are off where one is wanted.
    grpc::EnableDefaultHealthCheckService(!o.access.restricted(Group::health));
    if (!o.access.restricted(Group::metadata)) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    auto connections = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials(o.tls));
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(o.max_message_bytes));
    builder.SetMaxSendMessageSize(-1);
    builder.SetResourceQuota(grpc::ResourceQuota("pelton").Resize(o.quota_bytes));
    for (const auto& [name, value] : o.arguments) builder.AddChannelArgument(name, value);
    if (o.compression) builder.SetDefaultCompressionLevel(static_cast<grpc_compression_level>(o.compression));
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               static_cast<int>(o.header_timeout.count()));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, static_cast<int>(o.idle_timeout.count()));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1024);
    server_ = builder.BuildAndStart();
    if (!server_) fail(ErrorCode::io, "cannot start gRPC", connections_.endpoint());
    connections_.start(std::move(connections));
    set_serving(false);
  }
  ~Server() override { stop(); }

  std::string endpoint() const override { return connections_.endpoint(); }
  void set_serving(bool ready) override {
    if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(ready);
  }
  void drain(double seconds) override {
    if (closer_.joinable()) return;
    set_serving(false);
    const auto deadline =
        std::chrono::system_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
    connections_.stop();
    closer_ = std::thread([this, deadline] {
      server_->Shutdown(deadline);
      drained_ = true;
    });
  }
  bool drained() const override { return drained_; }
  void stop() override {
    drain(0);
    if (closer_.joinable()) closer_.join();
  }

 private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  GrpcConnections connections_;
  std::thread closer_;
  std::atomic<bool> drained_{false};
};

}  // namespace

bool grpc_available() {
  return true;
}

std::unique_ptr<GrpcServer> make_grpc_server(Core& core, const GrpcOptions& options) {
  return std::make_unique<Server>(core, options);
}

}  // namespace pelton::serve
