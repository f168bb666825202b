// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/error.h"
#include "serve/engine/identity.h"
#include "serve/flags.h"

int main(int argc, char** argv) {
  using namespace pelton;
  using namespace pelton::serve;
  CLI::App app("pelton serve");
  ServeOptions options;
  options.core.server_version = "0.1.0";
  add_serve_flags(app, options);
  try {
    app.parse(argc, argv);
    check_serve_options(options);
    BackendTable backends;
    backends.add("identity", make_identity_backend());
    return run_server(options, backends, false);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) ? 2 : 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "pelton: error: %s\n", e.what());
    return e.code() == ErrorCode::usage ? 2 : 1;
  }
}
