// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/compiled.h"

#include <future>
#include <map>
#include <mutex>

#include "backend/cuda/cubin.h"
#include "backend/cuda/kept.h"
#include "backend/cuda/libraries.h"
#include "base/hash.h"
#include "base/log.h"
#include "runtime/version.h"

namespace pelton::backend::cuda {
namespace {

void check_nvrtc(nvrtcResult result, std::string_view call) {
  if (result != NVRTC_SUCCESS)
    fail(ErrorCode::driver, cat(call, " failed: ", nvrtc().nvrtcGetErrorString(result)));
}

void destroy_program(nvrtcProgram program) {
  nvrtc().nvrtcDestroyProgram(&program);
}
using ProgramHandle = Handle<nvrtcProgram, destroy_program>;

std::string run_compiler(const std::string& text, int sm) {
  ProgramHandle program;
  check_nvrtc(nvrtc().nvrtcCreateProgram(program.out(), text.c_str(), "kernel.cu", 0, nullptr, nullptr),
              "nvrtcCreateProgram");
  std::string arch = cat("--gpu-architecture=sm_", sm);
  const char* options[] = {arch.c_str(), "--std=c++17"};
  nvrtcResult result = nvrtc().nvrtcCompileProgram(program.get(), 2, options);
  if (result != NVRTC_SUCCESS) {
    size_t size = 0;
    std::string log;
    if (nvrtc().nvrtcGetProgramLogSize(program.get(), &size) == NVRTC_SUCCESS && size > 1) {
      log.resize(size - 1);
      nvrtc().nvrtcGetProgramLog(program.get(), log.data());
    }
    PELTON_CHECK(result != NVRTC_ERROR_COMPILATION, "generated kernel does not compile: ", log, "\n", text);
    check_nvrtc(result, "nvrtcCompileProgram");
  }
  size_t size = 0;
  check_nvrtc(nvrtc().nvrtcGetCUBINSize(program.get(), &size), "nvrtcGetCUBINSize");
  std::string cubin(size, '\0');
  check_nvrtc(nvrtc().nvrtcGetCUBIN(program.get(), cubin.data()), "nvrtcGetCUBIN");
  return cubin;
}

// With its cubin, for plans that come to need the kernel while it is loaded.
struct Made : LoadedKernel {
  explicit Made(std::string bytes, const char* entry)
      : LoadedKernel(load_kernel(std::vector<char>(bytes.begin(), bytes.end()), entry)),
        cubin(std::move(bytes)) {}
  std::string cubin;
};
using Loaded = std::shared_ptr<const Made>;
struct Known {
  std::weak_ptr<const Made> loaded;
  std::shared_future<Loaded> pending;
};

// Where the compiler is missing, what the one that this build knows has made will do.
std::string compiler_version() {
  int major = CUDART_VERSION / 1000, minor = CUDART_VERSION % 1000 / 10;
  if (missing_nvrtc().empty()) check_nvrtc(nvrtc().nvrtcVersion(&major, &minor), "nvrtcVersion");
  return cat(major, ".", minor);
}

std::string key_of(const std::string& text, int sm) {
  static const std::string compiler = compiler_version();
  return cat("sm_", sm, " nvrtc ", compiler, " pelton ", version(), "\n", text);
}

Loaded kept_with_plan(Loaded kernel, const std::string& text, int sm) {
  keep_with_plan("kernels", key_of(text, sm), kernel->cubin);
  return kernel;
}

std::string compile_and_keep(const std::string& text, int sm) {
  std::string cubin = run_compiler(text, sm);
  keep("kernels", key_of(text, sm), cubin);
  return cubin;
}

// What a plan or a cache brings may be damaged: it is then made again. The driver takes no size, so the file
// has to be whole before it sees it.
Loaded load(const std::string& text, const std::string& entry, int sm) {
  if (std::optional<std::string> kept = find_kept("kernels", key_of(text, sm))) {
    std::string why = why_no_cubin(*kept);
    if (why.empty()) try {
        return std::make_shared<const Made>(std::move(*kept), entry.c_str());
      } catch (const Error& e) {
        if (e.code() != ErrorCode::driver) throw;
        why = e.message();
      }
    log_warn(cat("a kept kernel cannot be used and is compiled again: ", why));
  }
  return std::make_shared<const Made>(compile_and_keep(text, sm), entry.c_str());
}

}  // namespace

std::string compile_cubin(const std::string& text, int sm) {
  if (auto cubin = find_kept("kernels", key_of(text, sm)); cubin && why_no_cubin(*cubin).empty())
    return std::move(*cubin);
  return compile_and_keep(text, sm);
}

std::shared_ptr<const LoadedKernel> compiled(const std::string& text, const std::string& entry, int sm) {
  static auto* const known = new std::map<std::pair<int, Digest>, Known>;
  static std::mutex mutex;
  int device = 0;
  PELTON_CUDA(cudaGetDevice(&device));
  std::pair<int, Digest> key(device, sha256(text));
  std::promise<Loaded> promise;
  std::shared_future<Loaded> wait;
  {
    std::lock_guard lock(mutex);
    Known& k = (*known)[key];
    if (auto alive = k.loaded.lock()) return kept_with_plan(alive, text, sm);
    wait = k.pending;
    if (!wait.valid()) k.pending = promise.get_future().share();
  }
  if (wait.valid()) return kept_with_plan(wait.get(), text, sm);
  try {
    Loaded made = load(text, entry, sm);
    promise.set_value(made);
    std::lock_guard lock(mutex);
    (*known)[key] = {made, {}};
    return made;
  } catch (...) {
    promise.set_exception(std::current_exception());
    std::lock_guard lock(mutex);
    (*known)[key] = {};
    throw;
  }
}

}  // namespace pelton::backend::cuda
