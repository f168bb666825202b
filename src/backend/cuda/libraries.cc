// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/libraries.h"

#include <cstdlib>
#include <vector>

#include "backend/cuda/library_file.h"
#include "base/error.h"

namespace pelton::backend::cuda {
namespace {

// Where NVIDIA's packages put libraries when the loader does not know them. PELTON_CUDA_LIBS goes first.
std::vector<std::string> folders() {
  std::vector<std::string> out;
  if (const char* own = std::getenv("PELTON_CUDA_LIBS"); own && *own) out.push_back(cat(own, "/"));
  out.push_back("");
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(name); home && *home) out.push_back(cat(home, "/lib64/"));
  out.push_back("/usr/local/cuda/lib64/");
  return out;
}

}  // namespace

LibraryFile::LibraryFile(const char* what, const std::string& file) : what_(what) {
  for (const std::string& folder : folders()) {
    handle_ = dlopen((folder + file).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) return;
    const char* reason = dlerror();
    if (error_.empty()) error_ = cat(what_, " cannot be loaded: ", reason ? reason : file);
  }
}

namespace {

template <class Table>
struct Loaded {
  Table table;
  std::string error;
  const Table& need() const {
    if (!error.empty())
      fail(ErrorCode::driver, error, "",
           "install it, or name its folder in the environment variable PELTON_CUDA_LIBS");
    return table;
  }
};

#define PELTON_GET(name) library.get(out->table.name, #name);

const Loaded<CublasLtTable>& load_cublas_lt() {
  static const auto* const loaded = [] {
    auto* out = new Loaded<CublasLtTable>;
    LibraryFile library("cuBLASLt", cat("libcublasLt.so.", CUBLAS_VER_MAJOR));
    PELTON_CUBLASLT_FUNCTIONS(PELTON_GET)
    out->error = library.error();
    return out;
  }();
  return *loaded;
}

const Loaded<CudnnTable>& load_cudnn() {
  static const auto* const loaded = [] {
    auto* out = new Loaded<CudnnTable>;
    LibraryFile library("cuDNN", cat("libcudnn.so.", CUDNN_MAJOR));
    PELTON_CUDNN_FUNCTIONS(PELTON_GET)
    out->error = library.error();
    return out;
  }();
  return *loaded;
}

const Loaded<NvrtcTable>& load_nvrtc() {
  static const auto* const loaded = [] {
    auto* out = new Loaded<NvrtcTable>;
    LibraryFile library("NVRTC", cat("libnvrtc.so.", CUDART_VERSION / 1000));
    PELTON_NVRTC_FUNCTIONS(PELTON_GET)
    out->error = library.error();
    return out;
  }();
  return *loaded;
}

#undef PELTON_GET

}  // namespace

const CublasLtTable& cublas_lt() {
  return load_cublas_lt().need();
}
const CudnnTable& cudnn() {
  return load_cudnn().need();
}
const NvrtcTable& nvrtc() {
  return load_nvrtc().need();
}

std::string missing_cublas_lt() {
  return load_cublas_lt().error;
}
std::string missing_cudnn() {
  return load_cudnn().error;
}
std::string missing_nvrtc() {
  return load_nvrtc().error;
}

}  // namespace pelton::backend::cuda
