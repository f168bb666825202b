// SPDX-License-Identifier: Apache-2.0
// pelton data: what a pipeline gives, how fast, and whether all of its samples can be read.
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "data/evaluation.h"
#include "data/pipeline.h"
#include "data/tools/tools.h"
#include "register/registry.h"
#include "tensor/npy.h"

namespace pelton::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string pipeline, sheet, convert, save;
  bool schema = false, bench = false, verify = false, evaluation = false;
  int64_t batch = 32, count = 64, epoch = 0, shard_mib = 256;
  double seconds = 10;
};

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

int64_t resident_bytes() {
  long pages = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return int64_t{resident} * sysconf(_SC_PAGESIZE);
}

Json bad_list(const std::vector<data::BadSample>& bad) {
  Json out = Json::array();
  for (const auto& b : bad)
    out.push_back({{"index", b.index}, {"origin", b.origin}, {"op", b.op}, {"reason", b.reason}});
  return out;
}

void emit(const Globals& g, const Json& json, const std::vector<std::string>& lines) {
  if (g.json) return print_json(json);
  for (const auto& line : lines) print_line(line);
}

// Samples a second, and where the threads' time goes.
int run_bench(data::Pipeline& p, const Options& o, const Globals& g) {
  data::Batch b;
  for (int i = 0; i < 3; ++i) p.next(b);  // warm-up: threads, buffers, file cache
  const data::PipelineReport before = p.report();
  const double cpu = cpu_seconds();
  int64_t samples = 0, epochs = 0;
  Json memory = Json::array();
  Stopwatch watch;
  while (watch.seconds() < o.seconds && !interrupted()) {
    if (!p.next(b)) {
      ++epochs;
      continue;
    }
    samples += b.count();
    if (watch.seconds() >= static_cast<double>(memory.size())) memory.push_back(resident_bytes());
  }
  const double wall = watch.seconds(), used = cpu_seconds() - cpu,
               n = static_cast<double>(std::max<int64_t>(samples, 1));
  const data::PipelineReport after = p.report();
  Json stages = Json::object();
  std::string slowest = "read";
  double worst = (after.read_seconds - before.read_seconds) * 1e3 / n;
  stages["read"] = worst;
  Table table({"stage", "thread ms a sample"}, {false, true});
  table.row({"read", fixed(worst, 3)});
  for (size_t i = 0; i < after.stage_seconds.size(); ++i) {
    const double ms = (after.stage_seconds[i].second - before.stage_seconds[i].second) * 1e3 / n;
    const std::string name = after.stage_seconds[i].first == "finish" ? "finish (decode, resample, write)"
                                                                      : after.stage_seconds[i].first;
    stages[cat(i + 1, " ", after.stage_seconds[i].first)] = ms;
    table.row({name, fixed(ms, 3)});
    if (ms > worst) worst = ms, slowest = name;
  }
  std::string pace = cat("threads: ", after.threads, " of the pool");
  if (after.readers) append(pace, cat(" and ", after.readers, " more while reads wait"));
  append(pace, cat(" (", fixed(100 * after.waiting, 1), " % of a sample's time is waiting for reads)"));
  const std::string ahead = cat("made ahead: ", after.in_flight - 1, " batches (the slowest of late took ",
                                fixed(after.slowest_batch_seconds * 1e3, 1), " ms, one is taken every ",
                                fixed(after.period_seconds * 1e3, 1), " ms)");
  const double busy = used / wall / threads();
  const std::string limit =
      busy > 0.8 ? cat("the CPU, mostly in ", slowest) : cat("waiting, mostly in ", slowest);
  const Json json = {{"samples_per_s", static_cast<double>(samples) / wall},
                     {"samples", samples},
                     {"seconds", wall},
                     {"batch", o.batch},
                     {"threads", threads()},
                     {"readers", after.readers},
                     {"waiting_for_reads", after.waiting},
                     {"slowest_batch_ms", after.slowest_batch_seconds * 1e3},
                     {"batch_period_ms", after.period_seconds * 1e3},
                     {"cpu_ms_per_sample", used * 1e3 / n},
                     {"cpu_busy", busy},
                     {"limited_by", limit},
                     {"stage_thread_ms_per_sample", stages},
                     {"epochs_ended", epochs},
                     {"resident_bytes", memory},
                     {"batch_bytes", after.batch_bytes},
                     {"batches_in_flight", after.in_flight},
                     {"cached_samples", after.cached_samples},
                     {"cached_bytes", after.cached_bytes},
                     {"decoded_on_device", after.decoded_on_device},
                     {"left_to_host", after.left_to_host},
                     {"bad", after.bad},
                     {"final", true}};
  if (!g.json) table.print();
  emit(g, json,
       {cat(fixed(static_cast<double>(samples) / wall, 1), " samples/s with ", threads(), " threads; ",
            fixed(used * 1e3 / n, 3), " ms of CPU a sample"),
        cat("limited by ", limit), pace, ahead,
        cat("memory ", bytes_text(static_cast<double>(resident_bytes())), ", batches in flight ",
            after.in_flight, " of ", bytes_text(static_cast<double>(after.batch_bytes)),
            after.cached_samples ? cat(", ", after.cached_samples, " samples cached in ",
                                       bytes_text(static_cast<double>(after.cached_bytes)))
                                 : std::string())});
  // The figures so far are the final object.
  if (interrupted() && !g.quiet) std::fputs("pelton: interrupted\n", stderr);
  return 0;
}

int run_verify(const data::Pipeline& p, const Globals& g) {
  Progress progress("checking samples", p.source().size());
  const data::VerifyResult r = data::verify_samples(p, [&](int64_t n) {
    throw_if_interrupted();
    progress.add(n);
  });
  Json labels = Json::object();
  std::vector<std::string> lines;
  for (const auto& b : r.bad)
    lines.push_back(cat("bad: #", b.index, " ", b.origin, ": ", b.op, ": ", b.reason));
  for (const auto& [name, count] : r.labels) {
    labels[name] = count;
    lines.push_back(cat("label ", name, ": ", count));
  }
  lines.push_back(
      cat(r.samples - static_cast<int64_t>(r.bad.size()), " of ", r.samples, " samples are good"));
  emit(g, {{"samples", r.samples}, {"bad", bad_list(r.bad)}, {"labels", labels}}, lines);
  return r.bad.empty() ? 0 : 1;
}

int run_convert(const data::Pipeline& p, const Options& o, const Globals& g) {
  Progress progress("writing samples", p.source().size());
  const data::ConvertResult r =
      data::convert_to_tar(p.source(), o.convert, o.shard_mib << 20, [&](int64_t n) {
        throw_if_interrupted();
        progress.add(n);
      });
  emit(g, {{"samples", r.samples}, {"skipped", r.skipped}, {"shards", r.shards}},
       {cat(r.samples, " samples in ", r.shards.size(), " shards ", r.shards.empty() ? "" : r.shards.front(),
            r.shards.size() > 1 ? cat(" .. ", r.shards.back()) : "",
            r.skipped ? cat(", ", r.skipped, " unreadable ones left out") : "")});
  return 0;
}

// The first batch, each field as NAME.npy.
void save_batch(const data::Batch& b, const std::string& folder) {
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) fail_errno(ec.value(), "create", folder);
  std::vector<std::string> names;
  for (const auto& [name, t] : b.fields) names.push_back(name);
  const std::vector<std::string> files = file_names(names);
  size_t i = 0;
  for (const auto& [name, t] : b.fields) {
    if (t.dtype() != DType::string) save_npy(cat(folder, "/", files[i], ".npy"), t);
    ++i;
  }
}

// What a batch looks like.
int run_statistics(data::Pipeline& p, const Options& o, const Globals& g) {
  data::Batch b;
  p.next(b);
  if (!o.save.empty()) save_batch(b, o.save);
  const auto classes = p.source().classes();
  Json fields = Json::array();
  Table table({"field", "type"});
  for (const auto& [name, t] : b.fields) {
    fields.push_back({{"name", name}, {"dtype", std::string(pelton::name(t.dtype()))}, {"dims", t.dims()}});
    table.row({name, t.str()});
  }
  Json stages = Json::array();
  std::string chain;
  for (const auto& s : p.spec().stages) {
    stages.push_back(s.op);
    append(chain, cat(chain.empty() ? "" : " -> ", s.op));
  }
  if (!g.json) {
    print_line(cat("source: ", p.spec().source.kind, ", ", p.order().str()));
    if (!classes.empty())
      print_line(cat("classes: ", classes.size(), " (", classes.front(), " .. ", classes.back(), ")"));
    print_line(cat("stages: ", chain.empty() ? "none" : chain));
    table.print();
    for (const auto& bad : b.bad)
      print_line(cat("bad: #", bad.index, " ", bad.origin, ": ", bad.op, ": ", bad.reason));
    return 0;
  }
  emit(g,
       {{"source", p.spec().source.kind},
        {"samples", p.source().size()},
        {"classes", classes},
        {"steps", p.steps()},
        {"stages", stages},
        {"fields", fields},
        {"batch_bytes", p.report().batch_bytes},
        {"bad", bad_list(b.bad)}},
       {});
  return 0;
}

int run(const Options& o, const Globals& g) {
  if (o.schema) {
    std::string schema = data::pipeline_schema_json();
    schema.pop_back();
    print_line(schema);
    return 0;
  }
  if (o.pipeline.empty()) throw Misuse{"no pipeline is named", "pelton data PIPELINE.toml"};
  const data::PipelineSpec spec = data::load_pipeline(o.pipeline);
  data::RunOptions options{.batch = std::min(o.batch, int64_t{1} << 20), .evaluation = o.evaluation};
  if (!o.evaluation && data::stage_on_device(spec)) {
    if (const device::Target target = g.target(); target.kind != device::Kind::cpu)
      options.device = registry().open(target);
    options.on_device = o.bench;
  }
  data::Pipeline p(spec, options);
  if (o.verify) return run_verify(p, g);
  if (!o.convert.empty()) return run_convert(p, o, g);
  if (o.bench) return run_bench(p, o, g);
  if (!o.sheet.empty()) {
    write_file(o.sheet, data::contact_sheet(p, o.count, o.epoch));
    emit(g, {{"contact_sheet", o.sheet}, {"samples", std::min(o.count, p.source().size())}},
         {cat("contact sheet: ", o.sheet)});
    return 0;
  }
  return run_statistics(p, o, g);
}

}  // namespace

Run make_data(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("PIPELINE", o->pipeline, "pipeline description (TOML)");
  app.add_flag("--schema", o->schema, "print the JSON Schema of pipeline descriptions");
  CLI::Option* bench = app.add_flag("--bench", o->bench, "samples a second, and where the time goes");
  CLI::Option* verify = app.add_flag(
      "--verify", o->verify, "make every sample once and list the bad ones; status 1 when there are any");
  CLI::Option* convert = app.add_option("--convert", o->convert,
                                        "write the source's samples to tar shards PREFIX-000000.tar ...")
                             ->type_name("PREFIX");
  CLI::Option* sheet = app.add_option("--html", o->sheet, "write a page of samples as the stages make them")
                           ->type_name("FILE");
  app.add_option("--count", o->count, "samples on that page")
      ->type_name("N")
      ->check(CLI::Range(1, 10000))
      ->needs(sheet);
  app.add_option("--epoch", o->epoch, "epoch of that page")
      ->type_name("E")
      ->check(CLI::NonNegativeNumber)
      ->needs(sheet);
  app.add_flag("--eval", o->evaluation, "the evaluation form: nothing random, as served plans see pictures");
  app.add_option("--save", o->save, "write the first batch there, each field as NAME.npy")->type_name("DIR");
  app.add_option("--batch", o->batch, "batch size")->type_name("N")->check(CLI::PositiveNumber);
  app.add_option("--seconds", o->seconds, "length of --bench")
      ->type_name("S")
      ->check(CLI::PositiveNumber)
      ->needs(bench);
  app.add_option("--shard-mib", o->shard_mib, "largest shard of --convert")
      ->type_name("MIB")
      ->check(CLI::Range(1, 1 << 20))
      ->needs(convert);
  verify->excludes(bench)->excludes(convert)->excludes(sheet);
  bench->excludes(convert)->excludes(sheet);
  convert->excludes(sheet);
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
