// SPDX-License-Identifier: Apache-2.0
#include "register/samples.h"

#include <algorithm>
#include <filesystem>

#include "base/cat.h"
#include "base/file.h"
#include "tensor/npy.h"

namespace pelton {
namespace {

namespace fs = std::filesystem;

Tensor checked(Tensor t, const ir::Graph& g, ir::ValueId v, const std::string& where) {
  const ir::Type& type = g.type(v);
  if (t.dtype() != type.dtype || (type.ranked && t.rank() != type.rank()))
    fail(ErrorCode::bad_type, cat("input '", g[v].name, "' is ", type.str(), ", the sample ", t.str()),
         where);
  return t;
}

}  // namespace

std::vector<std::vector<Tensor>> load_samples(const std::string& folder, const ir::Graph& g) {
  if (!folder_exists(folder)) fail(ErrorCode::not_found, "there is no such folder", folder);
  std::vector<fs::path> entries;
  for (const auto& e : fs::directory_iterator(folder)) entries.push_back(e.path());
  std::sort(entries.begin(), entries.end());
  std::vector<std::vector<Tensor>> out;
  for (const fs::path& path : entries) {
    if (out.size() == kMostSamples) break;
    const std::string where = path.string();
    std::vector<Tensor> sample;
    if (path.extension() == ".npy" && g.inputs.size() == 1) {
      sample.push_back(checked(load_npy(where, g.type(g.inputs[0]).dtype), g, g.inputs[0], where));
    } else if (path.extension() == ".npz") {
      const auto members = load_npz(where);
      for (ir::ValueId v : g.inputs) {
        const auto it = members.find(g[v].name);
        if (it == members.end())
          fail(ErrorCode::bad_name, cat("the archive has no member '", g[v].name, "'"), where);
        sample.push_back(checked(it->second, g, v, where));
      }
    } else if (fs::is_directory(path)) {
      for (ir::ValueId v : g.inputs) {
        const std::string file = (path / (g[v].name + ".npy")).string();
        sample.push_back(checked(load_npy(file, g.type(v).dtype), g, v, file));
      }
    } else {
      continue;
    }
    out.push_back(std::move(sample));
  }
  if (out.empty())
    fail(ErrorCode::not_found, "the folder has no samples", folder,
         "put .npy files (models of one input), .npz files or folders of NAME.npy there");
  return out;
}

}  // namespace pelton
