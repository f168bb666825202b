// SPDX-License-Identifier: Apache-2.0
// The other two places of settings: a TOML file (`--config`) whose keys are the flags' names, and environment
// variables PELTON_SERVE_<FLAG>. A flag on the command line wins over the environment, which wins over the
// file.
#pragma once

namespace CLI {
class App;
}

namespace pelton::serve {

// Declares --config. Must come before the flags that the file may set.
void add_config_file(CLI::App& app);
// Gives every flag declared so far its environment variable.
void name_environment(CLI::App& app);

}  // namespace pelton::serve
