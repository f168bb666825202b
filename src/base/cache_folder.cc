// SPDX-License-Identifier: Apache-2.0
#include "base/cache_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

namespace pelton {
namespace {

constexpr std::string_view kMagic = "pelton-cache 1\n";

std::string root() {
  if (const char* own = std::getenv("PELTON_CACHE_DIR")) return own;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg == '/') return cat(xdg, "/pelton");
  if (const char* home = std::getenv("HOME"); home && *home == '/') return cat(home, "/.cache/pelton");
  return "";
}

bool make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != path.npos; at = path.find('/', at + 1))
    if (mkdir(path.substr(0, at).c_str(), 0700) != 0 && errno != EEXIST) return false;
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

std::string file_of(const std::string& folder, std::string_view key) {
  return cat(folder, sha256(key).str());
}

// The entry's first line after the magic: digests of key and content.
std::string header(std::string_view key, std::string_view content) {
  return cat(kMagic, sha256(key).str(), " ", sha256(content).str(), "\n");
}

}  // namespace

std::string cache_folder(std::string_view name, std::string& why) {
  why.clear();
  std::string folder = root();
  if (folder.empty()) return "";
  append(folder, cat("/", name));
  if (!make_folders(folder)) {
    why = cat("the cache folder ", folder, " cannot be made: ", std::strerror(errno));
    return "";
  }
  struct stat s;
  if (lstat(folder.c_str(), &s) != 0 || !S_ISDIR(s.st_mode)) {
    why = cat("the cache folder ", folder, " is no folder");
    return "";
  }
  if (s.st_uid != geteuid()) {
    why = cat("the cache folder ", folder, " belongs to another user");
    return "";
  }
  if (s.st_mode & (S_IWGRP | S_IWOTH)) {
    why = cat("the cache folder ", folder, " can be written by others");
    return "";
  }
  return folder + "/";
}

std::optional<std::string> read_cached(std::string_view folder_name, std::string_view key) {
  std::string why, folder = cache_folder(folder_name, why);
  if (folder.empty()) return std::nullopt;
  std::string path = file_of(folder, key);
  if (!file_exists(path)) return std::nullopt;
  try {
    std::string all = read_file(path);
    size_t size = header("", "").size();
    if (all.size() < size) return std::nullopt;
    std::string content = all.substr(size);
    if (all.compare(0, size, header(key, content)) != 0) return std::nullopt;
    return content;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void write_cached(std::string_view folder_name, std::string_view key, std::string_view content) {
  static std::atomic<bool> said{false};
  std::string why, folder = cache_folder(folder_name, why);
  if (!folder.empty()) {
    try {
      write_file(file_of(folder, key), cat(header(key, content), content));
      return;
    } catch (const Error& e) {
      why = e.what();
    }
  }
  if (!why.empty() && !said.exchange(true)) log_warn(cat(why, ": nothing is kept for the next process"));
}

}  // namespace pelton
