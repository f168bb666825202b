// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/depthwise.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 128;  // of any_kernel

// How the work of the window kernel is shared out: a block takes the runs of one part of an image (row by
// row) for `groups` times V channels. Threads: [groups, runs].
struct Share {
  int groups, runs, parts, chunks;
};
Share share_of(const Depthwise& d, int vector, int run) {
  const int groups = d.c / vector, units = d.p * ((d.q + run - 1) / run);
  Share s;
  s.groups = 1;
  // Whole sectors of memory where the channels allow it.
  for (int g = 2; g <= 16; ++g)
    if (groups % g == 0 && (g % 8 == 0 || s.groups % 8 != 0)) s.groups = g;
  s.runs = 256 / s.groups;
  if (units > s.runs * 256 && s.groups >= 2) s.runs *= 2;
  if (units < s.runs) s.runs = units;
  s.parts = (units + s.runs - 1) / s.runs;
  s.chunks = groups / s.groups;
  return s;
}

// A thread yields kRun neighbouring places of a row for V channels: what it loads of a row serves all of
// them. Blocks: [parts, chunks of channels, images].
// kSteps: whether there are any: their interpreter takes registers.
template <class T, int V, int kWindow, int kStride, int kRun, bool kSteps>
__global__ void __launch_bounds__(512) window_kernel(const Depthwise d) {
  const int runs = (d.q + kRun - 1) / kRun, unit = blockIdx.x * blockDim.y + threadIdx.y;
  const int p = unit / runs, first = (unit - p * runs) * kRun, image = blockIdx.z;
  const int channel = (blockIdx.y * blockDim.x + threadIdx.x) * V;
  const bool idle = p >= d.p;
  const int top = p * kStride - d.pad_h, left = first * kStride - d.pad_w;
  const T* const x = static_cast<const T*>(d.x) + static_cast<int64_t>(image) * d.h * d.w_ * d.c + channel;
  const T* const w = static_cast<const T*>(d.w) + channel;
  float sums[kRun][V] = {};
  EarlyOperand<V> bias;
  if constexpr (kRun == 1) {
    // Few threads: everything is loaded at once, the weights before the kernel in front is done.
    if (!d.fixed_weights) inputs_ready();
    Pack<T, V> taps[kWindow * kWindow], values[kWindow * kWindow];
#pragma unroll
    for (int i = 0; i < kWindow * kWindow; ++i) taps[i] = *reinterpret_cast<const Pack<T, V>*>(w + i * d.c);
    let_next_start();
    inputs_ready();
    if constexpr (kSteps) bias = early_operand<V>(d.epilogue, 0, EpilogueStep::channel, channel, !idle);
#pragma unroll
    for (int r = 0; r < kWindow; ++r)
#pragma unroll
      for (int s = 0; s < kWindow; ++s) {
        const int row = top + r, column = left + s;
        const bool inside = !idle && static_cast<unsigned>(row) < static_cast<unsigned>(d.h) &&
                            static_cast<unsigned>(column) < static_cast<unsigned>(d.w_);
        Pack<T, V> zero;
#pragma unroll
        for (int e = 0; e < V; ++e) zero.v[e] = from_float<T>(0.0f);
        values[r * kWindow + s] = zero;
        if (inside)
          values[r * kWindow + s] = *reinterpret_cast<const Pack<T, V>*>(x + (row * d.w_ + column) * d.c);
      }
#pragma unroll
    for (int i = 0; i < kWindow * kWindow; ++i)
#pragma unroll
      for (int e = 0; e < V; ++e)
        sums[0][e] = fmaf(to_float(values[i].v[e]), to_float(taps[i].v[e]), sums[0][e]);
  } else {
    let_next_start();
    inputs_ready();
    constexpr int kColumns = (kRun - 1) * kStride + kWindow;
    using Words = Pack<uint32_t, V * sizeof(T) / 4>;  // as they lie in memory, two elements a register
    constexpr int kRows = kWindow * kColumns <= 18 ? kWindow : 1;  // whole rows on their way at once
#pragma unroll 1
    for (int r = 0; r < kWindow; r += kRows) {
      Words values[kRows][kColumns];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int at = top + r + i;
        const bool row_inside = !idle && static_cast<unsigned>(at) < static_cast<unsigned>(d.h);
        const T* const line = x + (at * d.w_ + left) * d.c;
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          values[i][j] = Words{};
          if (row_inside && static_cast<unsigned>(left + j) < static_cast<unsigned>(d.w_))
            values[i][j] = *reinterpret_cast<const Words*>(line + j * d.c);
        }
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        Words taps[kWindow];
#pragma unroll
        for (int s = 0; s < kWindow; ++s)
          taps[s] = *reinterpret_cast<const Words*>(w + ((r + i) * kWindow + s) * d.c);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          // Not unpacked before: that would take twice the registers.
#pragma unroll
          for (uint32_t& word : values[i][j].v) asm volatile("" : "+r"(word));
          float value[V];
          load_v<V>(reinterpret_cast<const T*>(&values[i][j]), value);
#pragma unroll
          for (int t = 0; t < kRun; ++t) {
            const int s = j - t * kStride;
            if (s < 0 || s >= kWindow) continue;
            float tap[V];
            load_v<V>(reinterpret_cast<const T*>(&taps[s]), tap);
#pragma unroll
            for (int e = 0; e < V; ++e) sums[t][e] = fmaf(value[e], tap[e], sums[t][e]);
          }
        }
      }
    }
  }
  float total[V] = {};
#pragma unroll
  for (int t = 0; t < kRun; ++t) {
    if (idle || first + t >= d.q) break;
    const int64_t offset = ((static_cast<int64_t>(image) * d.p + p) * d.q + first + t) * d.c + channel;
    if constexpr (kSteps) {
      if (bias.there) add_early(bias, sums[t]);
      apply_epilogue<V>(d.epilogue, sums[t], offset, image, channel, d.c, bias.there ? 1 : 0);
    }
    store_as<V>(d.y_type, d.y, offset, sums[t]);
#pragma unroll
    for (int e = 0; e < V; ++e) total[e] += sums[t][e];
  }
  if (!d.part_sums) return;
  extern __shared__ __align__(16) float shared[];  // [runs of the block, channels of the block]
  const int width = blockDim.x * V, thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int e = 0; e < V; ++e) shared[thread * V + e] = total[e];
  __syncthreads();
  for (int c = thread; c < width; c += blockDim.x * blockDim.y) {
    float s = 0;
#pragma unroll 8
    for (int y = 0; y < blockDim.y; ++y) s += shared[y * width + c];
    d.part_sums[(static_cast<int64_t>(image) * gridDim.x + blockIdx.x) * d.c + blockIdx.y * width + c] = s;
  }
}

// One result a thread.
template <class T>
__global__ void __launch_bounds__(kThreads) any_kernel(const Depthwise d) {
  let_next_start();
  inputs_ready();
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= static_cast<int64_t>(d.n) * d.p * d.q * d.c) return;
  const int channel = static_cast<int>(index % d.c);
  const int64_t rest = index / d.c;
  const int q = static_cast<int>(rest % d.q);
  const int64_t row = rest / d.q;
  const int image = static_cast<int>(row / d.p), p = static_cast<int>(row % d.p);
  const T* const x = static_cast<const T*>(d.x) + static_cast<int64_t>(image) * d.h * d.w_ * d.c + channel;
  const T* const w = static_cast<const T*>(d.w) + channel;
  float sum[1] = {0};
  for (int r = 0; r < d.r; ++r) {
    const int at = p * d.stride_h - d.pad_h + r * d.dilation_h;
    if (static_cast<unsigned>(at) >= static_cast<unsigned>(d.h)) continue;
    for (int s = 0; s < d.s; ++s) {
      const int column = q * d.stride_w - d.pad_w + s * d.dilation_w;
      if (static_cast<unsigned>(column) >= static_cast<unsigned>(d.w_)) continue;
      sum[0] = fmaf(to_float(x[(static_cast<int64_t>(at) * d.w_ + column) * d.c]),
                    to_float(w[(r * d.s + s) * d.c]), sum[0]);
    }
  }
  apply_epilogue<1>(d.epilogue, sum, index, image, channel, d.c);
  store_as<1>(d.y_type, d.y, index, sum);
}

// Vector and run of the window kernel, or zeros: the other kernel takes the problem.
struct Form {
  int vector = 0, run = 0;
};
Form form_of(const Depthwise& d, int multiprocessors) {
  const int vector = d.type == Elem::f32 ? 4 : 8;
  const bool square = d.r == d.s && d.stride_h == d.stride_w && d.dilation_h == 1 && d.dilation_w == 1 &&
                      (d.r == 3 || d.r == 5) && (d.stride_h == 1 || d.stride_h == 2);
  // Offsets inside an image are 32-bit numbers; chunks and images are dims of the grid.
  const bool small =
      static_cast<int64_t>(d.h + d.r) * (d.w_ + d.s) * d.c < (int64_t{1} << 31) && d.c < 65536 && d.n < 65536;
  if (!square || !small || d.c % vector != 0) return {};
  // Runs of four (of two, where they see as much) where that still fills the GPU, else as many threads as
  // there are pairs of results.
  const int64_t fours = static_cast<int64_t>(d.n) * d.p * ((d.q + 3) / 4) * (d.c / vector);
  if (fours >= static_cast<int64_t>(multiprocessors) * 256)
    return {vector, d.r == 3 && d.stride_h == 2 ? 2 : 4};
  return {2, 1};
}

template <class T, int V, int kWindow, int kStride, int kRun>
cudaError_t start_runs(const Depthwise& d, cudaStream_t stream) {
  const Share s = share_of(d, V, kRun);
  const size_t shared = d.part_sums ? sizeof(float) * s.groups * s.runs * V : 0;
  auto* kernel = d.epilogue.count > 0 ? &window_kernel<T, V, kWindow, kStride, kRun, true>
                                      : &window_kernel<T, V, kWindow, kStride, kRun, false>;
  return launch(kernel, dim3(s.parts, s.chunks, d.n), dim3(s.groups, s.runs), shared, stream, d);
}
template <class T, int V, int kRun>
cudaError_t start_window(const Depthwise& d, cudaStream_t stream) {
  if (d.r == 3 && d.stride_h == 1) return start_runs<T, V, 3, 1, kRun>(d, stream);
  if constexpr (kRun == 1)
    if (d.r == 3) return start_runs<T, V, 3, 2, kRun>(d, stream);
  if (d.stride_h == 1) return start_runs<T, V, 5, 1, kRun>(d, stream);
  return start_runs<T, V, 5, 2, kRun>(d, stream);
}
template <class T, int V>
cudaError_t start(const Depthwise& d, int multiprocessors, cudaStream_t stream) {
  const Form form = form_of(d, multiprocessors);
  if (form.run == 4) return start_window<T, V, 4>(d, stream);
  if (form.run == 2) return start_runs<T, V, 3, 2, 2>(d, stream);
  if (form.run == 1) return start_window<T, 2, 1>(d, stream);
  const int64_t blocks = (static_cast<int64_t>(d.n) * d.p * d.q * d.c + kThreads - 1) / kThreads;
  return launch(&any_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, d);
}

}  // namespace

int depthwise_parts(const Depthwise& d, int multiprocessors) {
  const Form form = form_of(d, multiprocessors);
  return form.run == 0 ? 0 : share_of(d, form.vector, form.run).parts;
}

cudaError_t depthwise(const Depthwise& d, int multiprocessors, cudaStream_t stream) {
  if (d.type == Elem::f16) return start<__half, 8>(d, multiprocessors, stream);
  if (d.type == Elem::bf16) return start<__nv_bfloat16, 8>(d, multiprocessors, stream);
  return start<float, 4>(d, multiprocessors, stream);
}

}  // namespace pelton::backend::cuda
