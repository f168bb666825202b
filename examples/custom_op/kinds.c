/* SPDX-License-Identifier: Apache-2.0
 * What else a plug-in may hold:
 *   example::scale_shift version 1   y = x * scale + shift (f32, attributes), with a decomposition, so that
 * it runs on every device, and a gradient built from ops of the table example::run_number version 1    y = x
 * + the number of runs before in this context: memory that a context keeps, and an effect, so that it is
 * never left out example.neg                      one more implementation of the built-in op neg, for f32
 *
 *   cc -shared -fPIC -O2 -Iinclude examples/custom_op/kinds.c -o kinds.so
 *   pelton inspect model.onnx --support --plugin ./kinds.so
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pelton/c/plugin.h"

static int needs_f32(const pelton_op_call* call, pelton_message* message) {
  const pelton_dtype t = call->inputs[0].dtype;
  if (t.code == 2 && t.bits == 32) return 0;
  snprintf(message->text, message->capacity, "needs f32");
  return 1;
}

static int infer_same(const pelton_op_call* call, const pelton_inference* out, pelton_message* message) {
  if (call->input_count != 1 || call->output_count != 1) {
    snprintf(message->text, message->capacity, "takes one tensor and yields one");
    return 1;
  }
  out->set_output(out->host, 0, call->inputs[0].dtype, call->inputs[0].ndim, call->inputs[0].dims);
  return 0;
}

static int64_t elements(const pelton_op_value* v) {
  int64_t n = 1;
  for (int32_t d = 0; d < v->ndim; ++d) n *= v->shape[d];
  return n;
}

static double number(const char* attributes, const char* name, double otherwise) {
  char key[32];
  snprintf(key, sizeof key, "\"%s\"", name);
  const char* at = strstr(attributes, key);
  if (!at || !(at = strchr(at, ':'))) return otherwise;
  return strtod(at + 1, NULL);
}

/* ---- scale_shift: x[...] ---- */

typedef struct {
  float scale, shift;
} scale_shift;

static int prepare_scale_shift(const pelton_op_call* call, void** state, pelton_message* message) {
  scale_shift* s = malloc(sizeof *s);
  if (!s) {
    snprintf(message->text, message->capacity, "no memory");
    return 1;
  }
  s->scale = (float)number(call->attributes, "scale", 1);
  s->shift = (float)number(call->attributes, "shift", 0);
  *state = s;
  return 0;
}

static void run_scale_shift(const void* state, const pelton_op_call* call, const pelton_op_buffers* buffers) {
  const scale_shift* s = state;
  const float* in = buffers->in[0];
  float* out = buffers->out[0];
  for (int64_t i = 0, n = elements(&call->inputs[0]); i < n; ++i) out[i] = in[i] * s->scale + s->shift;
}

static pelton_ir_value constant(const pelton_ir_builder* build, double value) {
  char attributes[64];
  pelton_ir_value out = 0;
  snprintf(attributes, sizeof attributes, "value = tensor<f32[]>{%.9g}", value);
  build->op(build->host, "constant", 0, NULL, attributes, 1, &out);
  return out;
}

/* A failure of the builder is known to the host, which reports it. */
static pelton_ir_value binary(const pelton_ir_builder* build, const char* op, pelton_ir_value a,
                              pelton_ir_value b) {
  const pelton_ir_value operands[] = {a, b};
  pelton_ir_value out = 0;
  build->op(build->host, op, 2, operands, NULL, 1, &out);
  return out;
}

static int decompose_scale_shift(const pelton_op_call* call, const pelton_ir_builder* build,
                                 const pelton_ir_value* operands, pelton_ir_value* results,
                                 pelton_message* message) {
  (void)message;
  const pelton_ir_value scaled =
      binary(build, "mul", operands[0], constant(build, number(call->attributes, "scale", 1)));
  results[0] = binary(build, "add", scaled, constant(build, number(call->attributes, "shift", 0)));
  return 0;
}

static int gradient_of_scale_shift(const pelton_op_call* call, const pelton_ir_builder* build,
                                   const pelton_ir_value* operands, const pelton_ir_value* results,
                                   const pelton_ir_value* result_gradients,
                                   pelton_ir_value* operand_gradients, pelton_message* message) {
  (void)operands, (void)results, (void)message;
  operand_gradients[0] =
      binary(build, "mul", result_gradients[0], constant(build, number(call->attributes, "scale", 1)));
  return 0;
}

/* ---- run_number: x[...] ---- */

static int64_t run_number_bytes(const pelton_op_call* call) {
  (void)call;
  return sizeof(int64_t);
}

static void run_run_number(const void* state, const pelton_op_call* call, const pelton_op_buffers* buffers) {
  (void)state;
  int64_t* runs = buffers->context;
  const float* in = buffers->in[0];
  float* out = buffers->out[0];
  for (int64_t i = 0, n = elements(&call->inputs[0]); i < n; ++i) out[i] = in[i] + (float)*runs;
  ++*runs;
}

/* ---- neg: x[...] ---- */

static void run_neg(const void* state, const pelton_op_call* call, const pelton_op_buffers* buffers) {
  (void)state;
  const float* in = buffers->in[0];
  float* out = buffers->out[0];
  for (int64_t i = 0, n = elements(&call->inputs[0]); i < n; ++i) out[i] = -in[i];
}

static const pelton_custom_op ops[] = {{.size = sizeof(pelton_custom_op),
                                        .domain = "example",
                                        .name = "scale_shift",
                                        .version = 1,
                                        .flags = PELTON_OP_IN_PLACE,
                                        .infer = infer_same,
                                        .refuse = needs_f32,
                                        .prepare = prepare_scale_shift,
                                        .release = free,
                                        .run = run_scale_shift,
                                        .decompose = decompose_scale_shift,
                                        .build_gradient = gradient_of_scale_shift},
                                       {.size = sizeof(pelton_custom_op),
                                        .domain = "example",
                                        .name = "run_number",
                                        .version = 1,
                                        .flags = PELTON_OP_EFFECTS,
                                        .infer = infer_same,
                                        .refuse = needs_f32,
                                        .run = run_run_number,
                                        .context_bytes = run_number_bytes}};
static const pelton_implementation implementations[] = {{.size = sizeof(pelton_implementation),
                                                         .name = "example.neg",
                                                         .op = "neg",
                                                         .device = "cpu",
                                                         .refuse = needs_f32,
                                                         .run = run_neg}};
static const pelton_plugin table = {sizeof(pelton_plugin), PELTON_PLUGIN_ABI, "kinds", 2, ops, 1,
                                    implementations};

const pelton_plugin* pelton_plugin_table(void) {
  return &table;
}
