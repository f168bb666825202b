/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops and kernels of your own: a shared library that exports pelton_plugin_table. It is loaded only where a
 * user says so (--plugin FILE, pelton_load_plugin); a model or plan can name an op of it by domain, name and
 * version, but never load it.
 *
 * Functions return 0, or anything else after writing a line of text for people to `message`.
 */
#pragma once

#include "pelton/c/pelton.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PELTON_PLUGIN_ABI 2

typedef struct pelton_op_value {
  pelton_dtype dtype; /* bits 0: the operand is absent, or no tensor with a DLPack type */
  int32_t ndim;
  const char* const* dims; /* sizes as text: "4", "N", "2*N + 1" */
  const int64_t* shape;    /* exact sizes; NULL in infer, refuse, decompose and build_gradient */
  const char* layout;      /* "plain", "channels_last" or "blocked N"; anything but plain only if asked for */
  const void* constant;    /* in prepare: the operand's bytes, where they never change; else NULL */
} pelton_op_value;

/* A node that uses the op. */
typedef struct pelton_op_call {
  size_t size;
  const char* attributes; /* a JSON object; "" if there are none */
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

/* A value of a graph that a function builds. 0: none. */
typedef uint32_t pelton_ir_value;

/* Passed to decompose and build_gradient. */
typedef struct pelton_ir_builder {
  size_t size;
  void* host;
  /* Adds a node: an op of the table (docs/numerics.md lists them) with attributes as the text form of graphs
   * writes them, such as "axes = [-1], keep_dims = true"; NULL or "" for none. A number is the op "constant"
   * with "value = tensor<f32[]>{2}". After a failure, which the host reports, every call fails. */
  int (*op)(void* host, const char* op, size_t input_count, const pelton_ir_value* inputs,
            const char* attributes, size_t output_count, pelton_ir_value* outputs);
} pelton_ir_builder;

typedef struct pelton_op_buffers {
  size_t size;
  const void* const* in; /* dense, row-major unless the layout says otherwise; NULL: absent */
  void* const* out;
  void* scratch; /* 64-byte aligned */
  void* context; /* context_bytes of memory that this node keeps from run to run; NULL: none */
  void* stream;  /* kernels of a GPU: the cudaStream_t to enqueue on; everything else is a device address */
} pelton_op_buffers;

/* The op takes a token as its last operand and yields one as its last result, which order it among others
 * with effects; the function tables do not show them. It is never removed, merged or run at compile time. */
#define PELTON_OP_EFFECTS 1u
/* The kernel reads an element of an operand before it writes the same element of the only result, so that
 * both may be the same memory where type and shape are. */
#define PELTON_OP_IN_PLACE 2u

typedef struct pelton_custom_op {
  size_t size;
  const char* domain;
  const char* name;
  int64_t version;
  uint64_t flags; /* PELTON_OP_...; 0: results share no bytes with operands, no effects */
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
  /* Name of the op, of the same domain, version and attributes, that computes the gradient. Its operands:
   * those of this op, its results, then the gradients of the results (zeros where nothing depends on one).
   * Its results: the gradients of the floating operands that are present, in order. NULL: see build_gradient.
   */
  const char* gradient;
  /* Memory that a node keeps from run to run, one block a context: zeros before the first run and after the
   * context went back to its pool. NULL: none. */
  int64_t (*context_bytes)(const pelton_op_call* call);
  /* The results in ops of the table: what runs where no kernel takes the node, and what `pelton verify`
   * compares with. NULL: the kernel is the only definition. */
  int (*decompose)(const pelton_op_call* call, const pelton_ir_builder* build,
                   const pelton_ir_value* operands, pelton_ir_value* results, pelton_message* message);
  /* The gradients of the operands (0: none) in ops of the table. result_gradients: 0 where nothing depends on
   * one. NULL: `gradient`, else through decompose, else the op cannot be trained through. */
  int (*build_gradient)(const pelton_op_call* call, const pelton_ir_builder* build,
                        const pelton_ir_value* operands, const pelton_ir_value* results,
                        const pelton_ir_value* result_gradients, pelton_ir_value* operand_gradients,
                        pelton_message* message);
} pelton_custom_op;

/* The kernel takes operands and results in any layout; `refuse` looks at pelton_op_value.layout. */
#define PELTON_KERNEL_ANY_LAYOUT 1u
/* Of a GPU: `run` waits for the stream, or looks at what changes between runs, so that it cannot be recorded
 * once and played again. It is then called in every run, between what is played. */
#define PELTON_KERNEL_NOT_RECORDED 2u

/* One more implementation: of a built-in op, which is then preferred to those of the library where `refuse`
 * takes the node, or of a custom op for another device, type or layout. */
typedef struct pelton_implementation {
  size_t size;
  const char* name;   /* as reports and plans name it, "acme.softmax": a dot in it, and no one else's */
  const char* op;     /* "softmax", or "DOMAIN::NAME" */
  int64_t version;    /* of a custom op; of a built-in one 0 */
  const char* device; /* "cpu" or "cuda" */
  uint64_t flags;     /* PELTON_KERNEL_... */
  int (*refuse)(const pelton_op_call* call, pelton_message* message);
  int64_t (*scratch_bytes)(const pelton_op_call* call);
  int (*prepare)(const pelton_op_call* call, void** state, pelton_message* message);
  void (*release)(void* state);
  void (*run)(const void* state, const pelton_op_call* call, const pelton_op_buffers* buffers);
} pelton_implementation;

typedef struct pelton_plugin {
  size_t size;
  uint32_t abi;     /* PELTON_PLUGIN_ABI it was compiled with */
  const char* name; /* for messages */
  size_t op_count;
  const pelton_custom_op* ops; /* an array, all of the size that its first member says */
  size_t implementation_count;
  const pelton_implementation* implementations; /* likewise. Loaded before the first model only. */
} pelton_plugin;

/* What the library exports. The table lives as long as the library. */
PELTON_API const pelton_plugin* pelton_plugin_table(void);

#ifdef __cplusplus
}
#endif
