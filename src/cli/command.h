// SPDX-License-Identifier: Apache-2.0
// What a command is: a function that adds its options to a parser and returns what runs. A new command is one
// file with that function and one line in commands.def.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "device/target.h"
#include "tensor/dim.h"

namespace CLI {
class App;
}

namespace pelton::cli {

// Options that every command takes.
struct Globals {
  bool json = false;
  bool quiet = false;
  int verbose = 0;
  std::string log_level;
  std::string device = "auto";
  int threads = 0;
  std::vector<std::string> plugins;

  // The device named; with `auto` says on standard error why it is no better one, if asked for by name.
  device::Target target() const;
  bool device_named = false;
};

// Returns the exit status. Errors are thrown and become one line.
using Run = std::function<int()>;
#define PELTON_COMMAND(name, summary) Run make_##name(CLI::App& app, const Globals& globals);
#include "cli/commands.def"
#undef PELTON_COMMAND

// Results go to standard output through these; a write that fails is an io error.
void print_line(std::string_view line);
// An object of --json as a line; bytes of names and paths that are no UTF-8 are replaced.
void print_json(const nlohmann::json& object);

// Columns padded to their widest cell, two spaces apart; numbers (right[i]) are aligned right.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<bool> right = {});
  void row(std::vector<std::string> cells);
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> right_;
};

// "name=value" of a repeated option; usage error without '=' or with a name twice.
std::map<std::string, std::string> pairs(const std::vector<std::string>& options, std::string_view flag);
Dims parse_dims(const std::string& text);  // 1x3x224x224
std::string dims_text(const Dims& dims);   // the reverse; "scalar" for rank 0
std::string bytes_text(double bytes);      // "12.3 MiB"
std::string fixed(double value, int decimals);

// Wrong use of the command line, found after parsing: exit status 2.
struct Misuse {
  std::string what, fix;
};

}  // namespace pelton::cli
