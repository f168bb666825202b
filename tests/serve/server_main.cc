// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/error.h"
#include "serve/engine/identity.h"
#include "serve/flags.h"
#include "serve/loadtest/flags.h"

int main(int argc, char** argv) {
  using namespace pelton;
  using namespace pelton::serve;
  if (argc > 1 && std::string(argv[1]) == "loadtest") {
    CLI::App load("pelton loadtest");
    LoadOptions o;
    bool json = false;
    load.add_flag("--json", json);
    add_loadtest_flags(load, o);
    try {
      load.parse(argc - 1, argv + 1);
      const auto results = run_loadtest(o);
      std::printf("%s\n", json ? results_json(o, results).c_str() : table_text(results).c_str());
      return 0;
    } catch (const CLI::ParseError& e) {
      return load.exit(e) ? 2 : 0;
    } catch (const Error& e) {
      std::fprintf(stderr, "pelton: error: %s\n", e.what());
      return e.code() == ErrorCode::usage ? 2 : 1;
    }
  }
  if (argc > 1 && std::string(argv[1]) == "serve") --argc, ++argv;
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
