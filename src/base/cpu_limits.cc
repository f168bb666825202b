// SPDX-License-Identifier: Apache-2.0
// Reading CPU limits: affinity mask, and the tightest cgroup quota from the process's group up to the root.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"

namespace pelton {
namespace {

constexpr uint64_t small_file_bytes = 1 << 20;

// Kernel files report a size of 0, so read_file does not serve.
std::string read_kernel_file(const std::string& path) {
  std::string out;
  if (FILE* f = std::fopen(path.c_str(), "re")) {
    char buffer[4096];
    size_t n;
    while (out.size() < small_file_bytes && (n = std::fread(buffer, 1, sizeof buffer, f)) > 0)
      out.append(buffer, n);
    std::fclose(f);
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    auto at = text.find(separator);
    out.emplace_back(text.substr(0, at));
    text = at == text.npos ? std::string_view{} : text.substr(at + 1);
  }
  return out;
}

// Calls visit(folder) for base/group, its parent, ... and base itself.
template <class Visit>
void each_ancestor(const std::string& base, std::string group, Visit visit) {
  while (!group.empty() && group != "/") {
    visit(base + group);
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  visit(base);
}

// "max 100000" or "150000 100000": CPUs, or 0 without a limit.
double quota_v2(const std::string& folder) {
  std::string text = read_kernel_file(folder + "/cpu.max");
  if (text.empty() || text.starts_with("max")) return 0;
  char* rest = nullptr;
  double quota = std::strtod(text.c_str(), &rest), period = std::strtod(rest, nullptr);
  return period > 0 ? quota / period : 0;
}
double quota_v1(const std::string& folder) {
  double quota = std::strtod(read_kernel_file(folder + "/cpu.cfs_quota_us").c_str(), nullptr);
  double period = std::strtod(read_kernel_file(folder + "/cpu.cfs_period_us").c_str(), nullptr);
  return quota > 0 && period > 0 ? quota / period : 0;
}

double cgroup_quota(const std::string& root) {
  double tightest = 0;
  auto take = [&](double quota) {
    if (quota > 0) tightest = tightest > 0 ? std::min(tightest, quota) : quota;
  };
  for (const std::string& line : split(read_kernel_file(root + "/proc/self/cgroup"), '\n')) {
    auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty())
      each_ancestor(root + "/sys/fs/cgroup", group, [&](const std::string& f) { take(quota_v2(f)); });
    for (const std::string& controller : split(controllers, ','))
      if (controller == "cpu")
        for (const char* mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"})
          each_ancestor(root + mount, group, [&](const std::string& f) { take(quota_v1(f)); });
  }
  return tightest;
}

int allowed_cpus(int online) {
  // The mask of a machine with more CPUs than cpu_set_t holds needs a larger set.
  for (int bits = CPU_SETSIZE; bits <= 1 << 20; bits *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(bits));
    size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(bits));
    bool read = sched_getaffinity(0, bytes, set) == 0;
    int count = read ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return online;
}

}  // namespace

int CpuLimits::usable() const {
  int count = std::max(1, allowed);
  if (quota_cpus > 0) count = std::min(count, std::max(1, static_cast<int>(quota_cpus)));
  return count;
}

CpuLimits cpu_limits(const std::string& root) {
  CpuLimits out;
  out.online = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  out.allowed = allowed_cpus(out.online);
  out.quota_cpus = cgroup_quota(root);
  return out;
}

}  // namespace pelton
