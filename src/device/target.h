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
  int sm = 0;                // CUDA compute capability times 10; 0 on the CPU
  int64_t memory_bytes = 0;  // 0: unknown
};

// This process's CPU. PELTON_CPU_ISA=scalar|avx2|avx512|avx512_vnni|avx512_bf16 lowers the ISA (never raises
// it); another value is a usage error. `threads` 0: what base/thread_pool decides.
Target detect_cpu(int threads = 0);
// "cpu", "cpu-avx2", ...; bad_name lists what exists.
Target parse_target(const std::string& text);
const char* to_string(CpuIsa isa);
CpuIsa isa_from_name(const std::string& text);  // bad_name lists them

}  // namespace pelton::device
