// SPDX-License-Identifier: Apache-2.0
// pelton doctor: what this machine and this build can do.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/libraries.h"
#include "register/registry.h"
#include "runtime/version.h"

namespace pelton::cli {
namespace {

int run(const Globals& globals) {
  CpuLimits limits = cpu_limits();
  device::Target cpu = device::detect_cpu(globals.threads);
  std::string note;
  find_device("auto", 0, &note);
  std::vector<Library> libraries = used_libraries();
  size_t implementations = registry().all().size();
  if (globals.json) {
    nlohmann::json libs = nlohmann::json::object();
    for (const Library& l : libraries)
      libs[l.name] = l.version.empty() ? nlohmann::json(nullptr) : nlohmann::json(l.version);
    nlohmann::json out = {{"version", std::string(version())},
                          {"cpu",
                           {{"isa", device::to_string(cpu.isa)},
                            {"online", limits.online},
                            {"allowed", limits.allowed},
                            {"quota_cpus", limits.quota_cpus},
                            {"threads", threads()},
                            {"l1_bytes", cpu.l1_bytes},
                            {"l2_bytes", cpu.l2_bytes},
                            {"memory_bytes", cpu.memory_bytes}}},
                          {"gpu", {{"usable", false}, {"reason", note}}},
                          {"implementations", implementations},
                          {"libraries", libs}};
    print_line(out.dump());
    return 0;
  }
  Table table({"pelton", std::string(version())});
  table.row({"CPU", cat(device::to_string(cpu.isa), ", L1 ", bytes_text(static_cast<double>(cpu.l1_bytes)),
                        ", L2 ", bytes_text(static_cast<double>(cpu.l2_bytes)))});
  table.row({"memory", bytes_text(static_cast<double>(cpu.memory_bytes))});
  table.row({"threads",
             cat(threads(), " of ", limits.online, " CPUs (", limits.allowed, " in the affinity mask, ",
                 limits.quota_cpus > 0 ? cat("quota ", fixed(limits.quota_cpus, 2)) : std::string("no quota"),
                 ")")});
  table.row({"GPU", note});
  table.row({"kernels", cat(implementations, " implementations")});
  for (const Library& l : libraries)
    table.row({l.name, l.version.empty() ? cat("off: ", l.note)
                       : l.note.empty()  ? l.version
                                         : cat(l.version, " (", l.note, ")")});
  table.print();
  return 0;
}

}  // namespace

Run make_doctor(CLI::App&, const Globals& globals) {
  return [&globals] { return run(globals); };
}

}  // namespace pelton::cli
