/* SPDX-License-Identifier: Apache-2.0
 * Runs a model whose inputs are f32 on ones, from C.
 * usage: run MODEL_OR_PLAN [NAME=AxBxC ...]     shapes for sizes that may vary
 */
#include <stdio.h>
#include <stdlib.h>

#include "pelton/c/pelton.h"

static int failed(pelton_error* error) {
  fprintf(stderr, "run: %s: %s (%s) %s\n", pelton_error_code(error), pelton_error_what(error),
          pelton_error_where(error), pelton_error_fix(error));
  pelton_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: run MODEL_OR_PLAN [NAME=AxBxC ...]\n");
    return 2;
  }
  pelton_error* error = NULL;
  pelton_plan_options options;
  pelton_plan_options_init(&options);
  options.shapes = (const char* const*)(argv + 2);
  options.shape_count = (size_t)(argc - 2);
  pelton_plan* plan = NULL;
  if (pelton_plan_open(argv[1], &options, &plan, &error)) return failed(error);
  pelton_context* context = NULL;
  if (pelton_context_new(plan, &context, &error)) return failed(error);

  size_t inputs = pelton_plan_input_count(plan);
  float** buffers = calloc(inputs ? inputs : 1, sizeof(float*));
  for (size_t i = 0; i < inputs; ++i) {
    pelton_value_info info = {0};
    info.size = sizeof info;
    if (pelton_plan_input(plan, i, &info, &error)) return failed(error);
    int64_t shape[16], count = 1;
    if (info.ndim < 0 || info.ndim > 16) return 1;
    for (int32_t d = 0; d < info.ndim; ++d) {
      shape[d] = info.shape[d] < 0 ? 1 : info.shape[d];
      count *= shape[d];
    }
    buffers[i] = malloc((size_t)(count > 0 ? count : 1) * sizeof(float));
    for (int64_t k = 0; k < count; ++k) buffers[i][k] = 1.0f;
    pelton_tensor tensor = {buffers[i], {1, 0}, info.ndim, {2, 32, 1}, shape, NULL, 0};
    if (pelton_context_set_input(context, i, &tensor, 0, &error)) return failed(error);
  }

  if (pelton_context_run(context, NULL, &error)) return failed(error);
  for (size_t i = 0; i < pelton_plan_output_count(plan); ++i) {
    pelton_value_info info = {0};
    info.size = sizeof info;
    if (pelton_plan_output(plan, i, &info, &error)) return failed(error);
    pelton_managed_tensor* result = NULL;
    if (pelton_context_get_output(context, i, &result, &error)) return failed(error);
    printf("%s %s", info.name, info.type);
    int64_t count = 1;
    for (int32_t d = 0; d < result->tensor.ndim; ++d) count *= result->tensor.shape[d];
    if (info.dtype.code == 2 && info.dtype.bits == 32)
      for (int64_t k = 0; k < count && k < 8; ++k) printf(" %g", ((const float*)result->tensor.data)[k]);
    printf("\n");
    result->deleter(result);
  }
  for (size_t i = 0; i < inputs; ++i) free(buffers[i]);
  free(buffers);
  pelton_context_free(context);
  pelton_plan_free(plan);
  return 0;
}
