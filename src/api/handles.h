// SPDX-License-Identifier: Apache-2.0
// What stands behind the handles of the C interface, and how exceptions become statuses.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "pelton/c/pelton.h"
#include "runtime/executable.h"

struct pelton_error {
  pelton_status status;
  std::string code, what, where, fix;
};

struct pelton_plan {
  struct Info {
    std::string name, type;
    pelton_dtype dtype{};
    int32_t ndim = -1;
    std::vector<int64_t> shape;
  };
  std::vector<Info> inputs, outputs;
  pelton::runtime::ExecutableOptions options;

  std::shared_ptr<const pelton::runtime::Executable> executable() const {
    std::lock_guard lock(mutex);
    return current;
  }
  mutable std::mutex mutex;
  std::shared_ptr<const pelton::runtime::Executable> current;  // replaced by refit
};

struct pelton_context {
  explicit pelton_context(std::shared_ptr<const pelton::runtime::Executable> e)
      : executable(std::move(e)), context(executable->context()) {}
  std::shared_ptr<const pelton::runtime::Executable> executable;
  pelton::runtime::Context context;
  std::vector<pelton::Tensor> inputs;  // as set: the caller's memory, or copies of it
  std::vector<pelton::ir::HostValue> outputs;
  // A caller's buffer for a result; data null: none.
  struct Bound {
    void* data = nullptr;
    bool device = false;
  };
  std::vector<Bound> bound, written;  // by output: for the next run, and what the last run wrote to
  std::atomic<bool> cancel{false};
  bool ran = false;
};

namespace pelton::api {

pelton_status report(const Error& e, pelton_error** error);

// Runs f; whatever it throws becomes a status and, if asked for, an error handle.
template <class F>
pelton_status guarded(pelton_error** error, F&& f) noexcept {
  if (error) *error = nullptr;
  try {
    f();
    return PELTON_OK;
  } catch (const Error& e) {
    return report(e, error);
  } catch (const std::bad_alloc&) {
    return report(Error(ErrorCode::out_of_memory, "the system gave no more memory"), error);
  } catch (const std::exception& e) {
    return report(Error(ErrorCode::internal, e.what()), error);
  } catch (...) {
    return report(Error(ErrorCode::internal, "an unknown exception"), error);
  }
}

template <class T>
T& need(T* handle, const char* what) {
  if (!handle) fail(ErrorCode::usage, cat(what, " is NULL"));
  return *handle;
}

// bits 0 for types that DLPack does not have.
pelton_dtype to_c(DType t);
DType from_c(pelton_dtype t);                                                 // bad_type
Dims dims_from_c(const int64_t* shape, int32_t ndim, std::string_view what);  // bad_shape for an absurd rank
// Borrows a dense tensor, wherever it lies; bad_type and bad_shape for others.
Tensor borrow(const pelton_tensor& t);
Tensor borrow_on_host(const pelton_tensor& t);  // bad_type for one that lies elsewhere
// Whether it lies on the GPU that the plan runs on, not in host memory; bad_type for any other place.
bool on_device(const pelton_tensor& t, const runtime::Executable& executable);

// The options as of this library: fields beyond the caller's size have their defaults.
pelton_plan_options options_of(const pelton_plan_options* options);
// usage for a stream where the executable has no GPU.
runtime::RunOptions run_options_of(const pelton_run_options* options, const pelton_context& context);

}  // namespace pelton::api
