/* SPDX-License-Identifier: Apache-2.0 */
/* Engines of users for the server: a shared library that exports pelton_engine() and is named on the command
 * line, pelton serve --engine NAME=FILE. Models ask for it with backend: "NAME". examples/engine has a small
 * one.
 *
 * Calls may come from any thread, but those of one instance never at the same time. Pointers are valid during
 * the call they are given to. Functions that return int return 0, or 1 after they wrote a reason to `error`.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PELTON_ENGINE_ABI 1

typedef struct {
  const char* name;
  const char* datatype; /* as in the protocol: "FP32"; elements of "BYTES" lie behind 4-byte lengths */
  const int64_t* shape;
  size_t rank;
  const void* data; /* dense, little-endian, perhaps unaligned */
  size_t bytes;
} pelton_engine_tensor;

/* One request of a batch. `answer` is passed back to the functions below. */
typedef struct {
  const pelton_engine_tensor* inputs;
  size_t input_count;
  void* answer;
} pelton_engine_request;

typedef struct {
  /* Adds an output and returns where its `bytes` bytes go, aligned to 64; NULL if there is no memory. */
  void* (*output)(void* answer, const char* name, const char* datatype, const int64_t* shape, size_t rank,
                  size_t bytes);
  /* Fails this request alone. */
  void (*fail)(void* answer, const char* reason);
  /* Whether the client has gone: 1 or 0. */
  int (*cancelled)(void* answer);
} pelton_engine_answers;

typedef struct {
  uint32_t abi; /* PELTON_ENGINE_ABI */
  /* `config_json` is the model's configuration, `folder` that of the model. */
  int (*load)(const char* config_json, const char* folder, int64_t version, void** model, char* error,
              size_t error_size);
  void (*unload)(void* model);
  int (*open_instance)(void* model, int index, void** instance, char* error, size_t error_size);
  void (*close_instance)(void* instance);
  /* Returning 1 fails the whole batch. */
  int (*execute)(void* instance, const pelton_engine_request* requests, size_t count,
                 const pelton_engine_answers* answers, char* error, size_t error_size);
} pelton_engine_api;

/* The one exported function. */
const pelton_engine_api* pelton_engine(void);

#ifdef __cplusplus
}
#endif
