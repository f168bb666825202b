// SPDX-License-Identifier: Apache-2.0
// A private folder for the files that a load request brings along. It is removed with the object: engines
// have read what they need by then.
#pragma once

#include <map>
#include <string>

namespace pelton::serve {

class UploadFolder {
 public:
  UploadFolder() = default;
  // Paths are "<version>/<name>". Code (.py, .so) and paths that leave the folder are refused.
  UploadFolder(const std::string& model, const std::map<std::string, std::string>& files);
  UploadFolder(UploadFolder&& o) noexcept : path_(std::move(o.path_)) { o.path_.clear(); }
  UploadFolder& operator=(UploadFolder&& o) noexcept;
  ~UploadFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace pelton::serve
