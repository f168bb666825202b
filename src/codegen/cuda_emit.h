// SPDX-License-Identifier: Apache-2.0
// CUDA C++ text of a kernel. Reads only the kernel IR; compiles with nvcc and, without headers, with NVRTC.
#pragma once

#include "codegen/kernel.h"

namespace pelton::codegen {

struct CudaOptions {
  // Threads a block, a multiple of 32 up to 1024; 0: 256, or for rows of a known size as many as they can
  // use.
  int block = 0;
  // 64-bit index arithmetic; needed when an offset may exceed 2^31 - 1.
  bool wide_index = false;
  // Elements a thread takes at a time: 1, 2, 4 or 8; fewer where the length of a row is no multiple. Above 1
  // every buffer must be aligned to 16 bytes; contiguous accesses then move up to 16 bytes each.
  int vector = 1;
  // For kernels with reductions whose neighbouring rows, not a row's elements, are neighbours in memory: a
  // warp takes 32 rows side by side, the warps of the block share out their elements. Accesses are then
  // single ones.
  bool columns = false;
  // Above 0: the kernel, without reductions, runs on up to this many sets of buffers and sizes at once. It is
  // launched as text(entry)<<<blocks of all, block>>>(table[, partial sums]), the table laid out as
  // segment_table() says.
  int segments = 0;
  // With segments: the result is not stored but added up, one f32 number a block, in the order of the blocks.
  bool sum = false;
};

// The table of a kernel with segments: addresses of the buffers (of results not where they are added up) of
// the first segment, of the second, ...; then `segments` 32-bit sizes, `segments` + 1 numbers of first
// blocks, and the count of segments in use.
struct SegmentTable {
  int64_t buffers = 0, sizes_at = 0, first_at = 0, count_at = 0, bytes = 0;  // offsets in bytes
};
SegmentTable segment_table(int64_t buffers, int64_t segments);

// A kernel to launch as text(entry)<<<blocks, block>>>(buffers in order..., sizes in order as idx_t...).
struct CudaKernel {
  std::string entry, text;
  int block = 256;
  // Blocks that give every thread work: this many, at least 1; fewer are correct too (grid-stride loops).
  Dim blocks;
  bool wide_index = false;
};

// What every kernel text needs before it, once a translation unit.
std::string_view cuda_prelude();
CudaKernel emit_cuda(const Kernel& kernel, const CudaOptions& options = {});

}  // namespace pelton::codegen
