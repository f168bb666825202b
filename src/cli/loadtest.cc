// SPDX-License-Identifier: Apache-2.0
// pelton loadtest: load for a running server, and its latencies.
#include "serve/loadtest/options.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "base/interrupt.h"
#include "cli/command.h"
#include "serve/loadtest/flags.h"

namespace pelton::cli {

Run make_loadtest(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<serve::LoadOptions>();
  serve::add_loadtest_flags(app, *o);
  return [o, &globals] {
    std::vector<serve::LoadResult> results;
    try {
      results = serve::run_loadtest(*o);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::usage) throw Misuse{e.message(), e.fix()};
      throw;
    }
    std::string text = globals.json ? serve::results_json(*o, results) : serve::table_text(results);
    if (!text.empty() && text.back() == '\n') text.pop_back();
    print_line(text);
    for (const auto& r : results)
      if (r.requests == 0) return 1;  // nothing was answered
    return 0;
  };
}

}  // namespace pelton::cli
