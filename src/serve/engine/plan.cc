// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/plan.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace pelton::serve {
namespace {

using ExecutablePtr = std::shared_ptr<const runtime::Executable>;
using PicturesPtr = std::shared_ptr<const runtime::PictureInput>;

// A dimension for the protocol: -1 unless it is one number.
int64_t client_dim(const Dim& d) {
  return d.is_const() ? d.value() : -1;
}

struct Port {
  std::string name;
  DType dtype;
  Dims dims;              // with the batch
  bool pictures = false;  // an input that takes image files and pixels too
};

// What a file becomes; `pictures` is null unless the plan takes them.
struct Loaded {
  ExecutablePtr executable;
  PicturesPtr pictures;
  int gpu = -1;  // that it is for; -1: the CPU
};

std::vector<Port> ports(const Loaded& model, bool inputs) {
  const ir::Graph& g = model.executable->graph();
  std::vector<Port> out;
  const auto& values = inputs ? g.inputs : g.outputs;
  for (size_t i = 0; i < values.size(); ++i) {
    const ir::Type& t = g.type(values[i]);
    std::string name = inputs ? g[values[i]].name : g.output_name(i);
    const char* what = inputs ? "input" : "output";
    if (!t.is_tensor() || !t.ranked)
      fail(ErrorCode::unsupported_op,
           cat(what, " '", name, "' is ", t.str(), ", only ranked tensors can be served"));
    if (wire_name(t.dtype).empty())
      fail(ErrorCode::bad_type, cat(what, " '", name, "' has type ", t.dtype, ", which the protocol lacks"),
           "", "cast it in the model");
    Dims dims;
    for (const Dim& d : t.shape) dims.push_back(client_dim(d));
    const bool pictures = inputs && model.pictures && model.pictures->name() == name;
    out.push_back({std::move(name), t.dtype, std::move(dims), pictures});
  }
  return out;
}

// A copy of the file that only this process can reach, under a path that libraries can open.
class PrivateCopy {
 public:
  PrivateCopy(const ModelDir& dir, const std::string& relative)
      : fd_(::memfd_create("pelton-plan", MFD_CLOEXEC)) {
    if (fd_.get() < 0)
      fail(ErrorCode::out_of_memory, cat("no memory for a copy of the plan: ", std::strerror(errno)),
           relative);
    const std::string bytes = dir.read(relative, size_t{1} << 40);
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::write(fd_.get(), bytes.data() + at, bytes.size() - at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        fail(ErrorCode::out_of_memory, cat("no memory for a copy of the plan: ", std::strerror(errno)),
             relative);
      at += static_cast<size_t>(n);
    }
  }
  std::string path() const { return cat("/proc/self/fd/", fd_.get()); }

 private:
  Fd fd_;
};

bool has_suffix(std::string_view s, std::string_view suffix) {
  return s.size() > suffix.size() && s.ends_with(suffix);
}

std::string model_file(const std::string& configured, const ModelDir& dir, int64_t version) {
  if (!configured.empty()) return version_path(version, configured);
  for (const char* suffix : {".pelton", ".onnx", ".ir"})
    for (const std::string& f : dir.files(version ? cat(version) : ""))
      if (has_suffix(f, suffix)) return version_path(version, f);
  fail(ErrorCode::not_found, cat("version ", version, " holds no .pelton, .onnx or .ir file"), dir.path());
}

class PlanInstance final : public TensorInstance {
 public:
  PlanInstance(const ModelConfig& config, const Loaded& model)
      : TensorInstance(config),
        pictures_(model.pictures),
        inputs_(ports(model, true)),
        outputs_(ports(model, false)),
        context_(model.executable->context()) {}

 private:
  std::vector<TensorValue> run(const std::vector<TensorValue>& given, const CancelToken* token) override {
    std::vector<Tensor> in;
    in.reserve(inputs_.size());
    for (const Port& port : inputs_) {
      const auto it =
          std::find_if(given.begin(), given.end(), [&](const TensorValue& t) { return t.name == port.name; });
      if (it == given.end()) fail(ErrorCode::bad_name, cat("input '", port.name, "' is missing"));
      in.push_back(port.pictures && it->dtype != port.dtype ? prepared(*it) : to_tensor(*it));
    }
    runtime::RunOptions options;
    if (token) options.cancel = token->flag();
    std::vector<Tensor> out = context_.run_tensors(in, options);
    std::vector<TensorValue> result;
    result.reserve(out.size());
    for (size_t i = 0; i < out.size(); ++i)
      result.push_back(from_tensor(outputs_[i].name, std::move(out[i])));
    return result;
  }

  Tensor prepared(const TensorValue& t) const {
    if (t.dtype == DType::string) return pictures_->from_files(split_bytes(t.data.data, t.data.size));
    return pictures_->from_pixels(to_tensor(t));
  }

  static Tensor to_tensor(const TensorValue& t) {
    if (t.dtype == DType::string) {
      std::vector<std::string> values;
      for (std::string_view s : split_bytes(t.data.data, t.data.size)) values.emplace_back(s);
      return Tensor::of_strings(t.dims, std::move(values));
    }
    // Kernels read from 64-byte boundaries; a tensor that lies elsewhere in its request moves once.
    if (t.data.size == 0 || reinterpret_cast<uintptr_t>(t.data.data) % 64 == 0)
      return Tensor::borrow(t.dtype, t.dims, t.data.data, t.data.owner);
    Tensor copy(t.dtype, t.dims);
    std::memcpy(copy.mutable_data(), t.data.data, t.data.size);
    return copy;
  }

  static TensorValue from_tensor(const std::string& name, Tensor t) {
    TensorValue v{name, t.dtype(), t.dims(), {}};
    if (t.dtype() == DType::string) {
      std::string bytes;
      for (const std::string& s : t.strings()) append_bytes_element(bytes, s);
      v.data = Blob::from(std::move(bytes));
      return v;
    }
    auto keep = std::make_shared<const Tensor>(std::move(t));
    v.data = {static_cast<const char*>(keep->data()), static_cast<size_t>(keep->bytes()), keep};
    return v;
  }

  const PicturesPtr pictures_;
  const std::vector<Port> inputs_, outputs_;
  runtime::Context context_;
};

class PlanEngine final : public Engine {
 public:
  // `models`: one for each place that the configuration's instances have.
  PlanEngine(ModelConfig config, std::map<int, Loaded> models)
      : config_(std::move(config)), models_(std::move(models)) {}
  std::unique_ptr<Instance> make_instance(int index) override {
    return std::make_unique<PlanInstance>(config_,
                                          models_.at(config_.places[static_cast<size_t>(index)].gpu));
  }

 private:
  const ModelConfig config_;
  const std::map<int, Loaded> models_;  // by GPU
};

void check_ports(const std::vector<ModelConfig::EngineTensor>& specs, const std::vector<Port>& model,
                 bool model_batches, bool is_input) {
  const char* what = is_input ? "input" : "output";
  for (const auto& [s, flat] : specs) {
    const bool batches = model_batches && !flat;
    const auto it = std::find_if(model.begin(), model.end(),
                                 [&, &wanted = s.name](const Port& p) { return p.name == wanted; });
    if (it == model.end()) {
      std::string names;
      for (const Port& p : model) names += cat(names.empty() ? "" : ", ", p.name);
      fail(ErrorCode::bad_name, cat("the model has no ", what, " '", s.name, "'"), "",
           cat("its ", what, "s are: ", names));
    }
    if (it->pictures && s.dtype != it->dtype && (s.dtype == DType::string || s.dtype == DType::u8)) {
      if (s.dtype == DType::u8 && s.dims.size() != 3 && (batches || s.dims.size() != 4))
        fail(ErrorCode::bad_shape, cat("pixels of input '", s.name, "' have shape ", s.dims), "",
             "declare dims: [ -1, -1, 3 ]");
      continue;
    }
    if (it->dtype != s.dtype)
      fail(ErrorCode::bad_type, cat(what, " '", s.name, "' is ", wire_name(it->dtype), " in the model, ",
                                    wire_name(s.dtype), " in the configuration"));
    Dims declared = s.reshape ? *s.reshape : s.dims;
    if (batches) declared.insert(declared.begin(), -1);
    bool fits = declared.size() == it->dims.size();
    for (size_t i = 0; fits && i < declared.size(); ++i)
      fits = declared[i] == it->dims[i] || it->dims[i] == -1 ||
             (declared[i] == -1 && (!is_input || (batches && i == 0)));
    if (!fits)
      fail(ErrorCode::bad_shape, cat(what, " '", s.name, "' has shape ", it->dims, " in the model, ",
                                     declared, " in the configuration"));
    if (batches && it->dims[0] != -1)
      fail(ErrorCode::bad_shape,
           cat(what, " '", s.name, "' has the fixed first dimension ", it->dims[0],
               ", so the model cannot batch"),
           "", "set max_batch_size to 0, or compile with a range for it");
  }
  if (!is_input) return;
  for (const Port& p : model)
    if (std::none_of(specs.begin(), specs.end(), [&](const auto& s) { return s.spec.name == p.name; }))
      fail(ErrorCode::bad_format, cat("the model's input '", p.name, "' is not in the configuration"));
}

class PlanBackend final : public Backend {
 public:
  PlanBackend(PlanLoader loader, bool map_files, PictureLoader pictures, std::vector<int> gpus)
      : loader_(std::move(loader)),
        map_files_(map_files),
        pictures_(std::move(pictures)),
        gpus_(std::move(gpus)) {}
  std::optional<std::vector<int>> gpus() const override { return gpus_; }
  // What a GPU is told in a run is recorded, and played in the next one of the same shapes.
  bool honours(std::string_view field) const override {
    return field == "optimization.cuda.graphs" || Backend::honours(field);
  }

  std::shared_ptr<const void> complete(Node& config, const ModelDir& dir, int64_t version) const override {
    if (config.has("input") && config.has("output")) return nullptr;
    std::map<std::string, std::string> parameters;
    for (const Node* e : config.messages("parameters"))
      if (const Node* v = e->message("value")) parameters[e->string("key")] = v->string("string_value");
    auto model = std::make_shared<const Loaded>(open(config.string("default_model_filename"), parameters, dir,
                                                     version, gpus_.empty() ? -1 : gpus_[0]));
    const size_t lead = config.integer("max_batch_size") > 0 ? 1 : 0;
    for (const char* field : {"input", "output"}) {
      if (config.has(field)) continue;
      for (const Port& p : ports(*model, field == std::string_view("input"))) {
        if (is_added_tensor(config, p.name)) continue;
        Node& t = config.add_message(*config.type().find(field));
        t.set("name", p.name);
        if (p.pictures) {  // image files, one an element
          t.set("data_type", std::string(config_type_name(DType::string)));
          t.add(*t.type().find("dims"), lead ? int64_t{1} : int64_t{-1});
          continue;
        }
        t.set("data_type", std::string(config_type_name(p.dtype)));
        for (size_t i = lead; i < p.dims.size(); ++i) t.add(*t.type().find("dims"), p.dims[i]);
      }
    }
    return model;
  }

  std::shared_ptr<Engine> load(const ModelConfig& config, const ModelDir& dir, int64_t version,
                               std::shared_ptr<const void> prepared) const override {
    std::map<int, Loaded> models;
    if (const auto p = std::static_pointer_cast<const Loaded>(prepared)) models[p->gpu] = *p;
    std::map<int, Loaded> used;
    for (const InstancePlace& place : config.places) {
      if (used.contains(place.gpu)) continue;
      const auto it = models.find(place.gpu);
      used[place.gpu] = it != models.end()
                            ? it->second
                            : open(config.default_file, config.parameters, dir, version, place.gpu);
    }
    const Loaded& model = used.begin()->second;
    check_ports(config.engine_inputs(), ports(model, true), config.max_batch > 0, true);
    check_ports(config.engine_outputs(), ports(model, false), config.max_batch > 0, false);
    return std::make_shared<PlanEngine>(config, std::move(used));
  }

 private:
  Loaded load_file(const PlanRequest& r) const {
    return {loader_(r), pictures_ ? pictures_(r.path) : nullptr, r.gpu};
  }

  Loaded open(const std::string& configured, const std::map<std::string, std::string>& parameters,
              const ModelDir& dir, int64_t version, int gpu) const {
    const std::string file = model_file(configured, dir, version);
    PlanRequest r;
    r.gpu = gpu;
    r.trusted = !dir.uploaded();
    for (const auto& [key, value] : parameters) {
      if (key == "precision") r.precision = value;
      if (key.starts_with("shape.")) r.shapes[key.substr(6)] = value;
    }
    if (!has_suffix(file, ".pelton") || map_files_) {
      r.path = dir.checked_path(file);
      return load_file(r);
    }
    const PrivateCopy copy(dir, file);
    r.path = copy.path();
    try {
      return load_file(r);
    } catch (const Error& e) {  // the path of the copy means nothing to people
      throw Error(e.code(), e.message(), cat(dir.path(), "/", file), e.fix());
    }
  }

  const PlanLoader loader_;
  const bool map_files_;
  const PictureLoader pictures_;
  const std::vector<int> gpus_;
};

}  // namespace

std::shared_ptr<const Backend> make_plan_backend(PlanLoader loader, bool map_files, PictureLoader pictures,
                                                 std::vector<int> gpus) {
  return std::make_shared<PlanBackend>(std::move(loader), map_files, std::move(pictures), std::move(gpus));
}

}  // namespace pelton::serve
