/* SPDX-License-Identifier: Apache-2.0
 * A custom op: example::clip_norm version 1 scales each row of x[..., D] (f32) to a Euclidean length of at
 * most `limit` (attribute, default 1). example::clip_norm_gradient makes it trainable.
 *
 *   cc -shared -fPIC -O2 -Iinclude examples/custom_op/clip_norm.c -lm -o clip_norm.so
 *   pelton run model.onnx --plugin ./clip_norm.so --input x=x.npy
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pelton/c/plugin.h"

static int is_f32(pelton_dtype t) {
  return t.code == 2 && t.bits == 32;
}

static int infer(const pelton_op_call* call, const pelton_inference* out, pelton_message* message) {
  if (call->input_count != 1 || call->inputs[0].ndim < 1) {
    snprintf(message->text, message->capacity, "takes one tensor of rank 1 or more");
    return 1;
  }
  const pelton_op_value* x = &call->inputs[0];
  out->set_output(out->host, 0, x->dtype, x->ndim, x->dims);
  return 0;
}

static int refuse(const pelton_op_call* call, pelton_message* message) {
  if (is_f32(call->inputs[0].dtype)) return 0;
  snprintf(message->text, message->capacity, "needs f32");
  return 1;
}

/* The limit, read once when the node is prepared. */
static int prepare(const pelton_op_call* call, void** state, pelton_message* message) {
  double* limit = malloc(sizeof *limit);
  if (!limit) {
    snprintf(message->text, message->capacity, "no memory");
    return 1;
  }
  *limit = 1;
  const char* at = strstr(call->attributes, "\"limit\"");
  if (at && (at = strchr(at, ':'))) *limit = strtod(at + 1, NULL);
  *state = limit;
  return 0;
}

static void run(const void* state, const pelton_op_call* call, const pelton_op_buffers* buffers) {
  const double limit = *(const double*)state;
  const pelton_op_value* x = &call->inputs[0];
  int64_t width = x->shape[x->ndim - 1], rows = 1;
  for (int32_t d = 0; d + 1 < x->ndim; ++d) rows *= x->shape[d];
  const float* in = buffers->in[0];
  float* out = buffers->out[0];
  for (int64_t r = 0; r < rows; ++r, in += width, out += width) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += (double)in[i] * in[i];
    double length = sqrt(sum), scale = length > limit ? limit / length : 1;
    for (int64_t i = 0; i < width; ++i) out[i] = (float)(in[i] * scale);
  }
}

/* Operands x, y and the gradient g of y: dx = s (g - x (x . g) / |x|^2) where a row was scaled by s, else g.
 */
static int infer_gradient(const pelton_op_call* call, const pelton_inference* out, pelton_message* message) {
  if (call->input_count != 3) {
    snprintf(message->text, message->capacity, "takes x, y and a gradient");
    return 1;
  }
  out->set_output(out->host, 0, call->inputs[0].dtype, call->inputs[0].ndim, call->inputs[0].dims);
  return 0;
}

static void run_gradient(const void* state, const pelton_op_call* call, const pelton_op_buffers* buffers) {
  const double limit = *(const double*)state;
  const pelton_op_value* value = &call->inputs[0];
  int64_t width = value->shape[value->ndim - 1], rows = 1;
  for (int32_t d = 0; d + 1 < value->ndim; ++d) rows *= value->shape[d];
  const float *x = buffers->in[0], *g = buffers->in[2];
  float* out = buffers->out[0];
  for (int64_t r = 0; r < rows; ++r, x += width, g += width, out += width) {
    double squares = 0, product = 0;
    for (int64_t i = 0; i < width; ++i) {
      squares += (double)x[i] * x[i];
      product += (double)x[i] * g[i];
    }
    double length = sqrt(squares), scale = length > limit ? limit / length : 1;
    double along = length > limit ? product / squares : 0;
    for (int64_t i = 0; i < width; ++i) out[i] = (float)(scale * (g[i] - x[i] * along));
  }
}

static const pelton_custom_op ops[] = {{.size = sizeof(pelton_custom_op),
                                        .domain = "example",
                                        .name = "clip_norm",
                                        .version = 1,
                                        .infer = infer,
                                        .refuse = refuse,
                                        .prepare = prepare,
                                        .release = free,
                                        .run = run,
                                        .gradient = "clip_norm_gradient"},
                                       {.size = sizeof(pelton_custom_op),
                                        .domain = "example",
                                        .name = "clip_norm_gradient",
                                        .version = 1,
                                        .infer = infer_gradient,
                                        .refuse = refuse,
                                        .prepare = prepare,
                                        .release = free,
                                        .run = run_gradient}};
static const pelton_plugin table = {sizeof(pelton_plugin), PELTON_PLUGIN_ABI, "clip_norm", 2, ops, 0, NULL};

const pelton_plugin* pelton_plugin_table(void) {
  return &table;
}
