// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "base/log.h"
#include "ir/custom.h"
#include "ir/gradient.h"
#include "ir/infer.h"
#include "pelton/c/plugin.h"
#include "tensor/dlpack.h"

namespace pelton::runtime {
namespace {

using namespace ir;

using OpKey = std::tuple<std::string, std::string, int64_t>;  // domain, name, version
struct Loaded {
  std::mutex mutex;
  std::set<std::string> files;
  std::map<OpKey, pelton_custom_op> ops;
};
Loaded& loaded() {
  static auto* const instance = new Loaded;  // libraries stay for the life of the process
  return *instance;
}

std::string title(const pelton_custom_op& op) {
  return cat(op.domain, "::", op.name, " version ", op.version);
}

const pelton_custom_op* find(const Node& n) {
  Loaded& l = loaded();
  std::lock_guard lock(l.mutex);
  auto it = l.ops.find({n.get_text("domain"), n.get_text("name"), n.get_int("version")});
  return it == l.ops.end() ? nullptr : &it->second;
}

// A pelton_op_call with the memory it points into.
class Call {
 public:
  // `symbols` null: sizes stay symbolic.
  Call(const Graph& g, const Node& n, bool results, const SymbolValues* symbols)
      : attributes_(n.get_text("attributes")) {
    inputs_.reserve(n.inputs.size());
    outputs_.reserve(n.outputs.size());
    for (ValueId v : n.inputs) inputs_.push_back(value(g, v, symbols));
    if (results)
      for (ValueId v : n.outputs) outputs_.push_back(value(g, v, symbols));
    call_ = {sizeof(pelton_op_call), attributes_.c_str(), inputs_.size(),
             n.outputs.size(),       inputs_.data(),      results ? outputs_.data() : nullptr};
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  const pelton_op_call* get() const { return &call_; }

 private:
  struct Storage {
    std::vector<std::string> texts;
    std::vector<const char*> dims;
    Dims shape;
  };
  pelton_op_value value(const Graph& g, ValueId v, const SymbolValues* symbols) {
    if (!v || !g.type(v).is_tensor() || !g.type(v).ranked) return {{0, 0, 0}, -1, nullptr, nullptr};
    const Type& type = g.type(v);
    auto s = std::make_unique<Storage>();
    for (const Dim& d : type.shape) s->texts.push_back(d.str());
    for (const std::string& t : s->texts) s->dims.push_back(t.c_str());
    if (symbols) s->shape = eval(type.shape, *symbols);
    pelton_op_value out{};
    to_dlpack(type.dtype, &out.dtype.code, &out.dtype.bits);
    out.dtype.lanes = 1;
    out.ndim = static_cast<int32_t>(type.rank());
    out.dims = s->dims.data();
    out.shape = symbols ? s->shape.data() : nullptr;
    storage_.push_back(std::move(s));
    return out;
  }

  std::string attributes_;
  std::vector<std::unique_ptr<Storage>> storage_;
  std::vector<pelton_op_value> inputs_, outputs_;
  pelton_op_call call_;
};

class Message {
 public:
  Message() : c_{text_, sizeof text_} {}
  pelton_message* get() { return &c_; }
  std::string str(const char* fallback) const {
    return text_[0] ? std::string(text_) : std::string(fallback);
  }

 private:
  char text_[512] = {};
  pelton_message c_;
};

void infer_with(const pelton_custom_op& op, InferContext& c) {
  struct Host {
    InferContext& c;
    const pelton_custom_op& op;
    std::string error;
  } host{c, op, {}};
  pelton_inference out{sizeof out, &host,
                       [](void* h, size_t index, pelton_dtype dtype, int32_t ndim, const char* const* dims) {
                         auto& host = *static_cast<Host*>(h);
                         try {
                           auto type = from_dlpack(dtype.code, dtype.bits);
                           if (!type || ndim < 0 || index >= host.c.node.outputs.size()) {
                             host.error = cat("set result ", index, " to a type that does not exist");
                             return;
                           }
                           Shape shape;
                           for (int32_t i = 0; i < ndim; ++i) shape.push_back(Dim::parse(dims[i]));
                           host.c.output(index, *type, std::move(shape));
                         } catch (const std::exception& e) {
                           host.error = e.what();
                         }
                       }};
  Call call(c.graph, c.node, false, nullptr);
  Message message;
  if (op.infer(call.get(), &out, message.get()))
    fail(ErrorCode::bad_shape, cat(op.domain, "::", op.name, " ", message.str("refuses its operands")),
         c.graph.describe(c.id));
  if (!host.error.empty()) fail(ErrorCode::plugin, cat(title(op), ": ", host.error), c.graph.describe(c.id));
}

void gradient_with(const pelton_custom_op& op, GradientContext& c) {
  std::vector<ValueId> inputs = c.node.inputs;
  for (size_t i = 0; i < c.node.outputs.size(); ++i) inputs.push_back(c.result(i));
  for (size_t i = 0; i < c.node.outputs.size(); ++i) inputs.push_back(c.grad_or_zeros(i));
  std::vector<size_t> floats;
  for (size_t i = 0; i < c.node.inputs.size(); ++i)
    if (c.has(i) && is_float(c.b.dtype(c.in(i)))) floats.push_back(i);
  Attrs attrs = c.node.attrs;
  attrs["name"] = std::string(op.gradient);
  std::vector<ValueId> grads = c.b.ops("custom", inputs, attrs, floats.size());
  for (size_t k = 0; k < floats.size(); ++k)
    if (c.wants(floats[k])) c.set(floats[k], grads[k]);
}

std::string refuse(const Graph& g, NodeId id, const device::Target& target) {
  const pelton_custom_op* op = find(g[id]);
  if (!op) return "no plug-in provides the op";
  if (target.kind != device::Kind::cpu) return "has a kernel for the CPU only";
  for (ValueId v : g[id].inputs)
    if (v && !g.type(v).layout.is_plain()) return cat("needs plain layouts, got ", g.type(v).str());
  Call call(g, g[id], true, nullptr);
  Message message;
  return op->refuse && op->refuse(call.get(), message.get()) ? message.str("refuses the node")
                                                             : std::string();
}

class PluginKernel : public backend::Kernel {
 public:
  PluginKernel(const pelton_custom_op& op, const backend::Instance& instance)
      : op_(op), call_(instance.graph, instance.node(), true, &instance.symbols) {
    Message message;
    if (op.prepare && op.prepare(call_.get(), &state_, message.get()))
      fail(ErrorCode::plugin, cat(title(op), ": ", message.str("cannot be prepared")));
    if (op.scratch_bytes) scratch_ = op.scratch_bytes(call_.get());
    if (scratch_ < 0) fail(ErrorCode::plugin, cat(title(op), " asks for ", scratch_, " bytes of scratch"));
  }
  ~PluginKernel() override {
    if (state_ && op_.release) op_.release(state_);
  }
  int64_t scratch_bytes() const override { return scratch_; }
  void run(const backend::RunArgs& args) const override {
    pelton_op_buffers buffers{sizeof buffers, args.in.data(), args.out.data(), args.scratch};
    op_.run(state_, call_.get(), &buffers);
  }

 private:
  const pelton_custom_op& op_;
  Call call_;
  void* state_ = nullptr;
  int64_t scratch_ = 0;
};

}  // namespace

void load_plugin(const std::string& path) {
  Loaded& l = loaded();
  std::lock_guard lock(l.mutex);
  if (l.files.count(path)) return;
  auto bad = [&](std::string what) { fail(ErrorCode::plugin, std::move(what), path); };
  // A bare name would be looked for in the loader's own places.
  std::string file = path.find('/') == path.npos ? cat("./", path) : path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    bad(cat("the plug-in cannot be loaded: ", reason ? reason : "unknown reason"));
  }
  auto table_of = reinterpret_cast<const pelton_plugin* (*)()>(dlsym(library, "pelton_plugin_table"));
  const pelton_plugin* table = table_of ? table_of() : nullptr;
  if (!table) {
    dlclose(library);
    bad("the library is no plug-in: it has no pelton_plugin_table");
  }
  if (table->abi != PELTON_PLUGIN_ABI || table->size < sizeof(pelton_plugin))
    bad(cat("plug-in '", table->name, "' was built for ABI ", table->abi, ", this host has ",
            PELTON_PLUGIN_ABI));
  size_t stride = table->op_count ? table->ops[0].size : 0;
  if (table->op_count && stride < offsetof(pelton_custom_op, gradient))
    bad(cat("the op table of plug-in '", table->name, "' is shorter than ABI ", PELTON_PLUGIN_ABI, " says"));
  for (size_t i = 0; i < table->op_count; ++i) {
    pelton_custom_op op{};
    std::memcpy(&op, reinterpret_cast<const char*>(table->ops) + i * stride, std::min(stride, sizeof op));
    if (!op.domain || !op.name || !op.infer || !op.run)
      bad(cat("op ", i, " of plug-in '", table->name, "' has no name, inference or kernel"));
    if (op.flags) bad(cat(title(op), " has flags that ABI ", PELTON_PLUGIN_ABI, " does not know"));
    OpKey key{op.domain, op.name, op.version};
    const pelton_custom_op& kept = l.ops.emplace(key, op).first->second;
    std::function<void(GradientContext&)> gradient;
    if (op.gradient) gradient = [&kept](GradientContext& c) { gradient_with(kept, c); };
    with_place(path, [&] {
      add_custom_op(
          {op.domain, op.name, op.version, [&kept](InferContext& c) { infer_with(kept, c); }, {}, gradient});
    });
  }
  l.files.insert(path);
  log_info("plug-in '", table->name, "': ", table->op_count, " ops");
}

backend::Implementation plugin_implementation() {
  return {"plugin", {"custom"}, refuse, [](const backend::Instance& instance, const device::Target&) {
            const pelton_custom_op* op = find(instance.node());
            PELTON_CHECK(op, "no plug-in provides the op");
            return std::unique_ptr<backend::Kernel>(std::make_unique<PluginKernel>(*op, instance));
          }};
}

}  // namespace pelton::runtime
