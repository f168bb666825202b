// SPDX-License-Identifier: Apache-2.0
// example::trap version 1: its kernel of the GPU ends the device's context, as a broken kernel does.
#include <cuda_runtime.h>

#include "pelton/c/plugin.h"

namespace {

int infer_same(const pelton_op_call* call, const pelton_inference* out, pelton_message*) {
  out->set_output(out->host, 0, call->inputs[0].dtype, call->inputs[0].ndim, call->inputs[0].dims);
  return 0;
}
__global__ void trap_kernel() {
  __trap();
}
void on_cpu(const void*, const pelton_op_call*, const pelton_op_buffers*) {}
void on_gpu(const void*, const pelton_op_call*, const pelton_op_buffers* buffers) {
  trap_kernel<<<1, 1, 0, static_cast<cudaStream_t>(buffers->stream)>>>();
}

}  // namespace

extern "C" const pelton_plugin* pelton_plugin_table(void) {
  static pelton_custom_op op = {};
  op.size = sizeof op;
  op.domain = "example";
  op.name = "trap";
  op.version = 1;
  op.infer = infer_same;
  op.run = on_cpu;
  static pelton_implementation kernel = {};
  kernel.size = sizeof kernel;
  kernel.name = "example.trap_gpu";
  kernel.op = "example::trap";
  kernel.version = 1;
  kernel.device = "cuda";
  kernel.run = on_gpu;
  static const pelton_plugin table = {sizeof(pelton_plugin), PELTON_PLUGIN_ABI, "trap", 1, &op, 1, &kernel};
  return &table;
}
