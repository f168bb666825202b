// SPDX-License-Identifier: Apache-2.0
// pelton serve: models of a repository over HTTP and gRPC.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/preprocess.h"
#include "register/model.h"
#include "register/registry.h"
#include "register/retuner.h"
#include "runtime/executable.h"
#include "runtime/version.h"
#include "serve/engine/cuda_region.h"
#include "serve/engine/identity.h"
#include "serve/engine/library.h"
#include "serve/engine/onnxruntime.h"
#include "serve/engine/plan.h"
#include "serve/engine/python.h"
#include "serve/flags.h"

namespace pelton::cli {
namespace {

serve::PlanLoader plan_loader(int threads) {
  return [threads](const serve::PlanRequest& r) {
    CompileOptions options;
    options.shapes = r.shapes;
    options.precision = r.precision;
    options.trusted = r.trusted;
    options.only_runs = true;
    const device::Target target = find_device(r.gpu < 0 ? "cpu" : cat("cuda:", r.gpu), threads);
    return runtime::Executable::create(open_plan(r.path, target, options), registry(), target,
                                       {.retuner = &retuner()});
  };
}

// The GPUs that instances of models may run on, by --device, if they are of that compute capability.
std::vector<int> serving_gpus(const Globals& globals, int min_sm) {
  const device::Target target = globals.target();
  if (target.kind != device::Kind::cuda) return {};
  std::string unused;
  std::vector<int> all;
  for (const device::Target& t : find_gpus(unused))
    if (t.sm >= min_sm && (t.ordinal == target.ordinal || !globals.device.starts_with("cuda:")))
      all.push_back(t.ordinal);
  return all;
}

}  // namespace

Run make_serve(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<serve::ServeOptions>();
  o->core.server_version = version();
  serve::add_serve_flags(app, *o);
  return [o, &globals] {
    try {
      serve::check_serve_options(*o);
    } catch (const Error& e) {
      throw Misuse{e.message(), e.fix()};
    }
    serve::BackendTable backends;
    backends.add("identity", serve::make_identity_backend());
    const auto plans = serve::make_plan_backend(
        plan_loader(globals.threads), o->map_models,
        [target = find_device("cpu", globals.threads)](const std::string& path) {
          return open_pictures(path, target);
        },
        serving_gpus(globals, o->min_sm));
    backends.add("pelton", plans);
    o->core.open_gpu_region = serve::open_cuda_region;
    o->core.services = std::make_shared<serve::ServerServices>(o->core.inflight_bytes);
    backends.add("python", serve::make_python_backend({o->python, o->core.services}));
    try {
      backends.add("onnxruntime",
                   o->onnxruntime.empty() ? plans : serve::open_onnxruntime_backend(o->onnxruntime));
      for (const auto& [name, file] : o->engines) backends.add(name, serve::open_library_backend(file));
      return serve::run_server(*o, backends, globals.json);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::usage) throw Misuse{e.message(), e.fix()};
      throw;
    }
  };
}

}  // namespace pelton::cli
