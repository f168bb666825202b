/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops of your own: a shared library that exports pelton_plugin_table. It is loaded only where a user says so
 * (--plugin FILE, pelton_load_plugin); a model or plan can name an op of it by domain, name and version, but
 * never load it.
 *
 * Functions return 0, or anything else after writing a line of text for people to `message`.
 */
#pragma once

#include "pelton/c/pelton.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PELTON_PLUGIN_ABI 1

typedef struct pelton_op_value {
  pelton_dtype dtype; /* bits 0: the operand is absent, or no tensor with a DLPack type */
  int32_t ndim;
  const char* const* dims; /* sizes as text: "4", "N", "2*N + 1" */
  const int64_t* shape;    /* exact sizes; NULL in infer and refuse */
} pelton_op_value;

/* A node that uses the op. */
typedef struct pelton_op_call {
  size_t size;
  const char* attributes; /* as the model gives them, a JSON object; "" if there are none */
  size_t input_count, output_count;
  const pelton_op_value* inputs;
  const pelton_op_value* outputs; /* NULL in infer */
} pelton_op_call;

typedef struct pelton_message {
  char* text; /* ends with 0 */
  size_t capacity;
} pelton_message;

/* Passed to infer, which calls set_output for each result. */
typedef struct pelton_inference {
  size_t size;
  void* host;
  void (*set_output)(void* host, size_t index, pelton_dtype dtype, int32_t ndim, const char* const* dims);
} pelton_inference;

typedef struct pelton_op_buffers {
  size_t size;
  const void* const* in; /* dense, row-major; NULL: absent */
  void* const* out;
  void* scratch; /* 64-byte aligned */
} pelton_op_buffers;

typedef struct pelton_custom_op {
  size_t size;
  const char* domain;
  const char* name;
  int64_t version;
  uint64_t flags; /* 0: results share no bytes with operands, no effects. Others are not known to ABI 1. */
  /* Types of the results from those of the operands. Checks constraints. */
  int (*infer)(const pelton_op_call* call, const pelton_inference* out, pelton_message* message);
  /* Whether the kernel takes the node at every size; the message says why not. NULL: it takes any. */
  int (*refuse)(const pelton_op_call* call, pelton_message* message);
  /* Bytes of scratch memory a run needs. NULL: none. */
  int64_t (*scratch_bytes)(const pelton_op_call* call);
  /* State of one prepared node, shared by all threads and never changed; freed by `release`. NULL: none. */
  int (*prepare)(const pelton_op_call* call, void** state, pelton_message* message);
  void (*release)(void* state);
  /* Any number of threads at once. Allocates nothing, writes every element of every result. */
  void (*run)(const void* state, const pelton_op_call* call, const pelton_op_buffers* buffers);
  /* Later than the first release of ABI 1: `size` says whether it is there.
   * Name of the op, of the same domain, version and attributes, that computes the gradient; NULL: none, so
   * that the op cannot be trained through. Its operands: those of this op, its results, then the gradients of
   * the results (zeros where nothing depends on one). Its results: the gradients of the floating operands
   * that are present, in order. */
  const char* gradient;
} pelton_custom_op;

typedef struct pelton_plugin {
  size_t size;
  uint32_t abi;     /* PELTON_PLUGIN_ABI it was compiled with */
  const char* name; /* for messages */
  size_t op_count;
  const pelton_custom_op* ops; /* an array, all of the size that its first member says */
} pelton_plugin;

/* What the library exports. The table lives as long as the library. */
PELTON_API const pelton_plugin* pelton_plugin_table(void);

#ifdef __cplusplus
}
#endif
