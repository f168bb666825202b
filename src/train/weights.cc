// SPDX-License-Identifier: Apache-2.0
#include "train/weights.h"

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/nearest.h"
#include "onnx/import/import.h"
#include "tensor/npy.h"
#include "tensor/safetensors.h"
#include "train/checkpoint.h"
#include "train/step.h"

namespace pelton::train {

using namespace ir;

namespace {

constexpr const char* kPrefixes[] = {"",      "module.",   "model.",    "transformer.",
                                     "bert.", "backbone.", "_orig_mod."};
constexpr size_t kListed = 5;

std::map<std::string, Tensor> onnx_weights(const std::string& path) {
  Graph g = onnx::import_file(path).graph;
  std::map<std::string, Tensor> out;
  for (NodeId id : g.order()) {
    ValueId v = g[id].outputs[0];
    if (const Tensor* t = g.constant(v); t && !g[v].name.empty()) out[g[v].name] = *t;
  }
  return out;
}

void list(std::string& text, const std::vector<std::string>& names) {
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) append(text, cat(i ? ", " : "", names[i]));
  if (names.size() > kListed) append(text, cat(" and ", names.size() - kListed, " more"));
}

bool any_match(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches(p, name); });
}

bool is_weight(const Slot& s) {
  return (s.kind == SlotKind::parameter || s.kind == SlotKind::statistic) && !s.name.starts_with("average.");
}

// The prefix in front of the model's names, in the file or left out of it, that finds most of them.
std::string best_prefix(const Graph& g, const std::map<std::string, Tensor>& tensors, bool in_file) {
  std::string best;
  int64_t most = -1;
  for (const char* prefix : kPrefixes) {
    int64_t found = 0;
    for (const Slot& s : g.slots) {
      if (!is_weight(s)) continue;
      if (in_file) found += static_cast<int64_t>(tensors.count(prefix + s.name));
      if (!in_file && s.name.starts_with(prefix))
        found += static_cast<int64_t>(tensors.count(s.name.substr(std::string_view(prefix).size())));
    }
    if (found > most) most = found, best = prefix;
  }
  return best;
}

}  // namespace

std::map<std::string, Tensor> read_weights(const std::string& path) {
  if (folder_exists(path)) {
    std::string folder = folder_exists(path + "/checkpoints") ? path + "/checkpoints" : path;
    return newest_checkpoint(folder).state;
  }
  if (path.ends_with(".safetensors")) return load_safetensors(path).tensors;
  if (path.ends_with(".npz")) return load_npz(path);
  if (path.ends_with(".onnx")) return onnx_weights(path);
  if (path.ends_with(".pt") || path.ends_with(".pth") || path.ends_with(".bin"))
    fail(ErrorCode::bad_format, "pickled weights can run code and are not read", path,
         "save them as safetensors: safetensors.torch.save_file(model.state_dict(), \"x.safetensors\")");
  fail(ErrorCode::bad_format, "the kind of the file is not known by its name", path,
       "weights are .safetensors, .npz, .onnx or a run folder");
}

void write_weights(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  if (path.ends_with(".safetensors")) return save_safetensors(path, tensors, {{"format", "pt"}});
  if (path.ends_with(".npz")) return save_npz(path, tensors);
  fail(ErrorCode::usage, "weights are written as .safetensors or .npz", path);
}

LoadReport load_weights(Graph& graph, const std::map<std::string, Tensor>& tensors,
                        const std::vector<std::string>& fresh, const std::string& where) {
  LoadReport report;
  std::string in_file = best_prefix(graph, tensors, true), left_out = best_prefix(graph, tensors, false);
  std::vector<std::string> missing, misfits;
  std::set<std::string> used;
  for (Slot& s : graph.slots) {
    if (!is_weight(s)) continue;
    std::string name = in_file + s.name;
    if (!tensors.count(name) && s.name.starts_with(left_out)) name = s.name.substr(left_out.size());
    auto it = tensors.find(name);
    if (any_match(fresh, s.name)) {
      report.fresh.push_back(s.name);
      if (it != tensors.end()) used.insert(name);
      continue;
    }
    if (it == tensors.end()) {
      missing.push_back(s.name);
      continue;
    }
    used.insert(name);
    const Tensor& t = it->second;
    if (to_shape(t.dims()) != s.type.shape || !is_float(t.dtype())) {
      misfits.push_back(cat(s.name, " (", t.str(), " for ", s.type.str(), ")"));
      continue;
    }
    s.initial = t.dtype() == s.type.dtype ? t : from_doubles(s.type.dtype, t.dims(), to_doubles(t));
    ++report.loaded;
  }
  for (const auto& [name, t] : tensors)
    if (!used.count(name)) report.unused.push_back(name);
  if (missing.empty() && misfits.empty()) return report;
  std::string what;
  if (!misfits.empty()) {
    append(what, cat(misfits.size(), " weights do not fit: "));
    list(what, misfits);
  }
  if (!missing.empty()) {
    append(what, cat(what.empty() ? "" : "; ", missing.size(), " weights are missing: "));
    list(what, missing);
  }
  if (report.loaded == 0 && !report.unused.empty()) {
    append(what, "; the file holds ");
    list(what, report.unused);
  }
  fail(ErrorCode::bad_name, what, where, "list what is to start anew in model.fresh, such as [\"fc.*\"]");
}

}  // namespace pelton::train
