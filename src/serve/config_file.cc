// SPDX-License-Identifier: Apache-2.0
#include "serve/config_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "base/cat.h"
#include "base/file.h"
#include "base/toml.h"

namespace pelton::serve {
namespace {

[[noreturn]] void refuse(std::string what) {
  throw CLI::ValidationError(std::move(what));
}

std::string scalar_text(const toml::node& v, const std::string& key) {
  if (auto s = v.value_exact<std::string>()) return *s;
  if (auto b = v.value_exact<bool>()) return *b ? "true" : "false";
  if (auto i = v.value_exact<int64_t>()) return cat(*i);
  if (auto d = v.value_exact<double>()) return cat(*d);
  refuse(cat("setting '", key, "' is neither a text, a number nor a boolean"));
}

void apply_file(CLI::App& app, const std::string& path) {
  toml::table table;
  try {
    table = parse_toml(read_file(path, 1 << 20), path);
  } catch (const Error& e) {
    refuse(cat("--config: ", e.what()));
  }
  for (const auto& [k, value] : table) {
    std::string key(k.str());
    std::replace(key.begin(), key.end(), '_', '-');
    CLI::Option* option = key == "config" ? nullptr : app.get_option_no_throw("--" + key);
    if (!option) refuse(cat("--config ", path, " sets '", key, "', which is no flag of this command"));
    if (option->count() > 0) continue;  // said on the command line or in the environment
    if (const toml::array* list = value.as_array()) {
      for (const toml::node& v : *list) option->add_result(scalar_text(v, key));
    } else {
      const std::string text = scalar_text(value, key);
      if (option->get_expected_min() == 0 && option->get_items_expected_max() == 0) {
        if (text == "false") continue;  // a switch that stays off
        option->add_result("true");
      } else {
        option->add_result(text);
      }
    }
  }
}

}  // namespace

void add_config_file(CLI::App& app) {
  // Its callback runs before those of the options declared after it, which then see what the file says.
  app.add_option_function<std::string>(
      "--config", [&app](const std::string& path) { apply_file(app, path); },
      "TOML file of settings, keys as the flags");
}

void name_environment(CLI::App& app) {
  // Only when the command is given: a parser looks at the variables of commands that are not.
  app.preparse_callback([&app](size_t) {
    for (CLI::Option* o : app.get_options()) {
      std::string name = o->get_name(false, true);
      name = name.substr(0, name.find(','));
      if (!name.starts_with("--") || name == "--help") continue;
      std::string variable = "PELTON_SERVE_";
      for (char c : name.substr(2)) variable += c == '-' ? '_' : static_cast<char>(std::toupper(c));
      o->envname(variable);
    }
  });
}

}  // namespace pelton::serve
