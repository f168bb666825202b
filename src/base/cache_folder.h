// SPDX-License-Identifier: Apache-2.0
// Where this user's caches lie: PELTON_CACHE_DIR, else XDG_CACHE_HOME/pelton, else HOME/.cache/pelton. What
// lies there is made anew when it is missing, so every failure to read or write is only slower.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pelton {

// The folder `name` of the cache, made with mode 0700 if it is not there; ends in '/'. Empty if caches are
// switched off (PELTON_CACHE_DIR is set and empty), if there is no home, or if the folder belongs to another
// user or others may write it: then `why` says so.
std::string cache_folder(std::string_view name, std::string& why);

// An entry of a cache: content with its own digest, under a key that names everything it depends on. Nothing
// if it is not there, or damaged, or of another key.
std::optional<std::string> read_cached(std::string_view folder_name, std::string_view key);
// By atomic rename, so that readers see the old entry or the new one. A failure is logged once and ignored.
void write_cached(std::string_view folder_name, std::string_view key, std::string_view content);

}  // namespace pelton
