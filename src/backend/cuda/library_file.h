// SPDX-License-Identifier: Apache-2.0
// An NVIDIA library that is opened when it is first needed.
#pragma once

#include <dlfcn.h>

#include <string>

#include "base/cat.h"

namespace pelton::backend::cuda {

class LibraryFile {
 public:
  // Looks in the folder of PELTON_CUDA_LIBS, where the loader looks, and where the toolkit puts its
  // libraries.
  LibraryFile(const char* what, const std::string& file);
  // Stays loaded: its own threads and tables outlive any owner here.
  template <class F>
  void get(F& function, const char* name) {
    if (!handle_) return;
    function = reinterpret_cast<F>(dlsym(handle_, name));
    if (!function && error_.empty())
      error_ = cat(what_, " lacks the function ", name, ": it is too old or too new");
  }
  // Empty: all that was asked for is there.
  const std::string& error() const { return error_; }

 private:
  const char* what_;
  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace pelton::backend::cuda
