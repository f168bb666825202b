// SPDX-License-Identifier: Apache-2.0
// pelton serve: models of a repository over HTTP and gRPC.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/preprocess.h"
#include "register/model.h"
#include "register/registry.h"
#include "runtime/executable.h"
#include "runtime/version.h"
#include "serve/engine/identity.h"
#include "serve/engine/library.h"
#include "serve/engine/plan.h"
#include "serve/engine/python.h"
#include "serve/flags.h"

namespace pelton::cli {
namespace {

serve::PlanLoader plan_loader(const device::Target& target) {
  return [target](const serve::PlanRequest& r) {
    CompileOptions options;
    options.shapes = r.shapes;
    options.precision = r.precision;
    return runtime::Executable::create(open_plan(r.path, target, options), registry(), target);
  };
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
        plan_loader(globals.target()), o->map_models,
        [target = globals.target()](const std::string& path) { return open_pictures(path, target); });
    backends.add("pelton", plans);
    backends.add("onnxruntime", plans);
    o->core.services = std::make_shared<serve::ServerServices>();
    backends.add("python", serve::make_python_backend({o->python, o->core.services}));
    try {
      for (const auto& [name, file] : o->engines) backends.add(name, serve::open_library_backend(file));
      return serve::run_server(*o, backends, globals.json);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::usage) throw Misuse{e.message(), e.fix()};
      throw;
    }
  };
}

}  // namespace pelton::cli
