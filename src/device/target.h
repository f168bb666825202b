// SPDX-License-Identifier: Apache-2.0
// What a machine can do, as far as the compiler cares. A Target is plain data: it can be detected, written in
// a plan, or named for a machine that is not present.
#pragma once

#include <cstdint>
#include <string>

namespace pelton::device {

enum class Kind : uint8_t { cpu, cuda };
// Each level includes those before it.
enum class CpuIsa : uint8_t { scalar, avx2, avx512, avx512_vnni, avx512_bf16 };

struct Target {
  Kind kind = Kind::cpu;
  std::string name;  // "cpu-avx512_bf16", "sm_90"
  CpuIsa isa = CpuIsa::scalar;
  int threads = 1;              // worker threads a run may use
  int64_t l1_bytes = 32 << 10;  // data cache of one core
  int64_t l2_bytes = 1 << 20;
  int64_t memory_bytes = 0;  // of the CPU or the GPU; 0: unknown
  // CUDA only. `isa`, `threads` and the cache sizes are then those of the host, which runs what the GPU
  // cannot.
  int sm = 0;               // compute capability times 10
  int multiprocessors = 0;  // 0: unknown, as for a GPU that is named and not present
  int ordinal = 0;          // index of the GPU in this process; never saved
  std::string product;      // of a CPU too: "NVIDIA H200"; empty if unknown
  bool tf32 = false;        // f32 contractions may round operands to TF32, as the plan's precision says
};

// This process's CPU. PELTON_CPU_ISA=scalar|avx2|avx512|avx512_vnni|avx512_bf16 lowers the ISA (never raises
// it); another value is a usage error. `threads` 0: what base/thread_pool decides.
Target detect_cpu(int threads = 0);
// A GPU of this compute capability, present or not, beside this process's CPU.
Target cuda_target(int sm);
// The CPU that runs, beside a GPU, what the GPU does not take; a CPU target itself.
Target host_of(const Target& target);
// "cpu", "cpu-avx2", "sm_90", ...; bad_name lists what exists.
Target parse_target(const std::string& text);
const char* to_string(Kind kind);  // "cpu", "cuda"
const char* to_string(CpuIsa isa);
CpuIsa isa_from_name(const std::string& text);  // bad_name lists them

}  // namespace pelton::device
