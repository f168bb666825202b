// SPDX-License-Identifier: Apache-2.0
#include "register/registry.h"

#include "backend/cpu/register.h"
#include "backend/cuda.h"
#include "runtime/plugin.h"

namespace pelton {

const backend::Registry& registry() {
  static const backend::Registry* const filled = [] {
    auto* r = new backend::Registry;
    for (backend::Implementation& i : runtime::plugin_implementations()) r->add(std::move(i));
    backend::register_cpu(*r);
    backend::register_cuda(*r);
    r->add(runtime::plugin_implementation());
    return r;
  }();
  return *filled;
}

device::Target find_device(const std::string& device, int threads, std::string* note) {
  bool cuda = device == "cuda" || device.rfind("cuda:", 0) == 0;
  if (!cuda && device != "auto" && device != "cpu")
    fail(ErrorCode::bad_name, cat("there is no device '", device, "'"), "", "use cpu, cuda, cuda:N or auto");
  if (device == "cpu") return device::detect_cpu(threads);
  int ordinal = -1;
  if (device.rfind("cuda:", 0) == 0) {
    std::string number = device.substr(5);
    if (number.empty() || number.size() > 4 || number.find_first_not_of("0123456789") != number.npos)
      fail(ErrorCode::bad_name, cat("'", number, "' is no number of a GPU"), cat("device '", device, "'"),
           "use cuda or cuda:0, cuda:1, ...");
    ordinal = std::stoi(number);
  }
  std::string why;
  std::vector<device::Target> found = backend::cuda_devices(why);
  for (device::Target& t : found)
    if (ordinal < 0 || t.ordinal == ordinal) {
      if (threads > 0) t.threads = threads;
      return t;
    }
  if (why.empty()) why = cat("there are ", found.size(), " GPUs, numbered from 0");
  if (cuda)
    fail(ErrorCode::no_device, cat("device '", device, "' cannot be used: ", why), "",
         "use --device cpu or --device auto");
  if (note) *note = cat("running on the CPU: ", why);
  return device::detect_cpu(threads);
}

std::vector<device::Target> find_gpus(std::string& why) {
  return backend::cuda_devices(why);
}

std::vector<DeviceLibrary> device_libraries() {
  std::vector<DeviceLibrary> out;
  for (backend::LibraryReport& l : backend::cuda_libraries())
    out.push_back({std::move(l.name), std::move(l.version), std::move(l.off)});
  return out;
}

}  // namespace pelton
