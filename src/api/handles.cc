// SPDX-License-Identifier: Apache-2.0
#include "api/handles.h"

#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "runtime/plugin.h"
#include "runtime/version.h"
#include "tensor/dlpack.h"

namespace pelton::api {
namespace {

static_assert(static_cast<int>(ErrorCode::internal) + 1 == PELTON_INTERNAL,
              "statuses follow the error codes");

// The caller's struct, cut to what both sides know, over the defaults in `out`.
template <class T>
void merge(T& out, const T* given) {
  if (!given) return;
  if (given->size < sizeof(size_t)) fail(ErrorCode::usage, "the size of an options struct is not set");
  size_t size = out.size;
  std::memcpy(&out, given, std::min(given->size, sizeof(T)));
  out.size = size;
}

bool on_host(const pelton_tensor& t) {
  return t.device.device_type == PELTON_CPU || t.device.device_type == PELTON_CUDA_HOST;
}

}  // namespace

pelton_status report(const Error& e, pelton_error** error) {
  auto status = static_cast<pelton_status>(static_cast<int>(e.code()) + 1);
  if (error) {
    try {
      *error = new pelton_error{status, std::string(to_string(e.code())), e.message(), e.where(), e.fix()};
    } catch (const std::bad_alloc&) {
      *error = nullptr;
    }
  }
  return status;
}

pelton_dtype to_c(DType t) {
  pelton_dtype out{0, 0, 1};
  to_dlpack(t, &out.code, &out.bits);
  return out;
}

DType from_c(pelton_dtype t) {
  auto found = from_dlpack(t.code, t.bits);
  if (found && t.lanes == 1) return *found;
  fail(ErrorCode::bad_type,
       cat("there is no element type of DLPack code ", t.code, ", ", t.bits, " bits, ", t.lanes, " lanes"));
}

Dims dims_from_c(const int64_t* shape, int32_t ndim, std::string_view what) {
  constexpr int32_t kMost = 64;  // what lies behind a shape that is not one is not read
  if (ndim < 0 || ndim > kMost)
    fail(ErrorCode::bad_shape, cat(what, " has a rank of ", ndim, ", expected 0 to ", kMost));
  if (ndim > 0) need(shape, "a shape");
  return Dims(shape, shape + ndim);
}

Tensor borrow(const pelton_tensor& t) {
  Dims dims = dims_from_c(t.shape, t.ndim, "the tensor");
  int64_t count = element_count(dims);
  if (t.strides && count > 0) {
    Dims dense = row_major_strides(dims);
    for (size_t i = 0; i < dims.size(); ++i)
      if (dims[i] > 1 && t.strides[i] != dense[i])
        fail(ErrorCode::bad_shape,
             cat("the tensor of shape ", dims, " is not dense: stride ", t.strides[i], " along axis ", i,
                 ", expected ", dense[i]),
             "", "copy it to a dense one first");
  }
  if (count > 0 && !t.data) fail(ErrorCode::usage, "the tensor has no data");
  return Tensor::borrow(from_c(t.dtype), std::move(dims), static_cast<const char*>(t.data) + t.byte_offset,
                        nullptr);
}

Tensor borrow_on_host(const pelton_tensor& t) {
  if (!on_host(t))
    fail(ErrorCode::bad_type,
         cat("the tensor lies on a device of type ", t.device.device_type, ", not in host memory"), "",
         "copy it to the host");
  return borrow(t);
}

bool on_device(const pelton_tensor& t, const runtime::Executable& executable) {
  const auto [type, id] = t.device;
  if (on_host(t)) return false;
  if (type != PELTON_CUDA)
    fail(ErrorCode::bad_type, cat("the tensor lies on a device of type ", type), "",
         "give a tensor of type 1 (CPU), 2 (CUDA) or 3 (pinned host memory)");
  if (!executable.device())
    fail(ErrorCode::bad_type, "the tensor lies on a GPU, the plan runs on the CPU", "",
         "copy the tensor to the host, or open the plan with device \"cuda\"");
  if (int ordinal = executable.target().ordinal; id != ordinal)
    fail(ErrorCode::bad_type, cat("the tensor lies on GPU ", id, ", the plan runs on GPU ", ordinal), "",
         cat("open the plan with device \"cuda:", id, "\""));
  return true;
}

pelton_plan_options options_of(const pelton_plan_options* options) {
  pelton_plan_options out;
  pelton_plan_options_init(&out);
  merge(out, options);
  return out;
}

runtime::RunOptions run_options_of(const pelton_run_options* options, const pelton_context& context) {
  pelton_run_options given{sizeof(pelton_run_options), 0, 0, 0, nullptr};
  merge(given, options);
  runtime::RunOptions out;
  out.random = {given.seed, given.step};
  out.cancel = &context.cancel;
  if (given.stream && !context.executable->device())
    fail(ErrorCode::usage, "a stream was given, the plan runs on the CPU", "", "leave it NULL");
  out.stream = given.stream;
  if (given.timeout_ns > 0) out.deadline_ns = now_ns() + given.timeout_ns;
  return out;
}

}  // namespace pelton::api

extern "C" {

uint32_t pelton_abi_version(void) {
  return PELTON_ABI_VERSION;
}
const char* pelton_version(void) {
  return pelton::version().data();
}

pelton_status pelton_error_status(const pelton_error* e) {
  return e ? e->status : PELTON_OK;
}
const char* pelton_error_code(const pelton_error* e) {
  return e ? e->code.c_str() : "";
}
const char* pelton_error_what(const pelton_error* e) {
  return e ? e->what.c_str() : "";
}
const char* pelton_error_where(const pelton_error* e) {
  return e ? e->where.c_str() : "";
}
const char* pelton_error_fix(const pelton_error* e) {
  return e ? e->fix.c_str() : "";
}
void pelton_error_free(pelton_error* e) {
  delete e;
}

pelton_status pelton_set_threads(int32_t threads, pelton_error** error) {
  return pelton::api::guarded(error, [&] { pelton::set_threads(threads); });
}

pelton_status pelton_load_plugin(const char* path, pelton_error** error) {
  return pelton::api::guarded(error, [&] { pelton::runtime::load_plugin(&pelton::api::need(path, "path")); });
}

void pelton_set_log(pelton_log_sink sink, void* user, int32_t level) {
  struct Sink {
    pelton_log_sink call;
    void* user;
  };
  if (level >= 0 && level <= 5) pelton::set_log_level(static_cast<pelton::LogLevel>(level));
  if (!sink) return pelton::set_log_sink(nullptr, nullptr);
  // Never freed: another thread may be inside it.
  auto* const made = new (std::nothrow) Sink{sink, user};
  if (!made) return;
  pelton::set_log_sink(
      [](void* to, pelton::LogLevel l, const char* message) {
        const auto* s = static_cast<const Sink*>(to);
        s->call(s->user, static_cast<int32_t>(l), message);
      },
      made);
}

}  // extern "C"
