// SPDX-License-Identifier: Apache-2.0
#include "register/registry.h"

#include "backend/cpu/register.h"
#include "runtime/plugin.h"

namespace pelton {

const backend::Registry& registry() {
  static const backend::Registry* const filled = [] {
    auto* r = new backend::Registry;
    backend::register_cpu(*r);
    r->add(runtime::plugin_implementation());
    return r;
  }();
  return *filled;
}

device::Target find_device(const std::string& device, int threads, std::string* note) {
  constexpr const char* kNoCuda = "this build has no CUDA back end";
  if (device == "cuda" || device.rfind("cuda:", 0) == 0)
    fail(ErrorCode::no_device, cat("device '", device, "' cannot be used: ", kNoCuda), "",
         "use --device cpu or --device auto");
  if (device == "auto") {
    if (note) *note = cat("running on the CPU: ", kNoCuda);
  } else if (device != "cpu") {
    fail(ErrorCode::bad_name, cat("there is no device '", device, "'"), "", "use cpu, cuda, cuda:N or auto");
  }
  return device::detect_cpu(threads);
}

}  // namespace pelton
