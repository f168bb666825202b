// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kept.h"

#include "base/cache_folder.h"
#include "device/artifacts.h"

namespace pelton::backend::cuda {

void keep_with_plan(const std::string& kind, const std::string& key, const std::string& content) {
  if (device::Artifacts* of_plan = device::current_artifacts()) of_plan->add(kind, key, content);
}

std::optional<std::string> find_kept(const std::string& kind, const std::string& key) {
  if (const device::Artifacts* of_plan = device::current_artifacts())
    if (std::optional<std::string> content = of_plan->find(kind, key)) return content;
  std::optional<std::string> content = read_cached(kind, key);
  if (content) keep_with_plan(kind, key, *content);
  return content;
}

void keep(const std::string& kind, const std::string& key, const std::string& content) {
  keep_with_plan(kind, key, content);
  write_cached(kind, key, content);
}

}  // namespace pelton::backend::cuda
