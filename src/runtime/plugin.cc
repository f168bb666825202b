// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "ir/custom.h"
#include "ir/infer.h"
#include "runtime/plugin_call.h"
#include "runtime/plugin_graph.h"
#include "tensor/dlpack.h"

namespace pelton::runtime {
namespace {

using namespace ir;

using OpKey = std::tuple<std::string, std::string, int64_t>;  // domain, name, version
struct LoadedOp {
  pelton_custom_op op;
  PluginFunctions functions;
};
struct LoadedImplementation {
  std::string name, op, domain, custom;  // op: the row; domain and custom: of a custom op
  int64_t version = 0;
  device::Kind device = device::Kind::cpu;
  PluginFunctions functions;
};
struct Loaded {
  std::mutex mutex;
  std::set<std::string> files;
  std::map<OpKey, LoadedOp> ops;
  std::deque<LoadedImplementation> implementations;  // entries stay where they are
  bool handed_out = false;                           // the implementations
};
Loaded& loaded() {
  static auto* const instance = new Loaded;  // libraries stay for the life of the process
  return *instance;
}

std::string title(const pelton_custom_op& op) {
  return cat(op.domain, "::", op.name, " version ", op.version);
}

const LoadedOp* find(const Node& n) {
  Loaded& l = loaded();
  std::lock_guard lock(l.mutex);
  auto it = l.ops.find({n.get_text("domain"), n.get_text("name"), n.get_int("version")});
  return it == l.ops.end() ? nullptr : &it->second;
}

void infer_with(const pelton_custom_op& op, InferContext& c) {
  struct Host {
    InferContext& c;
    size_t results;
    std::string error;
  } host{c, c.node.outputs.size() - ((op.flags & PELTON_OP_EFFECTS) ? 1 : 0), {}};
  pelton_inference out{sizeof out, &host,
                       [](void* h, size_t index, pelton_dtype dtype, int32_t ndim, const char* const* dims) {
                         auto& host = *static_cast<Host*>(h);
                         try {
                           auto type = from_dlpack(dtype.code, dtype.bits);
                           if (!type || ndim < 0 || index >= host.results) {
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
  PluginCall call(c.graph, c.node, false);
  PluginMessage message;
  if (op.infer(call.get(), &out, message.get()))
    fail(ErrorCode::bad_shape, cat(op.domain, "::", op.name, " ", message.str("refuses its operands")),
         c.graph.describe(c.id));
  if (!host.error.empty()) fail(ErrorCode::plugin, cat(title(op), ": ", host.error), c.graph.describe(c.id));
}

// An entry of an array whose stride its first member gives; members that a shorter one lacks are zero.
template <class Entry>
Entry entry_at(const Entry* first, size_t i) {
  Entry out{};
  std::memcpy(static_cast<void*>(&out), reinterpret_cast<const char*>(first) + i * first->size,
              std::min(first->size, sizeof out));
  return out;
}

// What a table holds, checked as a whole before any of it is added.
struct Checked {
  std::vector<LoadedOp> ops;
  std::vector<LoadedImplementation> implementations;
  bool provides(const std::string& domain, const std::string& name, int64_t version) const {
    if (find_custom_op(domain, name, version)) return true;
    return std::any_of(ops.begin(), ops.end(), [&](const LoadedOp& o) {
      return o.op.domain == domain && o.op.name == name && o.op.version == version;
    });
  }
};

void check_op(Checked& into, const std::string& path, const char* plugin, const pelton_custom_op& op,
              size_t index) {
  auto bad = [&](std::string what) { fail(ErrorCode::plugin, std::move(what), path); };
  if (!op.domain || !op.name || !op.infer || !op.run)
    bad(cat("op ", index, " of plug-in '", plugin, "' has no name, inference or kernel"));
  const bool effects = op.flags & PELTON_OP_EFFECTS;
  if (op.flags & ~uint64_t{PELTON_OP_EFFECTS | PELTON_OP_IN_PLACE})
    bad(cat(title(op), " has flags that ABI ", PELTON_PLUGIN_ABI, " does not know"));
  if (effects && (op.decompose || op.gradient || op.build_gradient))
    bad(cat(title(op), " has effects, and so neither a decomposition nor a gradient"));
  if (into.provides(op.domain, op.name, op.version))
    fail(ErrorCode::bad_name, cat("custom op ", title(op), " exists already"), path);
  into.ops.push_back({op,
                      {title(op), false, true, op.refuse, op.scratch_bytes, op.context_bytes, op.prepare,
                       op.release, op.run}});
}

void add_op(Loaded& l, LoadedOp item) {
  const OpKey key{item.op.domain, item.op.name, item.op.version};
  const LoadedOp& kept = l.ops.emplace(key, std::move(item)).first->second;
  const pelton_custom_op& op = kept.op;
  CustomOp row{op.domain, op.name, op.version, [&kept](InferContext& c) { infer_with(kept.op, c); }};
  if (op.decompose)
    row.decompose = [&kept](Builder& b, const Node& n) { return plugin_decompose(kept.op, b, n); };
  else
    row.eval = [&kept](EvalContext& c) { plugin_eval(kept.functions, c); };
  if (op.gradient || op.build_gradient)
    row.gradient = [&kept](GradientContext& c) { plugin_gradient(kept.op, c); };
  row.effects = op.flags & PELTON_OP_EFFECTS;
  row.in_place = op.flags & PELTON_OP_IN_PLACE;
  add_custom_op(std::move(row));
}

// Implementations are asked through plain functions: one pair of them for each place in this list.
constexpr size_t kMostImplementations = 64;

void check_implementation(const Loaded& l, Checked& into, const std::string& path, const char* plugin,
                          const pelton_implementation& i, size_t index) {
  auto bad = [&](std::string what) { fail(ErrorCode::plugin, std::move(what), path); };
  if (!i.name || !i.op || !i.device || !i.run)
    bad(cat("implementation ", index, " of plug-in '", plugin, "' has no name, op, device or kernel"));
  const std::string what = cat("implementation '", i.name, "' of plug-in '", plugin, "'");
  if (i.flags & ~uint64_t{PELTON_KERNEL_ANY_LAYOUT | PELTON_KERNEL_NOT_RECORDED})
    bad(cat(what, " has flags that ABI ", PELTON_PLUGIN_ABI, " does not know"));
  LoadedImplementation item;
  item.name = i.name;
  item.op = i.op;
  item.version = i.version;
  if (item.name.find('.') == item.name.npos) bad(cat(what, " has no dot in its name"));
  const auto same_name = [&](const LoadedImplementation& other) { return other.name == item.name; };
  if (std::any_of(l.implementations.begin(), l.implementations.end(), same_name) ||
      std::any_of(into.implementations.begin(), into.implementations.end(), same_name))
    bad(cat(what, " exists already"));
  if (std::string_view(i.device) == "cuda")
    item.device = device::Kind::cuda;
  else if (std::string_view(i.device) != "cpu")
    bad(cat(what, " is for '", i.device, "', not cpu or cuda"));
  if (const size_t colons = item.op.find("::"); colons != item.op.npos) {
    item.domain = item.op.substr(0, colons);
    item.custom = item.op.substr(colons + 2);
    item.op = "custom";
    if (!into.provides(item.domain, item.custom, item.version))
      bad(cat(what, " is of ", i.op, " version ", i.version, ", which nothing provides"));
  } else if (const OpDef* row = find_op(item.op); !row || row->family == Family::control) {
    bad(cat(what, " is of '", item.op, "', which is no op that takes kernels"));
  }
  if (l.handed_out) bad(cat(what, " comes too late: load it before the first model"));
  if (l.implementations.size() + into.implementations.size() == kMostImplementations)
    bad(cat("more than ", kMostImplementations, " implementations of plug-ins"));
  item.functions = {.title = what,
                    .any_layout = (i.flags & PELTON_KERNEL_ANY_LAYOUT) != 0,
                    .recorded = (i.flags & PELTON_KERNEL_NOT_RECORDED) == 0,
                    .refuse = i.refuse,
                    .scratch_bytes = i.scratch_bytes,
                    .prepare = i.prepare,
                    .release = i.release,
                    .run = i.run};
  into.implementations.push_back(std::move(item));
}

const LoadedImplementation& implementation_at(size_t i) {
  return loaded().implementations[i];  // none is added once they are asked
}

std::string refuse_at(size_t i, const Graph& g, NodeId id) {
  const LoadedImplementation& m = implementation_at(i);
  const Node& n = g[id];
  if (!m.custom.empty() && (n.get_text("domain") != m.domain || n.get_text("name") != m.custom ||
                            n.get_int("version") != m.version))
    return cat("is of ", m.domain, "::", m.custom, " version ", m.version);
  return plugin_refuse(m.functions, g, id);
}

struct Functions {
  decltype(backend::Implementation::refuse) refuse;
  decltype(backend::Implementation::prepare) prepare;
};
template <size_t... I>
constexpr std::array<Functions, sizeof...(I)> make_functions(std::index_sequence<I...>) {
  return {Functions{[](const Graph& g, NodeId id, const device::Target&) { return refuse_at(I, g, id); },
                    [](const backend::Instance& instance, const device::Target&) {
                      return plugin_prepare(implementation_at(I).functions, instance);
                    }}...};
}
constexpr auto kFunctions = make_functions(std::make_index_sequence<kMostImplementations>());

std::string refuse_custom(const Graph& g, NodeId id, const device::Target&) {
  const LoadedOp* op = find(g[id]);
  return op ? plugin_refuse(op->functions, g, id) : std::string("no plug-in provides the op");
}

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
  if ((table->op_count && table->ops[0].size < offsetof(pelton_custom_op, gradient)) ||
      (table->implementation_count && table->implementations[0].size < sizeof(pelton_implementation)))
    bad(cat("a table of plug-in '", table->name, "' is shorter than ABI ", PELTON_PLUGIN_ABI, " says"));
  Checked checked;
  for (size_t i = 0; i < table->op_count; ++i)
    check_op(checked, path, table->name, entry_at(table->ops, i), i);
  for (size_t i = 0; i < table->implementation_count; ++i)
    check_implementation(l, checked, path, table->name, entry_at(table->implementations, i), i);
  for (LoadedOp& op : checked.ops) add_op(l, std::move(op));
  for (LoadedImplementation& i : checked.implementations) l.implementations.push_back(std::move(i));
  l.files.insert(path);
  log_info("plug-in '", table->name, "': ", table->op_count, " ops, ", table->implementation_count,
           " implementations");
}

std::vector<backend::Implementation> plugin_implementations() {
  Loaded& l = loaded();
  std::lock_guard lock(l.mutex);
  l.handed_out = true;
  std::vector<backend::Implementation> out;
  for (size_t i = 0; i < l.implementations.size(); ++i) {
    const LoadedImplementation& m = l.implementations[i];
    backend::Implementation made{m.name, {m.op}, kFunctions[i].refuse, kFunctions[i].prepare};
    made.device = m.device;
    out.push_back(std::move(made));
  }
  return out;
}

backend::Implementation plugin_implementation() {
  return {"plugin", {"custom"}, refuse_custom, [](const backend::Instance& instance, const device::Target&) {
            const LoadedOp* op = find(instance.node());
            PELTON_CHECK(op, "no plug-in provides the op");
            return plugin_prepare(op->functions, instance);
          }};
}

}  // namespace pelton::runtime
