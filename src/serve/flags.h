// SPDX-License-Identifier: Apache-2.0
// The command line of `pelton serve`: flags under the names that existing deployments use, each honoured or
// refused by name with the way out.
#pragma once

#include "serve/options.h"

namespace CLI {
class App;
}

namespace pelton::serve {

// Declares the flags on `app`; they write to `options`, which must outlive the parse.
void add_serve_flags(CLI::App& app, ServeOptions& options);
// After the parse: what the flags say together. usage errors.
void check_serve_options(ServeOptions& options);

}  // namespace pelton::serve
