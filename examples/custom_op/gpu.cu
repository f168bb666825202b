// SPDX-License-Identifier: Apache-2.0
// Custom ops with an entry for NVIDIA GPUs beside their definition on the CPU:
//   example::cube version 1       y = x^3 (f32); enqueued once, then played with the rest of the model
//   example::centered version 1   y = x - mean(x) (f32); its kernel of the GPU brings the sum to the host on
//   the
//                                 way, through planned scratch, and so is called in every run
//
//   nvcc -shared -Xcompiler -fPIC -O2 -arch=sm_90 -Iinclude examples/custom_op/gpu.cu -o gpu.so
//   pelton run model.onnx --device cuda --plugin ./gpu.so --input x=x.npy --output-dir out
#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>

#include "pelton/c/plugin.h"

namespace {

std::atomic<int> cubes_called{0}, centered_called{0};

int needs_f32(const pelton_op_call* call, pelton_message* message) {
  const pelton_dtype t = call->inputs[0].dtype;
  if (t.code == 2 && t.bits == 32) return 0;
  std::snprintf(message->text, message->capacity, "needs f32");
  return 1;
}

int infer_same(const pelton_op_call* call, const pelton_inference* out, pelton_message* message) {
  if (call->input_count != 1 || call->output_count != 1) {
    std::snprintf(message->text, message->capacity, "takes one tensor and yields one");
    return 1;
  }
  out->set_output(out->host, 0, call->inputs[0].dtype, call->inputs[0].ndim, call->inputs[0].dims);
  return 0;
}

int64_t elements(const pelton_op_call* call) {
  int64_t n = 1;
  for (int32_t d = 0; d < call->inputs[0].ndim; ++d) n *= call->inputs[0].shape[d];
  return n;
}

// ---- cube ----

void cube_on_cpu(const void*, const pelton_op_call* call, const pelton_op_buffers* buffers) {
  const auto* in = static_cast<const float*>(buffers->in[0]);
  auto* out = static_cast<float*>(buffers->out[0]);
  for (int64_t i = 0, n = elements(call); i < n; ++i) out[i] = in[i] * in[i] * in[i];
}

__global__ void cube_kernel(const float* in, float* out, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * in[i] * in[i];
}

void cube_on_gpu(const void*, const pelton_op_call* call, const pelton_op_buffers* buffers) {
  ++cubes_called;
  const int64_t n = elements(call);
  if (n == 0) return;
  cube_kernel<<<static_cast<unsigned>((n + 255) / 256), 256, 0, static_cast<cudaStream_t>(buffers->stream)>>>(
      static_cast<const float*>(buffers->in[0]), static_cast<float*>(buffers->out[0]), n);
}

// ---- centered ----

void centered_on_cpu(const void*, const pelton_op_call* call, const pelton_op_buffers* buffers) {
  const auto* in = static_cast<const float*>(buffers->in[0]);
  auto* out = static_cast<float*>(buffers->out[0]);
  const int64_t n = elements(call);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += in[i];
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] - static_cast<float>(sum / static_cast<double>(n));
}

__global__ void sum_kernel(const float* in, double* sum, int64_t n) {
  __shared__ double shared[256];
  double mine = 0;
  for (int64_t i = threadIdx.x; i < n; i += 256) mine += in[i];
  shared[threadIdx.x] = mine;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *sum = shared[0];
}
__global__ void shift_kernel(const float* in, float* out, float by, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] - by;
}

int64_t centered_scratch(const pelton_op_call*) {
  return sizeof(double);
}

void centered_on_gpu(const void*, const pelton_op_call* call, const pelton_op_buffers* buffers) {
  ++centered_called;
  const int64_t n = elements(call);
  if (n == 0) return;
  const auto stream = static_cast<cudaStream_t>(buffers->stream);
  const auto* in = static_cast<const float*>(buffers->in[0]);
  double sum = 0;
  sum_kernel<<<1, 256, 0, stream>>>(in, static_cast<double*>(buffers->scratch), n);
  cudaMemcpyAsync(&sum, buffers->scratch, sizeof sum, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  shift_kernel<<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(
      in, static_cast<float*>(buffers->out[0]), static_cast<float>(sum / static_cast<double>(n)), n);
}

const pelton_custom_op* ops() {
  static pelton_custom_op made[2] = {};
  for (pelton_custom_op& op : made) {
    op.size = sizeof op;
    op.domain = "example";
    op.version = 1;
    op.infer = infer_same;
    op.refuse = needs_f32;
  }
  made[0].name = "cube";
  made[0].run = cube_on_cpu;
  made[1].name = "centered";
  made[1].run = centered_on_cpu;
  return made;
}

const pelton_implementation* implementations() {
  static pelton_implementation made[2] = {};
  for (pelton_implementation& i : made) {
    i.size = sizeof i;
    i.version = 1;
    i.device = "cuda";
    i.refuse = needs_f32;
  }
  made[0].name = "example.cube_gpu";
  made[0].op = "example::cube";
  made[0].run = cube_on_gpu;
  made[1].name = "example.centered_gpu";
  made[1].op = "example::centered";
  made[1].flags = PELTON_KERNEL_NOT_RECORDED;
  made[1].scratch_bytes = centered_scratch;
  made[1].run = centered_on_gpu;
  return made;
}

}  // namespace

extern "C" {

// How often the two entries were called, for whoever wants to see what is played and what is not.
__attribute__((visibility("default"))) int example_gpu_calls(int centered) {
  return centered ? centered_called : cubes_called;
}

const pelton_plugin* pelton_plugin_table(void) {
  static const pelton_plugin table = {sizeof(pelton_plugin), PELTON_PLUGIN_ABI, "gpu", 2, ops(), 2,
                                      implementations()};
  return &table;
}
}
