// SPDX-License-Identifier: Apache-2.0
#include "serve/core/upload.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace pelton::serve {
namespace {

void check_name(const std::string& path) {
  auto refuse = [&](std::string_view why) {
    fail(ErrorCode::bad_name, cat("uploaded file '", path, "' ", why));
  };
  if (path.empty() || path[0] == '/' || path.find('\0') != path.npos || path.size() > 1024)
    refuse("has an unusable path");
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") refuse("leaves the model's folder");
    at = end + 1;
  }
  for (const char* code : {".py", ".pyc", ".so"}) {
    const size_t n = std::strlen(code);
    if (path.size() >= n && path.compare(path.size() - n, n, code) == 0)
      refuse("is code; code cannot be uploaded");
  }
  if (path.find(".so.") != path.npos) refuse("is code; code cannot be uploaded");
}

}  // namespace

UploadFolder::UploadFolder(const std::string& model, const std::map<std::string, std::string>& files) {
  for (const auto& [path, unused] : files) check_name(path);
  const char* base = ::getenv("TMPDIR");
  std::string name = cat(base && *base ? base : "/tmp", "/pelton-upload-XXXXXX");
  if (!::mkdtemp(name.data())) fail_errno(errno, "create a folder for the upload of", model);  // mode 0700
  path_ = name;
  try {
    for (const auto& [path, content] : files) {
      const std::filesystem::path full = std::filesystem::path(path_) / path;
      std::filesystem::create_directories(full.parent_path());
      write_file(full.string(), content);
    }
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    throw;
  }
}

UploadFolder& UploadFolder::operator=(UploadFolder&& o) noexcept {
  std::swap(path_, o.path_);
  return *this;
}

UploadFolder::~UploadFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace pelton::serve
