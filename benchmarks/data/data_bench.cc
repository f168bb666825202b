// SPDX-License-Identifier: Apache-2.0
// One measurement of the input pipeline for run.py, as one JSON line:
//   data_bench pipeline DIR MATCH DTYPE BATCH THREADS SECONDS    folder -> random-resized-crop 224 -> flip ->
//   normalise data_bench decode DIR - - - THREADS SECONDS                  whole files through libjpeg-turbo
//   alone, from memory
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "data/codec/jpeg.h"
#include "data/pipeline.h"

using namespace pelton;
using namespace pelton::data;

namespace {

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

void print(int64_t samples, double wall, double cpu, const std::string& more) {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  std::printf(
      "{\"samples\": %lld, \"samples_per_s\": %.1f, \"cpu_ms_per_sample\": %.4f, \"peak_mib\": %.0f%s}\n",
      static_cast<long long>(samples), static_cast<double>(samples) / wall,
      1e3 * cpu / static_cast<double>(samples), static_cast<double>(u.ru_maxrss) / 1024, more.c_str());
}

void pipeline(const std::string& dir, const std::string& match, const std::string& dtype, int64_t batch,
              double seconds) {
  PipelineSpec p;
  p.match = match;
  p.source = {"folder", {{"path", dir}, {"labels", false}}, {}, true};
  Options crop = {{"size", 224}};
  if (match == "opencv") crop["antialias"] = false;
  p.stages = {{"decode", {}, ""},
              {"random_resized_crop", crop, ""},
              {"flip", {}, ""},
              {"normalize", {{"dtype", dtype}}, ""}};
  Pipeline run(p, {.batch = batch, .last = LastBatch::fill, .prefetch = 3});
  Batch b;
  for (int i = 0; i < 3; ++i) run.next(b);  // warm-up
  int64_t samples = 0;
  double restart = 0;
  const double cpu = cpu_seconds();
  Stopwatch watch;
  while (watch.seconds() < seconds) {
    if (run.next(b)) {
      samples += b.count();
      continue;
    }
    Stopwatch gap;
    if (run.next(b)) samples += b.count(), restart = std::max(restart, gap.seconds());
  }
  const double wall = watch.seconds();
  std::string more = cat(", \"longest_epoch_restart_ms\": ", restart * 1e3, ", \"stage_ms_per_sample\": {");
  const PipelineReport r = run.report();
  append(more, cat("\"read\": ", 1e3 * r.read_seconds / static_cast<double>(r.samples)));
  for (const auto& [name, s] : r.stage_seconds)
    append(more, cat(", \"", name, "\": ", 1e3 * s / static_cast<double>(r.samples)));
  print(samples, wall, cpu_seconds() - cpu, more + "}");
}

void decode(const std::string& dir, int threads, double seconds) {
  std::vector<Tensor> files;
  for (const auto& f : std::filesystem::directory_iterator(dir))
    files.push_back(whole_file(f.path().string()));
  std::atomic<int64_t> done{0};
  const double cpu = cpu_seconds();
  Stopwatch watch;
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      while (watch.seconds() < seconds) {
        const Tensor& f = files[static_cast<size_t>(done++) % files.size()];
        jpeg_decode({f.as<uint8_t>(), static_cast<size_t>(f.count())}, {}, "bench");
      }
    });
  workers.clear();
  print(done, watch.seconds(), cpu_seconds() - cpu, "");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8)
    return std::fprintf(stderr, "usage: data_bench pipeline|decode DIR MATCH DTYPE BATCH THREADS SECONDS\n"),
           2;
  const int threads = std::atoi(argv[6]);
  set_threads(threads);
  try {
    if (std::string(argv[1]) == "pipeline")
      pipeline(argv[2], argv[3], argv[4], std::atoll(argv[5]), std::atof(argv[7]));
    else
      decode(argv[2], threads, std::atof(argv[7]));
  } catch (const Error& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
