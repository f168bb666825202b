/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface of Pelton: load or compile a model, run it from any number of threads.
 *
 * Rules for every call:
 * - Handles are opaque. Free each with its own function, in any order; freeing NULL does nothing.
 * - A call returns PELTON_OK or what went wrong. With a non-NULL `error` argument a failure stores a
 *   handle there that says more; free it. No exception ever leaves the library.
 * - Strings belong to the library and live as long as the handle they came from.
 * - Structs start with their size in bytes, so that they may grow: set it to sizeof before the call.
 *   Fields that this library does not know yet are ignored.
 * - Plans may be used by any number of threads at once; a context by one thread at a time, except
 *   pelton_context_cancel.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PELTON_API __attribute__((visibility("default")))
#else
#define PELTON_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define PELTON_ABI_VERSION 1

/* Version of this interface in the library that is loaded, and of the library as text ("0.1.0"). */
PELTON_API uint32_t pelton_abi_version(void);
PELTON_API const char* pelton_version(void);

/* ---- errors
 * ---------------------------------------------------------------------------------------------------- */

typedef enum pelton_status {
  PELTON_OK = 0,
  PELTON_USAGE = 1,
  PELTON_NOT_FOUND = 2,
  PELTON_IO = 3,
  PELTON_DISK_FULL = 4,
  PELTON_BAD_FORMAT = 5,
  PELTON_UNSUPPORTED_VERSION = 6,
  PELTON_UNSUPPORTED_OP = 7,
  PELTON_BAD_TYPE = 8,
  PELTON_BAD_SHAPE = 9,
  PELTON_BAD_NAME = 10,
  PELTON_LIMIT = 11,
  PELTON_OUT_OF_MEMORY = 12,
  PELTON_NO_DEVICE = 13,
  PELTON_DEVICE_LOST = 14,
  PELTON_DRIVER = 15,
  PELTON_PLUGIN = 16,
  PELTON_CANCELLED = 17,
  PELTON_DEADLINE = 18,
  PELTON_NUMERIC = 19,
  PELTON_BUSY = 20,
  PELTON_INTERNAL = 21
} pelton_status;

typedef struct pelton_error pelton_error;
PELTON_API pelton_status pelton_error_status(const pelton_error* error);
PELTON_API const char* pelton_error_code(const pelton_error* error);  /* "bad_shape" */
PELTON_API const char* pelton_error_what(const pelton_error* error);  /* what went wrong */
PELTON_API const char* pelton_error_where(const pelton_error* error); /* file, node, input; may be "" */
PELTON_API const char* pelton_error_fix(const pelton_error* error);   /* how to fix it; may be "" */
PELTON_API void pelton_error_free(pelton_error* error);

/* ---- tensors
 * ---------------------------------------------------------------------------------------------------- */

/* Same layout as DLDevice, DLDataType and DLTensor of DLPack; pointers to them may be cast. */
typedef enum pelton_device_type {
  PELTON_CPU = 1,
  PELTON_CUDA = 2,
  PELTON_CUDA_HOST = 3 /* pinned host memory */
} pelton_device_type;

typedef struct pelton_device {
  int32_t device_type; /* a pelton_device_type */
  int32_t device_id;   /* 0 for the host */
} pelton_device;

typedef struct pelton_dtype {
  uint8_t code; /* 0 signed, 1 unsigned, 2 IEEE float, 4 bfloat, 6 bool */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} pelton_dtype;

typedef struct pelton_tensor {
  void* data;
  pelton_device device;
  int32_t ndim;
  pelton_dtype dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; NULL: dense, row-major. Only dense tensors are taken. */
  uint64_t byte_offset;
} pelton_tensor;

/* Same layout as DLManagedTensor: whoever gets one calls its deleter once. */
typedef struct pelton_managed_tensor {
  pelton_tensor tensor;
  void* manager_context;
  void (*deleter)(struct pelton_managed_tensor* self);
} pelton_managed_tensor;

/* ---- plans
 * ------------------------------------------------------------------------------------------------------ */

typedef struct pelton_plan pelton_plan;

typedef struct pelton_plan_options {
  size_t size;
  const char* device;          /* "cpu", "auto"; NULL: auto */
  int32_t threads;             /* 0: the process's pool as it is */
  int32_t max_contexts;        /* 0: no limit */
  int64_t wait_ns;             /* for a free context; -1: as long as it takes, 0: PELTON_BUSY at once */
  int64_t memory_budget_bytes; /* 0: no limit */
  /* When a model is compiled: */
  const char* precision;     /* "fp32", "bf16"; NULL: fp32 */
  const char* const* shapes; /* "name=1x3x224x224", sizes that vary as min:opt:max */
  size_t shape_count;
} pelton_plan_options;
PELTON_API void pelton_plan_options_init(pelton_plan_options* options); /* sets size and the defaults */

/* From a plan file as it is, or from an ONNX or IR text file by compiling it. `options` may be NULL. */
PELTON_API pelton_status pelton_plan_open(const char* path, const pelton_plan_options* options,
                                          pelton_plan** plan, pelton_error** error);
PELTON_API pelton_status pelton_plan_save(const pelton_plan* plan, const char* path, pelton_error** error);
PELTON_API void pelton_plan_free(pelton_plan* plan);

typedef struct pelton_value_info {
  size_t size;
  const char* name;
  const char* type;     /* "f32[N,3,224,224]" */
  pelton_dtype dtype;   /* bits 0: strings or no tensor */
  int32_t ndim;         /* -1: not a tensor or of unknown rank */
  const int64_t* shape; /* -1: may vary */
} pelton_value_info;
PELTON_API size_t pelton_plan_input_count(const pelton_plan* plan);
PELTON_API size_t pelton_plan_output_count(const pelton_plan* plan);
PELTON_API pelton_status pelton_plan_input(const pelton_plan* plan, size_t index, pelton_value_info* info,
                                           pelton_error** error);
PELTON_API pelton_status pelton_plan_output(const pelton_plan* plan, size_t index, pelton_value_info* info,
                                            pelton_error** error);
/* Index by name; PELTON_BAD_NAME lists the names there are. */
PELTON_API pelton_status pelton_plan_find_input(const pelton_plan* plan, const char* name, size_t* index,
                                                pelton_error** error);
PELTON_API pelton_status pelton_plan_find_output(const pelton_plan* plan, const char* name, size_t* index,
                                                 pelton_error** error);

typedef struct pelton_memory {
  size_t size;
  int64_t weights_bytes; /* of the plan, shared by plans with the same content */
  int64_t packed_bytes;  /* weights re-ordered for kernels */
  int64_t arena_bytes;   /* of one context */
  int64_t scratch_bytes; /* of one context, part of the arena */
  int64_t contexts;      /* that exist now */
} pelton_memory;
/* For the input shapes given (one dims pointer and rank an input) before anything runs; NULL: for those used
 * so far. */
PELTON_API pelton_status pelton_plan_memory(const pelton_plan* plan, const int64_t* const* shapes,
                                            const int32_t* ndims, pelton_memory* memory,
                                            pelton_error** error);

/* New values for weights by name, without compiling. Contexts made before keep the old ones. All or nothing.
 */
PELTON_API pelton_status pelton_plan_refit(pelton_plan* plan, const char* const* names,
                                           const pelton_tensor* values, size_t count, pelton_error** error);

/* ---- running
 * ---------------------------------------------------------------------------------------------------- */

typedef struct pelton_context pelton_context;

PELTON_API pelton_status pelton_context_new(const pelton_plan* plan, pelton_context** context,
                                            pelton_error** error);
PELTON_API void pelton_context_free(pelton_context* context);

/* The run reads from this buffer: nothing is copied, so it must stay valid and unchanged until the runs that
 * use it are over. `copy` nonzero: the bytes are copied now (host memory only). Memory of the GPU that the
 * plan runs on is taken as well, at addresses that are multiples of 16. */
PELTON_API pelton_status pelton_context_set_input(pelton_context* context, size_t index,
                                                  const pelton_tensor* tensor, int copy,
                                                  pelton_error** error);
/* The run writes to this buffer, of the host or of the plan's GPU, which must be as large as the result and
 * overlap no input. data NULL: back to buffers of the library's own. */
PELTON_API pelton_status pelton_context_set_output(pelton_context* context, size_t index,
                                                   const pelton_tensor* tensor, pelton_error** error);
/* Shape of a result for the inputs set now; `*ndim` entries are written, at most `capacity`. PELTON_BAD_SHAPE
 * where it depends on data. */
PELTON_API pelton_status pelton_context_output_shape(pelton_context* context, size_t index, int64_t* shape,
                                                     int32_t capacity, int32_t* ndim, pelton_error** error);

typedef struct pelton_run_options {
  size_t size;
  uint64_t seed; /* of random ops */
  uint64_t step;
  int64_t timeout_ns; /* from the call on; 0: none. PELTON_DEADLINE when it has passed */
  /* Plans on a GPU: the cudaStream_t that the run is enqueued on; where every result is bound in GPU memory,
   * the call returns without waiting for it. NULL: a stream of the context's own, waited for. */
  void* stream;
} pelton_run_options;

PELTON_API pelton_status pelton_context_run(pelton_context* context, const pelton_run_options* options,
                                            pelton_error** error);
/* From any thread: the run that is on, and only that one, ends with PELTON_CANCELLED between two nodes. */
PELTON_API void pelton_context_cancel(pelton_context* context);
/* A result of the last run. It owns its bytes, or is the caller's own buffer, on its device, where one was
 * set. */
PELTON_API pelton_status pelton_context_get_output(pelton_context* context, size_t index,
                                                   pelton_managed_tensor** tensor, pelton_error** error);

/* A run on a thread of its own. The context may not be used until the future is waited for or freed (which
 * waits). */
typedef struct pelton_future pelton_future;
PELTON_API pelton_status pelton_context_run_async(pelton_context* context, const pelton_run_options* options,
                                                  pelton_future** future, pelton_error** error);
/* What the run returned; PELTON_BUSY if it is not over within `timeout_ns` (-1: wait as long as it takes). */
PELTON_API pelton_status pelton_future_wait(pelton_future* future, int64_t timeout_ns, pelton_error** error);
PELTON_API void pelton_future_free(pelton_future* future);

/* ---- process
 * ---------------------------------------------------------------------------------------------------- */

/* Threads that work at the same time, callers included; 0: all this process may use. Not during a run. */
PELTON_API pelton_status pelton_set_threads(int32_t threads, pelton_error** error);

/* Makes the ops of a shared library (pelton/c/plugin.h) known. Models and plans never load one themselves. */
PELTON_API pelton_status pelton_load_plugin(const char* path, pelton_error** error);

/* Messages go to `sink` instead of standard error; level 0 trace .. 4 error, 5 none. NULL: standard error
 * again. */
typedef void (*pelton_log_sink)(void* user, int32_t level, const char* message);
PELTON_API void pelton_set_log(pelton_log_sink sink, void* user, int32_t level);

#ifdef __cplusplus
}
#endif
