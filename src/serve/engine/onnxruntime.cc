// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/onnxruntime.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "serve/engine/onnxruntime_api.h"

namespace pelton::serve {
namespace {

using Library = std::shared_ptr<const OrtLibrary>;
using L = OrtLibrary;
using Handle = OrtLibrary::Handle;

struct Port {
  std::string name;
  OrtLibrary::Info info;
};

// The library's number for optimization.graph.level.
int library_level(int64_t level) {
  switch (level) {
    case -1:
      return 1;  // basic
    case 0:
      return 99;  // everything
    case 1:
      return 2;  // extended
    case 2:
      return 0;  // nothing
    default:
      fail(ErrorCode::bad_format, cat("optimization.graph.level ", level, " is none of -1, 0, 1 and 2"));
  }
}

class Session {
 public:
  Session(Library library, const std::string& path, const std::map<std::string, std::string>& parameters,
          int64_t level)
      : library_(std::move(library)) {
    Handle options = nullptr, session = nullptr;
    library_->call(L::kCreateSessionOptions, &options);
    const auto kept = library_->own(options, L::kReleaseSessionOptions);
    library_->call(L::kSetSessionGraphOptimizationLevel, options, library_level(level));
    for (const auto& [name, place] : {std::pair{"intra_op_thread_count", L::kSetIntraOpNumThreads},
                                      std::pair{"inter_op_thread_count", L::kSetInterOpNumThreads}})
      if (const auto it = parameters.find(name); it != parameters.end()) {
        int threads = 0;
        const auto& text = it->second;
        const auto r = std::from_chars(text.data(), text.data() + text.size(), threads);
        if (r.ec != std::errc() || r.ptr != text.data() + text.size() || threads < 0)
          fail(ErrorCode::bad_format, cat("parameter ", name, " is '", text, "', not a number of threads"));
        library_->call(place, options, threads);
      }
    library_->call(L::kCreateSession, library_->environment(), path.c_str(), options, &session);
    session_ = library_->own(session, L::kReleaseSession);
    inputs = ports(L::kSessionGetInputCount, L::kSessionGetInputName, L::kSessionGetInputTypeInfo);
    outputs = ports(L::kSessionGetOutputCount, L::kSessionGetOutputName, L::kSessionGetOutputTypeInfo);
  }

  // Values of all outputs, in their order.
  std::vector<std::shared_ptr<void>> run(const std::vector<std::shared_ptr<void>>& given) const {
    std::vector<const char*> in, out;
    std::vector<Handle> values, results(outputs.size(), nullptr);
    for (const Port& p : inputs) in.push_back(p.name.c_str());
    for (const Port& p : outputs) out.push_back(p.name.c_str());
    for (const auto& v : given) values.push_back(v.get());
    library_->call(L::kRun, session_.get(), static_cast<Handle>(nullptr), in.data(), values.data(),
                   values.size(), out.data(), out.size(), results.data());
    std::vector<std::shared_ptr<void>> kept;
    for (Handle h : results) kept.push_back(library_->own(h, L::kReleaseValue));
    return kept;
  }

  const OrtLibrary& library() const { return *library_; }
  std::vector<Port> inputs, outputs;

 private:
  std::vector<Port> ports(L::Place count_at, L::Place name_at, L::Place type_at) const {
    size_t count = 0;
    library_->call(count_at, session_.get(), &count);
    std::vector<Port> out;
    for (size_t i = 0; i < count; ++i) {
      char* text = nullptr;
      library_->call(name_at, session_.get(), i, library_->allocator(), &text);
      const std::string name = text;
      library_->call(L::kAllocatorFree, library_->allocator(), static_cast<void*>(text));
      Handle type = nullptr, tensor = nullptr;
      library_->call(type_at, session_.get(), i, &type);
      const auto kept = library_->own(type, L::kReleaseTypeInfo);
      library_->call(L::kCastTypeInfoToTensorInfo, type, &tensor);
      if (!tensor)
        fail(ErrorCode::unsupported_op, cat("'", name, "' is no tensor, only tensors can be served"));
      out.push_back({name, library_->info(tensor, name)});
    }
    return out;
  }

  const Library library_;
  std::shared_ptr<void> session_;
};

class OrtInstance final : public TensorInstance {
 public:
  OrtInstance(const ModelConfig& config, std::shared_ptr<const Session> session)
      : TensorInstance(config), session_(std::move(session)), library_(session_->library()) {}

 private:
  std::vector<TensorValue> run(const std::vector<TensorValue>& given, const CancelToken*) override {
    std::vector<std::shared_ptr<void>> values;
    for (const Port& port : session_->inputs) {
      const auto it =
          std::find_if(given.begin(), given.end(), [&](const auto& t) { return t.name == port.name; });
      if (it == given.end()) fail(ErrorCode::bad_name, cat("input '", port.name, "' is missing"));
      values.push_back(value(*it));
    }
    const auto results = session_->run(values);
    std::vector<TensorValue> out;
    for (size_t i = 0; i < results.size(); ++i) out.push_back(tensor(session_->outputs[i].name, results[i]));
    return out;
  }

  std::shared_ptr<void> value(const TensorValue& t) const {
    Handle v = nullptr;
    if (t.dtype == DType::string) {
      library_.call(L::kCreateTensorAsOrtValue, library_.allocator(), t.dims.data(), t.dims.size(),
                    OrtLibrary::element_type(t.dtype), &v);
      auto kept = library_.own(v, L::kReleaseValue);
      std::vector<std::string> texts;  // they end with a zero
      for (std::string_view s : split_bytes(t.data.data, t.data.size)) {
        if (s.find('\0') != s.npos)
          fail(ErrorCode::bad_format,
               cat("a text of input '", t.name, "' holds a zero byte, where ONNX Runtime ends it"));
        texts.emplace_back(s);
      }
      std::vector<const char*> pointers;
      for (const std::string& s : texts) pointers.push_back(s.c_str());
      library_.call(L::kFillStringTensor, v, pointers.data(), pointers.size());
      return kept;
    }
    // The library only reads from inputs.
    library_.call(L::kCreateTensorWithDataAsOrtValue, library_.cpu_memory(),
                  static_cast<void*>(const_cast<char*>(t.data.data)), t.data.size, t.dims.data(),
                  t.dims.size(), OrtLibrary::element_type(t.dtype), &v);
    return library_.own(v, L::kReleaseValue);
  }

  TensorValue tensor(const std::string& name, const std::shared_ptr<void>& v) const {
    Handle shape = nullptr;
    library_.call(L::kGetTensorTypeAndShape, v.get(), &shape);
    const auto kept = library_.own(shape, L::kReleaseTensorTypeAndShapeInfo);
    const OrtLibrary::Info info = library_.info(shape, name);
    size_t count = 0;
    library_.call(L::kGetTensorShapeElementCount, shape, &count);
    TensorValue t{name, info.dtype, info.dims, {}};
    if (t.dtype == DType::string) {
      size_t length = 0;
      library_.call(L::kGetStringTensorDataLength, v.get(), &length);
      std::string text(length, '\0');
      std::vector<size_t> begins(count);
      library_.call(L::kGetStringTensorContent, v.get(), static_cast<void*>(text.data()), length,
                    begins.data(), count);
      std::string bytes;
      for (size_t i = 0; i < count; ++i) {
        const size_t end = i + 1 < count ? begins[i + 1] : length;
        append_bytes_element(bytes, std::string_view(text).substr(begins[i], end - begins[i]));
      }
      t.data = Blob::from(std::move(bytes));
      return t;
    }
    void* data = nullptr;
    library_.call(L::kGetTensorMutableData, v.get(), &data);
    t.data = {static_cast<const char*>(data), count * static_cast<size_t>(bits(t.dtype) / 8), v};
    return t;
  }

  const std::shared_ptr<const Session> session_;
  const OrtLibrary& library_;
};

class OrtEngine final : public Engine {
 public:
  OrtEngine(ModelConfig config, std::shared_ptr<const Session> session)
      : config_(std::move(config)), session_(std::move(session)) {}
  std::unique_ptr<Instance> make_instance(int) override {
    return std::make_unique<OrtInstance>(config_, session_);
  }

 private:
  const ModelConfig config_;
  const std::shared_ptr<const Session> session_;  // runs of several threads may share one
};

void check_ports(const std::vector<ModelConfig::EngineTensor>& specs, const std::vector<Port>& ports,
                 const char* what) {
  for (const auto& [spec, flat] : specs) {
    const auto it = std::find_if(ports.begin(), ports.end(),
                                 [&, &wanted = spec.name](const Port& p) { return p.name == wanted; });
    if (it == ports.end()) fail(ErrorCode::bad_name, cat("the model has no ", what, " '", spec.name, "'"));
    if (it->info.dtype != spec.dtype)
      fail(ErrorCode::bad_type, cat(what, " '", spec.name, "' is ", wire_name(it->info.dtype),
                                    " in the model, ", wire_name(spec.dtype), " in the configuration"));
  }
}

class OrtBackend final : public Backend {
 public:
  explicit OrtBackend(Library library) : library_(std::move(library)) {}
  bool honours(std::string_view field) const override {
    return field == "optimization.graph" || Backend::honours(field);
  }

  std::shared_ptr<const void> complete(Node& config, const ModelDir& dir, int64_t version) const override {
    if (config.has("input") && config.has("output")) return nullptr;
    const Node* const o = config.message("optimization");
    const Node* const graph = o ? o->message("graph") : nullptr;
    auto session = open(config.string("default_model_filename"), read_config_map(config, "parameters"), dir,
                        version, graph ? graph->integer("level") : 0);
    const size_t lead = config.integer("max_batch_size") > 0 ? 1 : 0;
    for (const char* field : {"input", "output"}) {
      if (config.has(field)) continue;
      for (const Port& p : field == std::string_view("input") ? session->inputs : session->outputs) {
        if (is_added_tensor(config, p.name)) continue;
        Node& t = config.add_message(*config.type().find(field));
        t.set("name", p.name);
        t.set("data_type", std::string(config_type_name(p.info.dtype)));
        for (size_t i = lead; i < p.info.dims.size(); ++i) t.add(*t.type().find("dims"), p.info.dims[i]);
      }
    }
    return session;
  }

  std::shared_ptr<Engine> load(const ModelConfig& config, const ModelDir& dir, int64_t version,
                               std::shared_ptr<const void> prepared) const override {
    auto session = prepared ? std::static_pointer_cast<const Session>(prepared)
                            : open(config.default_file, config.parameters, dir, version,
                                   config.optimization.graph_level);
    check_ports(config.engine_inputs(), session->inputs, "input");
    check_ports(config.engine_outputs(), session->outputs, "output");
    if (config.engine_inputs().size() != session->inputs.size())
      fail(ErrorCode::bad_format, cat("the model has ", session->inputs.size(), " inputs, the configuration ",
                                      config.engine_inputs().size()));
    return std::make_shared<OrtEngine>(config, std::move(session));
  }

 private:
  std::shared_ptr<const Session> open(const std::string& configured,
                                      const std::map<std::string, std::string>& parameters,
                                      const ModelDir& dir, int64_t version, int64_t level) const {
    return std::make_shared<const Session>(
        library_, dir.checked_path(version_path(version, configured.empty() ? "model.onnx" : configured)),
        parameters, level);
  }

  const Library library_;
};

}  // namespace

std::shared_ptr<const Backend> open_onnxruntime_backend(const std::string& library) {
  return std::make_shared<OrtBackend>(std::make_shared<const OrtLibrary>(library));
}

}  // namespace pelton::serve
