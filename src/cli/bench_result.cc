// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_result.h"

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/inputs.h"

namespace pelton::cli {

nlohmann::json bench_json(const BenchResult& r) {
  nlohmann::json shapes = nlohmann::json::object();
  for (const auto& [name, dims] : r.inputs) shapes[name] = dims;
  nlohmann::json out = {
      {"latency_ms",
       {{"min", r.latency.min},
        {"median", r.latency.median},
        {"p90", r.latency.p90},
        {"p95", r.latency.p95},
        {"p99", r.latency.p99}}},
      {"throughput_per_s", r.throughput},
      {"host_peak_bytes", r.peak_bytes},
      {"device_peak_bytes", r.device ? r.device->peak_bytes : 0},
      {"load_ms", r.load_ms},
      {"compile_ms", r.compile_ms},
      {"device", r.target},
      {"threads", r.threads},
      {"precision", r.precision},
      {"shapes", shapes},
      {"seed", r.seed},
      {"buffers", r.device_buffers ? "device" : "host"},
      {"warm_up", r.warm_up},
      {"iterations", r.runs},
      {"stable", r.latency.warnings.empty()},
      {"warnings", r.latency.warnings},
      {"memory",
       {{"weights", r.memory.weights},
        {"packed", r.memory.packed},
        {"arena", r.memory.arena},
        {"scratch", r.memory.scratch}}},
  };
  if (r.device) {
    const BenchOnDevice& d = *r.device;
    out["phases_ms"] = {{"host_to_device", d.phases.upload},
                        {"compute", d.phases.compute},
                        {"device_to_host", d.phases.download},
                        {"host", d.host_ms}};
    if (d.energy.off.empty())
      out["energy"] = {{"joules", d.energy.joules},
                       {"joules_per_run", d.energy.joules / static_cast<double>(r.runs)},
                       {"watts", d.energy.watts()},
                       {"samples_per_s_per_watt", r.throughput / d.energy.watts()}};
    else
      out["energy"] = {{"off", d.energy.off}};
    out["product"] = d.product;
    out["memory"]["device_weights"] = r.memory.device_weights;
  }
  if (r.layers) out["layers"] = layers_json(*r.layers);
  return out;
}

void print_bench(const BenchResult& r) {
  const auto bytes = [](int64_t count) { return bytes_text(static_cast<double>(count)); };
  print_line(cat("model        ", r.model));
  for (size_t i = 0; i < r.inputs.size(); ++i)
    print_line(
        cat(i ? "             " : "inputs       ", r.inputs[i].first, " ", dims_text(r.inputs[i].second)));
  print_line(cat("device       ", r.target, ", ", r.threads, " threads, ", r.precision));
  print_line(cat("latency      median ", fixed(r.latency.median, 3), " ms, min ", fixed(r.latency.min, 3),
                 ", p90 ", fixed(r.latency.p90, 3), ", p95 ", fixed(r.latency.p95, 3), ", p99 ",
                 fixed(r.latency.p99, 3)));
  if (r.device)
    print_line(cat("             to the device ", fixed(r.device->phases.upload, 3), " ms, on it ",
                   fixed(r.device->phases.compute, 3), " ms, back ", fixed(r.device->phases.download, 3),
                   " ms, beside it ", fixed(r.device->host_ms, 3), " ms"));
  print_line(cat("throughput   ", fixed(r.throughput, 1), " per second"));
  print_line(
      cat("load         ", fixed(r.load_ms, 1), " ms to the first result",
          r.compile_ms > 0 ? cat(", after ", fixed(r.compile_ms, 1), " ms of compilation") : std::string()));
  print_line(cat("memory       ", bytes(r.peak_bytes), " at peak; weights ", bytes(r.memory.weights),
                 ", re-ordered ", bytes(r.memory.packed), ", arena ", bytes(r.memory.arena)));
  if (r.device) {
    const Energy& energy = r.device->energy;
    print_line(cat("on device    ", bytes(r.device->peak_bytes), " at peak, of them weights ",
                   bytes(r.memory.device_weights)));
    if (energy.off.empty())
      print_line(cat("power        ", fixed(energy.watts(), 1), " W, ",
                     fixed(energy.joules / static_cast<double>(r.runs), 4), " J a run, ",
                     fixed(r.throughput / energy.watts(), 2), " samples per second and watt"));
    else
      print_line(cat("power        not known: ", energy.off));
  }
  print_line(cat("measured     ", r.runs, " runs after ", r.warm_up, " to warm up, seed ", r.seed));
  if (r.layers) print_layers(*r.layers);
}

}  // namespace pelton::cli
