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
  std::vector<device::Target> gpus = find_gpus(note);
  std::vector<Library> libraries = used_libraries();
  size_t implementations = registry().all().size();
  if (globals.json) {
    nlohmann::json libs = nlohmann::json::object();
    for (const Library& l : libraries)
      libs[l.name] = l.version.empty() ? nlohmann::json(nullptr) : nlohmann::json(l.version);
    nlohmann::json gpu = {{"usable", !gpus.empty()}, {"devices", nlohmann::json::array()}};
    if (!note.empty()) gpu["reason"] = note;
    for (const device::Target& g : gpus)
      gpu["devices"].push_back({{"device", cat("cuda:", g.ordinal)},
                                {"product", g.product},
                                {"target", g.name},
                                {"memory_bytes", g.memory_bytes},
                                {"multiprocessors", g.multiprocessors}});
    for (const DeviceLibrary& l : device_libraries())
      gpu["libraries"][l.name] = l.off.empty() ? nlohmann::json(l.version) : nlohmann::json(nullptr);
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
                          {"gpu", gpu},
                          {"implementations", implementations},
                          {"libraries", libs}};
    print_json(out);
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
  for (const device::Target& g : gpus)
    table.row({cat("GPU ", g.ordinal),
               cat(g.product, ", ", g.name, ", ", bytes_text(static_cast<double>(g.memory_bytes)), ", ",
                   g.multiprocessors, " multiprocessors")});
  if (!note.empty()) table.row({"GPU", cat("off: ", note)});
  for (const DeviceLibrary& l : device_libraries())
    table.row({l.name, l.off.empty() ? l.version : cat("off: ", l.off)});
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
