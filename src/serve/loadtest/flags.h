// SPDX-License-Identifier: Apache-2.0
// The command line of `pelton loadtest`.
#pragma once

#include "serve/loadtest/options.h"

namespace CLI {
class App;
}

namespace pelton::serve {

// Declares the flags on `app`; they write to `options`, which must outlive the parse.
void add_loadtest_flags(CLI::App& app, LoadOptions& options);

}  // namespace pelton::serve
