// SPDX-License-Identifier: Apache-2.0
#include "device/target.h"

#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"
#include "base/memory_limit.h"
#include "base/thread_pool.h"

namespace pelton::device {
namespace {

constexpr std::array<const char*, 5> kIsaNames = {"scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16"};

CpuIsa isa_from(const std::string& text, const char* what) {
  for (size_t i = 0; i < kIsaNames.size(); ++i)
    if (text == kIsaNames[i]) return static_cast<CpuIsa>(i);
  fail(ErrorCode::bad_name, cat("unknown CPU instruction set '", text, "'"), what,
       "use scalar, avx2, avx512, avx512_vnni or avx512_bf16");
}

CpuIsa detected_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuIsa::scalar;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return CpuIsa::avx2;
  if (!__builtin_cpu_supports("avx512vnni")) return CpuIsa::avx512;
  return __builtin_cpu_supports("avx512bf16") ? CpuIsa::avx512_bf16 : CpuIsa::avx512_vnni;
#else
  return CpuIsa::scalar;
#endif
}

// As the processor names itself, without the blanks around it.
std::string processor_name() {
  std::string out;
#if defined(__x86_64__)
  unsigned highest = 0, text[12] = {};
  unsigned b = 0, c = 0, d = 0;
  if (!__get_cpuid(0x80000000, &highest, &b, &c, &d) || highest < 0x80000004) return out;
  for (unsigned i = 0; i < 3; ++i)
    __get_cpuid(0x80000002 + i, &text[4 * i], &text[4 * i + 1], &text[4 * i + 2], &text[4 * i + 3]);
  out.assign(reinterpret_cast<const char*>(text), sizeof text);
  out.resize(std::min(out.find('\0'), out.size()));
  const size_t first = out.find_first_not_of(' ');
  out = first == out.npos ? "" : out.substr(first, out.find_last_not_of(' ') - first + 1);
#endif
  return out;
}

int64_t cache_bytes(int name, int64_t fallback) {
  long v = sysconf(name);
  return v > 0 ? v : fallback;
}

}  // namespace

CpuIsa isa_from_name(const std::string& text) {
  return isa_from(text, "");
}

const char* to_string(Kind kind) {
  return kind == Kind::cpu ? "cpu" : "cuda";
}

const char* to_string(CpuIsa isa) {
  return kIsaNames[static_cast<size_t>(isa)];
}

Target detect_cpu(int threads) {
  Target t;
  t.isa = detected_isa();
  if (const char* wanted = std::getenv("PELTON_CPU_ISA"); wanted && *wanted)
    t.isa = std::min(t.isa, isa_from(wanted, "environment variable PELTON_CPU_ISA"));
  t.name = cat("cpu-", to_string(t.isa));
  t.product = processor_name();
  t.threads = threads > 0 ? threads : pelton::threads();
  t.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, t.l1_bytes);
  t.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, t.l2_bytes);
  t.memory_bytes = physical_memory_bytes();
  return t;
}

Target cuda_target(int sm) {
  Target t = detect_cpu();
  t.kind = Kind::cuda;
  t.name = cat("sm_", sm);
  t.sm = sm;
  t.product.clear();
  t.memory_bytes = 0;
  return t;
}

Target host_of(const Target& target) {
  return target.kind == Kind::cpu ? target : detect_cpu(target.threads);
}

Target parse_target(const std::string& text) {
  if (text.rfind("sm_", 0) == 0) {
    int sm = 0;
    for (char c : text.substr(3)) sm = c >= '0' && c <= '9' && sm < 1000 ? sm * 10 + (c - '0') : -1000000;
    if (sm < 70 || sm > 1999)
      fail(ErrorCode::bad_name, cat("unknown GPU architecture '", text, "'"), "target",
           "use sm_90, sm_100, ...");
    return cuda_target(sm);
  }
  if (text == "cpu" || text == "auto") return detect_cpu();
  if (text.rfind("cpu-", 0) == 0) {
    Target t = detect_cpu();
    t.isa = isa_from(text.substr(4), "target");
    t.name = text;
    t.product.clear();
    return t;
  }
  fail(ErrorCode::bad_name, cat("unknown target '", text, "'"), "",
       "use cpu, cpu-avx2, cpu-avx512, ... or sm_90, sm_100, ...");
}

}  // namespace pelton::device
