/* SPDX-License-Identifier: Apache-2.0
 * From the start of a process to the first result of a model, and its peak memory after RUNS runs: Pelton or
 * ONNX Runtime, each opened by its C interface and nothing else in the process. benchmarks/load.py calls it.
 *
 * usage: load_fresh pelton|onnxruntime LIBRARY MODEL THREADS RUNS [NAME=AxBxC=FILE ...] [--optimised
 * FILE.ort]
 *
 * Each input comes as its raw bytes in a file. Prints one JSON object: wall_ms and processor_ms from the
 * first line of main, opening of the library included, to the first result; peak_bytes is VmHWM; sum and
 * square sum of the first output (f32).
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pelton/c/pelton.h"

enum { kMost = 64, kRank = 8 };

typedef struct {
  char* name;
  int64_t shape[kRank];
  size_t rank, bytes;
  void* data;
} Input;

static void stop(const char* what, const char* detail) {
  fprintf(stderr, "load_fresh: %s: %s\n", what, detail);
  exit(1);
}
static double ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
static double start_wall, wall_ms, processor_ms;
static void first_result(void) {
  wall_ms = ms(CLOCK_MONOTONIC) - start_wall;
  processor_ms = ms(CLOCK_PROCESS_CPUTIME_ID);
}
/* The high-water mark of resident pages; getrusage would count the parent's before exec. */
static long peak_kib(void) {
  char line[256];
  long kib = 0;
  FILE* f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f)) sscanf(line, "VmHWM: %ld", &kib);
  if (f) fclose(f);
  return kib;
}
static void* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (!found) stop("no such function", name);
  return found;
}
/* NAME=AxBxC=FILE; a scalar is NAME==FILE. */
static Input parse(char* text) {
  Input in = {0};
  char* shape = strchr(text, '=');
  char* file = shape ? strchr(shape + 1, '=') : NULL;
  if (!file) stop("not NAME=SHAPE=FILE", text);
  *shape++ = *file++ = 0;
  in.name = text;
  for (char* d = strtok(shape, "x"); d && in.rank < kRank; d = strtok(NULL, "x"))
    in.shape[in.rank++] = strtoll(d, NULL, 10);
  FILE* f = fopen(file, "rb");
  if (!f) stop("cannot open", file);
  fseek(f, 0, SEEK_END);
  in.bytes = (size_t)ftell(f);
  rewind(f);
  in.data = malloc(in.bytes);
  if (fread(in.data, 1, in.bytes, f) != in.bytes) stop("cannot read", file);
  fclose(f);
  return in;
}
static void report(const float* y, size_t count) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < count; ++i) sum += y[i], squares += (double)y[i] * y[i];
  printf(
      "{\"wall_ms\": %.3f, \"processor_ms\": %.3f, \"peak_bytes\": %ld, \"sum\": %.9g, \"squares\": %.9g}\n",
      wall_ms, processor_ms, peak_kib() * 1024, sum, squares);
}

#define P(name) __typeof__(&pelton_##name) name = (__typeof__(&pelton_##name))symbol(library, "pelton_" #name)
static void check(void* library, pelton_status status, pelton_error* error) {
  P(error_what);
  if (status) stop("pelton", error_what(error));
}
static void run_pelton(void* library, const char* model, int threads, int runs, Input* inputs, size_t count) {
  P(plan_options_init);
  P(plan_open);
  P(plan_input);
  P(plan_find_input);
  P(context_new);
  P(context_set_input);
  P(context_run);
  P(context_get_output);
  P(set_threads);
  pelton_error* error = NULL;
  check(library, set_threads(threads, &error), error);
  pelton_plan_options options;
  plan_options_init(&options);
  pelton_plan* plan = NULL;
  check(library, plan_open(model, &options, &plan, &error), error);
  pelton_context* context = NULL;
  check(library, context_new(plan, &context, &error), error);
  for (size_t i = 0; i < count; ++i) {
    size_t at = 0;
    pelton_value_info info = {0};
    info.size = sizeof info;
    check(library, plan_find_input(plan, inputs[i].name, &at, &error), error);
    check(library, plan_input(plan, at, &info, &error), error);
    pelton_tensor t = {inputs[i].data, {1, 0}, (int32_t)inputs[i].rank, info.dtype, inputs[i].shape, NULL, 0};
    check(library, context_set_input(context, at, &t, 0, &error), error);
  }
  pelton_managed_tensor* result = NULL;
  for (int r = 0; r < runs; ++r) {
    check(library, context_run(context, NULL, &error), error);
    if (r > 0) result->deleter(result);
    check(library, context_get_output(context, 0, &result, &error), error);
    if (r == 0) first_result();
  }
  size_t elements = 1;
  for (int32_t d = 0; d < result->tensor.ndim; ++d) elements *= (size_t)result->tensor.shape[d];
  report(result->tensor.data, elements);
}

/* Positions in ONNX Runtime's table of functions, which are fixed; its header is in no package that this
 * needs. */
enum {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSession = 7,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetOptimizedModelFilePath = 11,
  kSetSessionLogSeverityLevel = 22,
  kSetIntraOpNumThreads = 24,
  kSessionGetInputCount = 30,
  kSessionGetOutputCount = 31,
  kSessionGetInputTypeInfo = 33,
  kSessionGetInputName = 36,
  kSessionGetOutputName = 37,
  kCreateTensorWithDataAsOrtValue = 49,
  kGetTensorMutableData = 51,
  kCastTypeInfoToTensorInfo = 55,
  kGetTensorElementType = 60,
  kGetTensorShapeElementCount = 64,
  kGetTensorTypeAndShape = 65,
  kCreateCpuMemoryInfo = 69,
  kGetAllocatorWithDefaultOptions = 78,
  kReleaseValue = 96,
};
typedef struct {
  void** (*api)(uint32_t version);
  const char* (*version)(void);
} OrtBase;
static void** ort;
#define ORT(function, ...)                                                                    \
  do {                                                                                        \
    void* status = ((void* (*)())ort[function])(__VA_ARGS__);                                 \
    if (status) stop("onnxruntime", ((const char* (*)(void*))ort[kGetErrorMessage])(status)); \
  } while (0)

static void run_onnxruntime(void* library, const char* model, int threads, int runs, Input* inputs,
                            size_t count, const char* optimised) {
  const OrtBase* base = ((const OrtBase* (*)(void))symbol(library, "OrtGetApiBase"))();
  ort = base->api(14);
  if (!ort) stop("onnxruntime", "it does not know version 14 of its interface");
  void *env, *options, *session, *memory, *allocator;
  ORT(kCreateEnv, 3, "load", &env);
  ORT(kCreateSessionOptions, &options);
  ORT(kSetIntraOpNumThreads, options, threads);
  ORT(kSetSessionLogSeverityLevel, options, 3);
  if (optimised) ORT(kSetOptimizedModelFilePath, options, optimised);
  ORT(kCreateSession, env, model, options, &session);
  ORT(kCreateCpuMemoryInfo, 1, 0, &memory);
  ORT(kGetAllocatorWithDefaultOptions, &allocator);
  size_t takes, gives;
  ORT(kSessionGetInputCount, session, &takes);
  ORT(kSessionGetOutputCount, session, &gives);
  if (takes > kMost || gives > kMost) stop(model, "too many inputs or outputs");
  void *in[kMost], *out[kMost];
  char *in_names[kMost], *out_names[kMost];
  for (size_t i = 0; i < takes; ++i) {
    ORT(kSessionGetInputName, session, i, allocator, &in_names[i]);
    Input* given = NULL;
    for (size_t k = 0; k < count; ++k)
      if (!strcmp(inputs[k].name, in_names[i])) given = &inputs[k];
    if (!given) stop("no value for the input", in_names[i]);
    void *info, *tensor;
    int type;
    ORT(kSessionGetInputTypeInfo, session, i, &info);
    ORT(kCastTypeInfoToTensorInfo, info, &tensor);
    ORT(kGetTensorElementType, tensor, &type);
    ORT(kCreateTensorWithDataAsOrtValue, memory, given->data, given->bytes, given->shape, given->rank, type,
        &in[i]);
  }
  for (size_t i = 0; i < gives; ++i) ORT(kSessionGetOutputName, session, i, allocator, &out_names[i]);
  for (int r = 0; r < runs; ++r) {
    for (size_t i = 0; i < gives; ++i) {
      if (r > 0) ((void (*)(void*))ort[kReleaseValue])(out[i]);
      out[i] = NULL;
    }
    ORT(kRun, session, NULL, in_names, in, takes, out_names, gives, out);
    if (r == 0) first_result();
  }
  void *y, *info;
  size_t elements;
  ORT(kGetTensorMutableData, out[0], &y);
  ORT(kGetTensorTypeAndShape, out[0], &info);
  ORT(kGetTensorShapeElementCount, info, &elements);
  report(y, elements);
}

int main(int argc, char** argv) {
  start_wall = ms(CLOCK_MONOTONIC);
  if (argc < 6)
    stop("usage", "load_fresh pelton|onnxruntime LIBRARY MODEL THREADS RUNS [NAME=AxBxC=FILE ...]");
  Input inputs[kMost];
  size_t count = 0;
  const char* optimised = NULL;
  for (int i = 6; i < argc && count < kMost; ++i) {
    if (!strcmp(argv[i], "--optimised") && i + 1 < argc)
      optimised = argv[++i];
    else
      inputs[count++] = parse(argv[i]);
  }
  void* library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  if (!library) stop("cannot open", dlerror());
  const int threads = atoi(argv[4]), runs = atoi(argv[5]);
  if (!strcmp(argv[1], "pelton"))
    run_pelton(library, argv[3], threads, runs, inputs, count);
  else
    run_onnxruntime(library, argv[3], threads, runs, inputs, count, optimised);
  fflush(stdout);
  _Exit(0);
}
