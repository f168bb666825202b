// SPDX-License-Identifier: Apache-2.0
// What need not be made again, by kind and key: of the plan whose kernels are prepared (device/artifacts.h),
// else of this user's cache (base/cache_folder.h). What the cache gives is kept with the plan, too.
#pragma once

#include <optional>
#include <string>

namespace pelton::backend::cuda {

std::optional<std::string> find_kept(const std::string& kind, const std::string& key);
void keep(const std::string& kind, const std::string& key, const std::string& content);
// With the plan alone, for what this process knows already.
void keep_with_plan(const std::string& kind, const std::string& key, const std::string& content);

}  // namespace pelton::backend::cuda
