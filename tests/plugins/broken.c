/* SPDX-License-Identifier: Apache-2.0
 * A plug-in that asks for wrong things. Its table is refused unless BROKEN_PLUGIN_REPAIRED is set: the op in
 * front is right, the implementation behind it names an op that nobody has. */
#include <stdint.h>
#include <stdlib.h>

#include "pelton/c/plugin.h"

static int states = 0;

/* States that were made and not released. */
PELTON_API int broken_states(void) {
  return states;
}

static int infer_same(const pelton_op_call* call, const pelton_inference* out, pelton_message* message) {
  (void)message;
  out->set_output(out->host, 0, call->inputs[0].dtype, call->inputs[0].ndim, call->inputs[0].dims);
  return 0;
}

static int prepare(const pelton_op_call* call, void** state, pelton_message* message) {
  (void)call, (void)message;
  *state = malloc(1);
  ++states;
  return 0;
}

static void release(void* state) {
  free(state);
  --states;
}

static int64_t less_than_nothing(const pelton_op_call* call) {
  (void)call;
  return -8;
}

static void run(const void* state, const pelton_op_call* call, const pelton_op_buffers* buffers) {
  (void)state, (void)call, (void)buffers;
}

static const pelton_custom_op ops[] = {{.size = sizeof(pelton_custom_op),
                                        .domain = "broken",
                                        .name = "negative_scratch",
                                        .version = 1,
                                        .infer = infer_same,
                                        .scratch_bytes = less_than_nothing,
                                        .prepare = prepare,
                                        .release = release,
                                        .run = run}};
static const pelton_implementation implementations[] = {{.size = sizeof(pelton_implementation),
                                                         .name = "broken.nothing",
                                                         .op = "broken::absent",
                                                         .version = 1,
                                                         .device = "cpu",
                                                         .run = run}};
static pelton_plugin table = {sizeof(pelton_plugin), PELTON_PLUGIN_ABI, "broken", 1, ops, 1, implementations};

const pelton_plugin* pelton_plugin_table(void) {
  table.implementation_count = getenv("BROKEN_PLUGIN_REPAIRED") ? 0 : 1;
  return &table;
}
