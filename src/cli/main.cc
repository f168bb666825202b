// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "runtime/plugin.h"
#include "runtime/version.h"

namespace pelton::cli {
namespace {

constexpr const char* kReserved[] = {"generate", "logwatch", "zoo", "quantize", "refit", "tune", "profile"};

constexpr const char* kEveryCommand =
    "Every command takes --json, -v, -q, --log-level, --device, --threads and --plugin as well: pelton "
    "--help";

// The object of --json. That it cannot be written changes nothing.
void print_error(const Error& e) try {
  const nlohmann::json error = {{"code", std::string(to_string(e.code()))},
                                {"what", e.message()},
                                {"where", e.where()},
                                {"fix", e.fix()}};
  print_json({{"error", error}});
} catch (const Error&) {
}

int report(const Globals& globals, const Error& e, int status) {
  std::fprintf(stderr, "pelton: error: %s\n", e.what());
  if (globals.json) print_error(e);
  return status;
}

void apply(const Globals& g) {
  LogLevel level = LogLevel::warn;
  if (g.quiet) level = LogLevel::error;
  if (g.verbose == 1) level = LogLevel::info;
  if (g.verbose == 2) level = LogLevel::debug;
  if (g.verbose > 2) level = LogLevel::trace;
  if (!g.log_level.empty()) level = parse_log_level(g.log_level);
  set_log_level(level);
  if (g.quiet) set_progress_mode(ProgressMode::off);
  if (g.threads < 0)
    fail(ErrorCode::usage, cat("--threads is ", g.threads), "", "use 1 to 1024, or 0 for all");
  if (g.threads) set_threads(g.threads);
  for (const std::string& file : g.plugins) runtime::load_plugin(file);
}

void add_globals(CLI::App& app, Globals& g) {
  app.add_flag("--json", g.json,
               "one JSON object on standard output, of train one a line, and nothing else there");
  app.add_flag("-v,--verbose", g.verbose, "say more on standard error (twice: debug)");
  app.add_flag("-q,--quiet", g.quiet, "errors only");
  app.add_option("--log-level", g.log_level, "trace, debug, info, warn, error or off")->type_name("LEVEL");
  app.add_option("--device", g.device, "cpu, cuda, cuda:N or auto")
      ->type_name("DEVICE")
      ->each([&g](const std::string&) { g.device_named = true; });
  app.add_option("--plugin", g.plugins, "shared library with ops of your own, repeated")
      ->type_name("FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--threads", g.threads, "threads that work at the same time; 0: all that may be used")
      ->type_name("N");
}

// The first argument that is no option: the command, whether it exists or not.
std::string command_word(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view a = argv[i];
    if (a == "--log-level" || a == "--device" || a == "--threads" || a == "--plugin") ++i;
    if (!a.empty() && a[0] != '-') return std::string(a);
  }
  return "";
}

// The first argument that looks like a flag and is none of the command or of all commands; "" without one.
std::string unknown_flag(const CLI::App& app) {
  for (const std::string& argument : app.remaining(true))
    if (argument.starts_with("--")) return argument.substr(0, argument.find('='));
  return "";
}

// All that may be written behind the command that was named.
std::vector<std::string> flags(const CLI::App& app) {
  std::vector<std::string> out;
  auto add = [&](const CLI::App& a) {
    for (const CLI::Option* o : a.get_options())
      for (const std::string& name : o->get_lnames()) out.push_back(cat("--", name));
  };
  add(app);
  for (const CLI::App* sub : app.get_subcommands()) add(*sub);
  return out;
}

std::string did_you_mean(const std::string& name, const std::string& otherwise) {
  return name.empty() ? otherwise : cat("did you mean ", name, "?");
}

// What --help and --version ask for.
int show(const CLI::App& app, const CLI::ParseError& asked, bool json) {
  std::ostringstream text;
  const int status = app.exit(asked, text, text);
  if (!json)
    std::fputs(text.str().c_str(), stdout);
  else if (asked.get_name() == "CallForVersion")
    print_json({{"version", std::string(version())}});
  else
    print_json({{"help", text.str()}});
  return status;
}

int run(int argc, char** argv) {
  Globals globals;
  CLI::App app("Pelton takes a deep-learning workload from raw data to a served model.", "pelton");
  app.set_version_flag("--version", cat("pelton ", std::string(version())));
  app.require_subcommand(1);
  app.fallthrough();
  app.get_formatter()->column_width(34);
  add_globals(app, globals);
  std::vector<std::pair<CLI::App*, Run>> commands;
#define PELTON_COMMAND(name, summary)                       \
  {                                                         \
    CLI::App* sub = app.add_subcommand(#name, summary);     \
    sub->footer(kEveryCommand);                             \
    commands.emplace_back(sub, make_##name(*sub, globals)); \
  }
#include "cli/commands.def"
#undef PELTON_COMMAND

  // Known before parsing, so that a parse error is reported in the form asked for.
  for (int i = 1; i < argc; ++i) globals.json |= std::string_view(argv[i]) == "--json";
  std::string word = command_word(argc, argv);
  for (const char* reserved : kReserved)
    if (word == reserved)
      return report(globals,
                    Error(ErrorCode::usage, cat("the command '", word, "' is reserved and not built yet"), "",
                          "see pelton --help for what there is"),
                    2);
  std::vector<std::string> names;
  for (const auto& [sub, command] : commands) names.push_back(sub->get_name());
  if (!word.empty() && std::find(names.begin(), names.end(), word) == names.end())
    return report(globals,
                  Error(ErrorCode::usage, cat("there is no command '", word, "'"), "",
                        did_you_mean(nearest(word, names), "see pelton --help for what there is")),
                  2);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return show(app, e, globals.json);
    const std::string help = cat("see pelton ", word, word.empty() ? "" : " ", "--help");
    const std::string flag = unknown_flag(app), meant = nearest(flag, flags(app));
    return report(
        globals,
        Error(ErrorCode::usage, flag.empty() ? e.what() : cat("there is no flag '", flag, "'"),
              word.empty() ? "" : cat("pelton ", word), flag.empty() ? help : did_you_mean(meant, help)),
        2);
  }
  try {
    apply(globals);
    for (auto& [sub, command] : commands)
      if (sub->parsed()) {
        int status = command();
        if (std::fflush(stdout) != 0) fail(ErrorCode::io, "standard output cannot be written");
        // What ended by itself after a signal has done its work, but a script behind it has to stop.
        return interrupted() && status == 0 ? 128 + interrupt_signal() : status;
      }
  } catch (const Misuse& m) {
    return report(globals,
                  Error(ErrorCode::usage, m.what, cat("pelton ", word),
                        m.fix.empty() ? cat("see pelton ", word, " --help") : m.fix),
                  2);
  } catch (const Error& e) {
    if (interrupted() && e.code() == ErrorCode::cancelled) {
      if (!globals.quiet) std::fprintf(stderr, "pelton: %s\n", e.what());
      if (globals.json) print_error(e);
      return 128 + interrupt_signal();
    }
    return report(globals, e, 1);
  } catch (const std::bad_alloc&) {
    return report(globals, Error(ErrorCode::out_of_memory, "the system gave no more memory"), 1);
  } catch (const std::exception& e) {
    return report(globals, Error(ErrorCode::internal, e.what()), 1);
  }
  return 2;
}

}  // namespace
}  // namespace pelton::cli

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  pelton::install_interrupt_handlers();
  return pelton::cli::run(argc, argv);
}
