// SPDX-License-Identifier: Apache-2.0
// pelton train: runs a recipe, or says what it would do.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "ir/text.h"
#include "nn/model.h"
#include "register/registry.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace pelton::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string recipe, target;
  std::vector<std::string> sets;
  uint64_t memory_budget = 0;  // bytes
  bool schema = false, dry_run = false, resume = false, models = false, graph = false, deterministic = false;
};

constexpr size_t kShownNodes = 12;                          // kinds of nodes in the report of a dry run
constexpr double kTerminalSeconds = 0.2, kPipeSeconds = 5;  // between progress lines

Json number(double v) {
  if (!std::isfinite(v)) return nullptr;
  return v;
}

Json values_json(const train::Values& values) {
  Json out = Json::object();
  for (const auto& [name, v] : values) out[name] = number(v);
  return out;
}

std::string time_text(double seconds) {
  auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return cat(s, " s");
  if (s < 3600) return cat(s / 60, " min ", s % 60, " s");
  return cat(s / 3600, " h ", s % 3600 / 60, " min");
}

std::string significant(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", v);
  return text;
}

// One line on standard error that is written over on a terminal; evaluations stay.
class Line {
 public:
  explicit Line(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO)) {}
  ~Line() {
    if (open_) std::fputc('\n', stderr);
  }
  void show(const train::Moment& m) {
    if (quiet_) return;
    bool eval = m.kind == "eval";
    double now = static_cast<double>(now_ns()) * 1e-9;
    bool due = now - last_ >= (terminal_ ? kTerminalSeconds : kPipeSeconds) || m.update == m.updates;
    if (!eval && !due) return;
    std::string text = cat(eval ? "evaluated " : "", m.update, "/", m.updates, "  epoch ", fixed(m.epoch, 2));
    for (const auto& [name, v] : m.values) append(text, cat("  ", name, " ", significant(v)));
    if (!eval) {
      append(text, cat("  ", fixed(m.samples_per_s, 1), " samples/s"));
      if (m.seconds_left > 0) append(text, cat("  ", time_text(m.seconds_left), " left"));
      append(text, cat("  ", bytes_text(static_cast<double>(m.memory_bytes))));
      last_ = now;
    }
    bool stays = eval || !terminal_;
    std::fprintf(stderr, terminal_ ? "\r\x1b[K%s%s" : "%s%s", text.c_str(), stays ? "\n" : "");
    std::fflush(stderr);
    open_ = !stays;
  }

 private:
  bool quiet_, terminal_, open_ = false;
  double last_ = 0;
};

int list_models(const Globals& globals) {
  Json all = Json::array();
  Table table({"model", "options (defaults)"});
  for (const nn::ModelDef& m : nn::models()) {
    std::string options;
    Json json_options = Json::object();
    for (const ir::AttrDef& o : m.options) {
      std::string text = o.default_value ? ir::print(*o.default_value) : "required";
      append(options, cat(options.empty() ? "" : ", ", o.name, " ", text));
      json_options[std::string(o.name)] = text;
    }
    table.row({std::string(m.name), options});
    all.push_back({{"name", std::string(m.name)}, {"doc", std::string(m.doc)}, {"options", json_options}});
  }
  if (globals.json)
    print_json(Json{{"models", all}});
  else
    table.print();
  return 0;
}

int dry_run(train::Trainer& trainer, const Options& o, const Globals& globals) {
  train::DryRun d = trainer.dry_run();
  double total = d.step_seconds * static_cast<double>(d.updates);
  if (globals.json) {
    print_json(Json{{"model", d.model},
                    {"parameters", d.parameters},
                    {"trained", d.trained},
                    {"samples", d.samples},
                    {"updates_per_epoch", d.epoch_updates},
                    {"updates", d.updates},
                    {"nodes", d.nodes},
                    {"flops_per_step", d.flops},
                    {"state_bytes", d.state_bytes},
                    {"memory_bytes", d.memory_bytes},
                    {"arena_bytes", d.arena_bytes},
                    {"scratch_bytes", d.scratch_bytes},
                    {"step_seconds", d.step_seconds},
                    {"resident_seconds", d.resident_seconds},
                    {"step_cpu_seconds", d.step_cpu_seconds},
                    {"implementations", d.implementations},
                    {"node_seconds", d.node_seconds}});
    return 0;
  }
  if (o.graph) print_line(d.graph);
  if (!o.target.empty()) {
    Table table({"runs on", "nodes"}, {false, true});
    for (const auto& [name, count] : d.implementations) table.row({name, cat(count)});
    table.print();
    return 0;
  }
  print_line(cat("model        ", d.model, ", ", d.parameters, " parameters, ", d.trained, " trained"));
  print_line(cat("data         ", d.samples, " samples, ", d.epoch_updates, " updates an epoch, ", d.updates,
                 " in all"));
  print_line(cat("step         ", d.nodes, " nodes, ", fixed(d.flops * 1e-9, 3), " GFLOP, ",
                 fixed(d.step_seconds * 1e3, 1), " ms on ", threads(), " threads; the run about ",
                 time_text(total)));
  if (d.resident_seconds > 0)
    print_line(cat("             ", fixed(d.resident_seconds * 1e3, 2),
                   " ms where the batch lies on the device already"));
  print_line(cat("memory       ", bytes_text(static_cast<double>(d.memory_bytes)),
                 ", of it parameters and state ", bytes_text(static_cast<double>(d.state_bytes)),
                 ", results of the step ", bytes_text(static_cast<double>(d.arena_bytes)), " (at most ",
                 bytes_text(static_cast<double>(d.scratch_bytes)), " for one kernel's work)"));
  std::vector<std::pair<double, std::string>> slowest;
  for (const auto& [name, seconds] : d.node_seconds) slowest.emplace_back(seconds, name);
  std::sort(slowest.rbegin(), slowest.rend());
  slowest.resize(std::min(slowest.size(), kShownNodes));
  Table table({"where the time goes", "ms"}, {false, true});
  for (const auto& [seconds, name] : slowest) table.row({name, fixed(seconds * 1e3, 2)});
  table.print();
  return 0;
}

int run(const Options& o, const Globals& globals) {
  if (o.schema) {
    print_line(train::recipe_schema_json());
    return 0;
  }
  if (o.models) return list_models(globals);
  if (o.recipe.empty()) throw Misuse{"no recipe is named", "pelton train RECIPE.toml"};
  train::TrainerOptions options;
  // A GPU is used when it is named.
  options.target = globals.device_named ? globals.target() : device::detect_cpu(globals.threads);
  if (!o.target.empty()) {
    options.target = device::parse_target(o.target);
    options.compile_only = true;
  }
  options.resume = o.resume;
  options.deterministic = o.deterministic;
  std::vector<std::string> sets = o.sets;
  if (o.memory_budget)
    sets.push_back(cat("step.memory_budget=", static_cast<double>(o.memory_budget) / 1073741824.0));
  if (folder_exists(o.recipe) && !train::is_run_folder(o.recipe))
    fail(ErrorCode::bad_format, "the folder holds no training run", o.recipe,
         "name a recipe, or the folder of a run");
  train::Recipe recipe =
      train::is_run_folder(o.recipe) ? train::run_recipe(o.recipe, sets) : train::load_recipe(o.recipe, sets);
  Line line(globals.quiet || globals.json);
  options.on_moment = [&](const train::Moment& m) {
    line.show(m);
    if (!globals.json) return;
    Json j = {{"kind", m.kind}, {"update", m.update}, {"updates", m.updates}, {"epoch", m.epoch}};
    j.update(values_json(m.values));
    j["samples_per_s"] = number(m.samples_per_s);
    j["seconds_left"] = number(m.seconds_left);
    j["memory_bytes"] = m.memory_bytes;
    print_json(j);
  };
  train::Trainer trainer(std::move(recipe), options, registry());
  if (o.dry_run) return dry_run(trainer, o, globals);
  train::RunResult r = trainer.run();
  if (globals.json) {
    print_json(Json{{"final", true},
                    {"run", r.folder},
                    {"stopped", r.stopped},
                    {"updates", r.updates},
                    {"epochs", r.epochs},
                    {"seconds", r.seconds},
                    {"samples_per_s", r.samples_per_s},
                    {"last", values_json(r.last)},
                    {"best", values_json(r.best)}});
    return 0;
  }
  std::string best;
  for (const auto& [name, v] : r.best) append(best, cat("  ", name, " ", significant(v)));
  print_line(cat(r.folder, ": ", r.updates, " updates, ", fixed(r.epochs, 2), " epochs in ",
                 time_text(r.seconds), ", ", fixed(r.samples_per_s, 1), " samples/s",
                 r.stopped == "early" ? "; stopped early" : ""));
  if (!best.empty()) print_line(cat("best evaluation:", best));
  return 0;
}

}  // namespace

Run make_train(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("RECIPE", o->recipe, "recipe (TOML), or the folder of a run");
  app.add_option("--set", o->sets, "override a key of the recipe, repeated")
      ->type_name("A.B=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  CLI::AsSizeValue size(false);
  size.description("");
  app.add_option("--memory-budget", o->memory_budget,
                 "what a step may take, as 8GiB: sets step.memory_budget")
      ->transform(size)
      ->type_name("BYTES");
  app.add_flag("--resume", o->resume, "go on from the newest checkpoint of the run folder");
  app.add_flag(
      "--deterministic", o->deterministic,
      "choose nothing by timing and add in one order: the same bits in every run on the same device");
  CLI::Option* dry = app.add_flag("--dry-run", o->dry_run,
                                  "compile the step, time it on one batch, and say what the run would take");
  app.add_option("--target", o->target,
                 "with --dry-run: compile for this machine, as sm_90, and time nothing")
      ->needs(dry);
  app.add_flag("--graph", o->graph, "print the compiled step with --dry-run")->needs(dry);
  app.add_flag("--schema", o->schema, "print the JSON Schema of recipes");
  app.add_flag("--models", o->models, "list the built-in models with their options");
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
