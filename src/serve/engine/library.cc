// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/library.h"

#include <dlfcn.h>
#include <pelton/c/engine.h>

#include "base/error.h"

namespace pelton::serve {
namespace {

// The library stays loaded while anything of it is in use.
struct Library {
  void* handle = nullptr;
  const pelton_engine_api* api = nullptr;
  ~Library() {
    if (handle) ::dlclose(handle);
  }
};
using LibraryPtr = std::shared_ptr<const Library>;

constexpr size_t kErrorSize = 1024;

template <class F>
void call(const std::string& model, ErrorCode code, F&& f) {
  char error[kErrorSize] = {};
  if (f(error, sizeof error) == 0) return;
  error[kErrorSize - 1] = '\0';
  fail(code, *error ? error : "the engine gives no reason", model);
}

struct Answer {
  Response* response;
  const Request* request;
  std::string failure;
};

void* add_output(void* p, const char* name, const char* datatype, const int64_t* shape, size_t rank,
                 size_t bytes) {
  auto& a = *static_cast<Answer*>(p);
  try {
    const auto dtype = dtype_from_wire(datatype);
    TensorValue t{name, dtype.value_or(DType::u8), Dims(shape, shape + rank), {}};
    if (!dtype) a.failure = cat("output '", t.name, "' has the unknown type '", datatype, "'");
    auto memory = allocate_bytes(bytes);
    char* data = memory.get();
    t.data = {data, bytes, std::move(memory)};
    a.response->outputs.push_back(std::move(t));
    return data;
  } catch (const std::exception&) {
    return nullptr;
  }
}
void fail_answer(void* p, const char* reason) {
  static_cast<Answer*>(p)->failure = reason && *reason ? reason : "the engine gives no reason";
}
int is_cancelled(void* p) {
  return static_cast<Answer*>(p)->request->cancelled() ? 1 : 0;
}

class LibraryInstance final : public Instance {
 public:
  LibraryInstance(LibraryPtr library, const std::shared_ptr<void>& model, std::string name, int index)
      : library_(std::move(library)), model_(model), name_(std::move(name)) {
    call(name_, ErrorCode::plugin, [&](char* error, size_t n) {
      return library_->api->open_instance(model.get(), index, &instance_, error, n);
    });
  }
  ~LibraryInstance() override { library_->api->close_instance(instance_); }

  void execute(BatchRun& run) override {
    static constexpr pelton_engine_answers kAnswers = {add_output, fail_answer, is_cancelled};
    std::vector<Answer> answers(run.requests.size());
    std::vector<std::vector<pelton_engine_tensor>> tensors(run.requests.size());
    std::vector<pelton_engine_request> requests;
    for (size_t i = 0; i < run.requests.size(); ++i) {
      answers[i] = {&run.responses[i], run.requests[i].get(), ""};
      for (const TensorValue& t : run.requests[i]->inputs)
        tensors[i].push_back({t.name.c_str(), wire_name(t.dtype).data(), t.dims.data(), t.dims.size(),
                              t.data.data, t.data.size});
      requests.push_back({tensors[i].data(), tensors[i].size(), &answers[i]});
    }
    run.input_end = Clock::now();
    call(name_, ErrorCode::plugin, [&](char* error, size_t n) {
      return library_->api->execute(instance_, requests.data(), requests.size(), &kAnswers, error, n);
    });
    run.infer_end = Clock::now();
    for (size_t i = 0; i < answers.size(); ++i) finish(answers[i]);
  }

 private:
  void finish(Answer& a) const {
    for (const TensorValue& t : a.response->outputs) {
      const auto count = checked_count(t.dims);
      const bool fits =
          t.dtype == DType::string
              ? count && bytes_elements(t.data.data, t.data.size) == count
              : count &&
                    static_cast<uint64_t>(*count) * static_cast<uint64_t>(bits(t.dtype) / 8) == t.data.size;
      if (a.failure.empty() && !fits)
        a.failure = cat("output '", t.name, "' of shape ", t.dims, " has ", t.data.size, " bytes");
    }
    if (a.failure.empty()) return;
    a.response->outputs.clear();
    a.response->error = Error(ErrorCode::plugin, a.failure, name_);
  }

  const LibraryPtr library_;
  const std::shared_ptr<void> model_;
  const std::string name_;
  void* instance_ = nullptr;
};

class LibraryEngine final : public Engine {
 public:
  LibraryEngine(LibraryPtr library, const ModelConfig& config, const ModelDir& dir, int64_t version)
      : library_(std::move(library)), name_(config.name) {
    void* model = nullptr;
    call(name_, ErrorCode::plugin, [&](char* error, size_t n) {
      return library_->api->load(config_to_json(*config.tree).c_str(), dir.path().c_str(), version, &model,
                                 error, n);
    });
    model_ = {model, [library = library_](void* m) { library->api->unload(m); }};
  }
  std::unique_ptr<Instance> make_instance(int index) override {
    return std::make_unique<LibraryInstance>(library_, model_, name_, index);
  }

 private:
  const LibraryPtr library_;
  const std::string name_;
  std::shared_ptr<void> model_;
};

class LibraryBackend final : public Backend {
 public:
  explicit LibraryBackend(LibraryPtr library) : library_(std::move(library)) {}
  std::shared_ptr<const void> complete(Node&, const ModelDir&, int64_t) const override { return nullptr; }
  std::shared_ptr<Engine> load(const ModelConfig& config, const ModelDir& dir, int64_t version,
                               std::shared_ptr<const void>) const override {
    return std::make_shared<LibraryEngine>(library_, config, dir, version);
  }

 private:
  const LibraryPtr library_;
};

}  // namespace

std::shared_ptr<const Backend> open_library_backend(const std::string& file) {
  auto library = std::make_shared<Library>();
  library->handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library->handle) fail(ErrorCode::plugin, cat("cannot open the engine: ", ::dlerror()), file);
  using Entry = const pelton_engine_api* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(library->handle, "pelton_engine"));
  if (!entry) fail(ErrorCode::plugin, "the library has no function pelton_engine", file);
  library->api = entry();
  if (!library->api || library->api->abi != PELTON_ENGINE_ABI)
    fail(ErrorCode::plugin,
         cat("the engine is built for interface ", library->api ? library->api->abi : 0u,
             ", this server has ", PELTON_ENGINE_ABI),
         file, "build it again with this version's pelton/c/engine.h");
  return std::make_shared<LibraryBackend>(std::move(library));
}

}  // namespace pelton::serve
