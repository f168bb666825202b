/* SPDX-License-Identifier: Apache-2.0
 * A server engine in one file: every FP32 input NAME becomes output NAME_SCALED, times the parameter `factor`.
 *
 *   cc -shared -fPIC -Iinclude examples/engine/scale.c -o libscale.so
 *   pelton serve --engine scale=./libscale.so --model-repository models      models with backend: "scale"
 */
#include <pelton/c/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model {
  float factor;
};

static int load(const char* config_json, const char* folder, int64_t version, void** model, char* error,
                size_t error_size) {
  (void)folder;
  (void)version;
  struct model* m = malloc(sizeof *m);
  if (!m) return 1;
  /* The configuration is small and ours: a search stands in for a JSON reader. */
  const char* at = strstr(config_json, "\"factor\"");
  at = at ? strstr(at, "\"string_value\":\"") : NULL;
  m->factor = at ? strtof(at + strlen("\"string_value\":\""), NULL) : 0;
  if (!at || m->factor == 0) {
    snprintf(error, error_size, "the parameter 'factor' is missing or 0");
    free(m);
    return 1;
  }
  *model = m;
  return 0;
}

static void unload(void* model) {
  free(model);
}

static int open_instance(void* model, int index, void** instance, char* error, size_t error_size) {
  (void)index;
  (void)error;
  (void)error_size;
  *instance = model; /* no state of its own */
  return 0;
}

static void close_instance(void* instance) {
  (void)instance;
}

static int execute(void* instance, const pelton_engine_request* requests, size_t count,
                   const pelton_engine_answers* answers, char* error, size_t error_size) {
  const struct model* m = instance;
  (void)error;
  (void)error_size;
  for (size_t r = 0; r < count; ++r) {
    for (size_t i = 0; i < requests[r].input_count; ++i) {
      const pelton_engine_tensor* in = &requests[r].inputs[i];
      char name[300];
      snprintf(name, sizeof name, "%s_SCALED", in->name);
      if (strcmp(in->datatype, "FP32") != 0) {
        answers->fail(requests[r].answer, "only FP32 can be scaled");
        break;
      }
      char* out = answers->output(requests[r].answer, name, in->datatype, in->shape, in->rank, in->bytes);
      if (!out) return 1;
      for (size_t at = 0; at < in->bytes; at += sizeof(float)) {
        float v;
        memcpy(&v, (const char*)in->data + at, sizeof v);
        v *= m->factor;
        memcpy(out + at, &v, sizeof v);
      }
    }
  }
  return 0;
}

const pelton_engine_api* pelton_engine(void) {
  static const pelton_engine_api api = {PELTON_ENGINE_ABI, load,           unload,
                                        open_instance,     close_instance, execute};
  return &api;
}
