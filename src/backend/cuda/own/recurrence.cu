// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/own/cluster.cuh"
#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"
#include "backend/cuda/own/together.cuh"
// After these.
#include "backend/cuda/own/recurrence.cuh"

namespace pelton::backend::cuda {
namespace {

template <class T, RecurrenceWay kWay>
cudaError_t start(const Recurrence& p, const RecurrenceShares& s, cudaStream_t stream) {
  auto* kernel = &recurrence_kernel<T, kWay>;
  // The kernel's limit is the process's: another layer may launch it with more.
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, p.shared_bytes);
  if (status != cudaSuccess) return status;
  return launch_together(kernel, dim3(p.directions * s.groups, s.blocks), dim3(kRecurrenceThreads),
                         s.shared_bytes, stream, p, s);
}
template <class T>
cudaError_t start_type(const Recurrence& p, const RecurrenceShares& s, cudaStream_t stream) {
  using Way = RecurrenceWay;
  if (s.way == Way::one_kept) return start<T, Way::one_kept>(p, s, stream);
  if (s.way == Way::one_read) return start<T, Way::one_read>(p, s, stream);
  if (s.way == Way::eight_read) return start<T, Way::eight_read>(p, s, stream);
  if (s.way == Way::tensor) return start<T, Way::tensor>(p, s, stream);
  if constexpr (sizeof(T) == 4) return start<T, Way::eight_kept>(p, s, stream);
  return cudaErrorInvalidConfiguration;  // 16 bits have no such way
}

// Clocks of a step, roughly.
double clocks(const Recurrence& p, const RecurrenceShares& s) {
  const RecurrenceLayout at(p, s);
  const double tiles = (s.entries + s.tile - 1) / s.tile, bytes = elem_bytes(p.type);
  const double products = static_cast<double>(at.all_rows) * s.tile * at.pitch;
  // Bound by reads of shared memory: 6 of a product of 16x8x16, 48 of 4 rows by 8 entries by 128 units, 20 of
  // 4 rows by one.
  const double multiply = on_tensor_cores(s.way)        ? products / (16 * 8 * (bytes == 4 ? 8 : 16)) * 6
                          : entries_at_once(s.way) == 8 ? products / (4 * 8 * 128) * 55
                                                        : products / (4 * 128) * 22;
  const double take = static_cast<double>(s.tile) * at.pitch * 4 / 48;
  const double fetch = keeps_rows(s.way) ? 0 : static_cast<double>(at.all_rows) * at.pitch * bytes / 24;
  return tiles * (multiply + take + fetch + 700);
}

// Warps without rows of their own share out the sums of the others.
int splits_of(const Recurrence& p, const RecurrenceShares& s) {
  const int row_tiles = (p.gates() * s.units + 15) / 16, groups = (s.tile + 31) / 32;
  return std::clamp(kRecurrenceWarps / (row_tiles * groups), 1, std::clamp(p.hidden / 32, 1, 4));
}

}  // namespace

RecurrenceShares recurrence_shares(const Recurrence& p) {
  using Way = RecurrenceWay;
  const int most = std::max(1, p.multiprocessors / p.directions);
  RecurrenceShares best;
  double fewest = 0;
  auto consider = [&](RecurrenceShares s) {
    s.splits = on_tensor_cores(s.way) ? splits_of(p, s) : 1;
    const int64_t bytes = RecurrenceLayout(p, s).bytes;
    if (bytes > p.shared_bytes) return;
    s.shared_bytes = static_cast<int>(bytes);
    const double cost = clocks(p, s);
    if (best.shared_bytes != 0 && cost >= fewest) return;
    best = s;
    fewest = cost;
  };
  const int limit = std::min(most, p.batch);
  for (int groups = 1; groups <= limit; ++groups) {
    RecurrenceShares s;
    s.entries = (p.batch + groups - 1) / groups;
    s.groups = (p.batch + s.entries - 1) / s.entries;
    if (s.groups != groups) continue;
    s.units = (p.hidden + most / groups - 1) / (most / groups);
    s.blocks = (p.hidden + s.units - 1) / s.units;
    for (const Way way : {Way::one_kept, p.type == Elem::f32 && !p.tf32 ? Way::eight_kept : Way::tensor,
                          Way::one_read, Way::eight_read}) {
      s.way = way;
      const int step = entries_at_once(way);
      if (step > 1 && s.entries == 1) continue;
      for (s.tile = (s.entries + step - 1) / step * step;;
           s.tile = std::max(step, s.tile / 2 / step * step)) {
        consider(s);
        if (s.tile == step) break;
      }
    }
  }
  return best;
}

namespace {
int64_t tagged_bytes(const Recurrence& p) {
  return static_cast<int64_t>(sizeof(Tagged)) * (p.phases() + 1) * p.directions * p.batch * p.hidden;
}
}  // namespace

int64_t recurrence_scratch_bytes(const Recurrence& p) {
  return tagged_bytes(p) + int64_t{4} * p.directions * p.batch * p.hidden;
}

cudaError_t recurrence(const Recurrence& p, const RecurrenceShares& s, cudaStream_t stream) {
  const cudaError_t status =
      cudaMemsetAsync(p.scratch, kNoTag & 255, static_cast<size_t>(tagged_bytes(p)), stream);
  if (status != cudaSuccess) return status;
  if (p.type == Elem::f16) return start_type<__half>(p, s, stream);
  if (p.type == Elem::bf16) return start_type<__nv_bfloat16>(p, s, stream);
  return start_type<float>(p, s, stream);
}

}  // namespace pelton::backend::cuda
