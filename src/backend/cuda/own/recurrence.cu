// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/own/cluster.cuh"
#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/together.cuh"
// After these.
#include "backend/cuda/own/recurrence.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kSharedBytes = 220 * 1024;  // of a block, at most

template <class T, int kEntries, bool kKept>
cudaError_t start(const Recurrence& p, const RecurrenceShares& s, cudaStream_t stream) {
  auto* kernel = &recurrence_kernel<T, kEntries, kKept>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (status != cudaSuccess) return status;
  return launch_together(kernel, dim3(p.directions * s.groups, s.blocks), dim3(kRecurrenceThreads),
                         s.shared_bytes, stream, p, s);
}
template <class T>
cudaError_t start_type(const Recurrence& p, const RecurrenceShares& s, cudaStream_t stream) {
  if (s.together == 1) return s.kept ? start<T, 1, true>(p, s, stream) : start<T, 1, false>(p, s, stream);
  return s.kept ? start<T, 8, true>(p, s, stream) : start<T, 8, false>(p, s, stream);
}

// Clocks of a step, roughly.
double clocks(const Recurrence& p, const RecurrenceShares& s) {
  const RecurrenceLayout at(p, s);
  const double tiles = (s.entries + s.tile - 1) / s.tile, bytes = elem_bytes(p.type);
  const double multiply = static_cast<double>(at.all_rows) * s.tile * at.pitch / 128 * 2;
  const double take = static_cast<double>(s.tile) * at.pitch * 4 / 48;
  const double fetch = s.kept ? 0 : static_cast<double>(at.all_rows) * at.pitch * bytes / 24;
  return tiles * (multiply + take + fetch + 700);
}

}  // namespace

RecurrenceShares recurrence_shares(const Recurrence& p) {
  const int most = std::max(1, p.multiprocessors / p.directions);
  RecurrenceShares best;
  double fewest = 0;
  auto consider = [&](RecurrenceShares s) {
    for (const bool kept : {true, false}) {
      s.kept = kept;
      const int64_t bytes = RecurrenceLayout(p, s).bytes(kept, elem_bytes(p.type));
      if (bytes > kSharedBytes) continue;
      s.shared_bytes = static_cast<int>(bytes);
      const double cost = clocks(p, s);
      if (best.shared_bytes == 0 || cost < fewest) {
        best = s;
        fewest = cost;
      }
      return;
    }
  };
  const int limit = std::min({most, p.batch, kRecurrenceCounters / p.directions});
  for (int groups = 1; groups <= limit; ++groups) {
    RecurrenceShares s;
    s.entries = (p.batch + groups - 1) / groups;
    s.groups = (p.batch + s.entries - 1) / s.entries;
    if (s.groups != groups) continue;
    s.units = (p.hidden + most / groups - 1) / (most / groups);
    s.blocks = (p.hidden + s.units - 1) / s.units;
    for (s.together = s.entries > 1 ? 8 : 1;; s.together = 1) {
      for (s.tile = (s.entries + s.together - 1) / s.together * s.together; s.tile >= s.together;
           s.tile = s.tile / 2 / s.together * s.together) {
        consider(s);
        if (s.tile == s.together) break;
      }
      if (s.together == 1) break;
    }
  }
  return best;
}

int64_t recurrence_scratch_bytes(const Recurrence& p) {
  return 4 * (kRecurrenceCounters + int64_t{4} * p.directions * p.batch * p.hidden);
}

cudaError_t recurrence(const Recurrence& p, cudaStream_t stream) {
  const RecurrenceShares s = recurrence_shares(p);
  if (s.shared_bytes == 0) return cudaErrorInvalidConfiguration;
  const cudaError_t status = cudaMemsetAsync(p.scratch, 0, sizeof(unsigned) * kRecurrenceCounters, stream);
  if (status != cudaSuccess) return status;
  if (p.type == Elem::f16) return start_type<__half>(p, s, stream);
  if (p.type == Elem::bf16) return start_type<__nv_bfloat16>(p, s, stream);
  return start_type<float>(p, s, stream);
}

}  // namespace pelton::backend::cuda
