// SPDX-License-Identifier: Apache-2.0
// One measurement of the input pipeline for run.py, as one JSON line:
//   data_bench pipeline DIR MATCH DTYPE BATCH THREADS SECONDS
//     files (or tar shards) of DIR -> random-resized-crop 224 -> flip -> normalise
//   data_bench steady DIR MATCH DTYPE BATCH THREADS SECONDS
//     the same for 8 epochs (gaps between epochs, memory at the end of each), then SECONDS of a paused
//     consumer
//   data_bench decode DIR - - - THREADS SECONDS
//     whole files through libjpeg-turbo alone, from memory
//   data_bench nvjpeg DIR - - - THREADS SECONDS
//     whole files on the GPU, pixels back in host memory
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "data/codec/jpeg.h"
#include "data/codec/nvjpeg.h"
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

Pipeline make(const std::string& dir, const std::string& match, const std::string& dtype, int64_t batch) {
  PipelineSpec p;
  p.match = match;
  std::vector<std::string> shards;
  for (const auto& f : std::filesystem::directory_iterator(dir))
    if (f.path().extension() == ".tar") shards.push_back(f.path().string());
  std::ranges::sort(shards);
  if (shards.empty())
    p.source = {"folder", {{"path", dir}, {"labels", false}}, {}, true};
  else
    p.source = {"tar", {{"shards", shards}}, {}, true};
  Options crop = {{"size", 224}};
  if (match == "opencv") crop["antialias"] = false;
  p.stages = {{"decode", {}, ""},
              {"random_resized_crop", crop, ""},
              {"flip", {}, ""},
              {"normalize", {{"dtype", dtype}}, ""}};
  return Pipeline(p, {.batch = batch, .last = LastBatch::fill, .prefetch = 3});
}

void pipeline(Pipeline& run, double seconds) {
  Batch b;
  for (int i = 0; i < 3; ++i) run.next(b);  // warm-up
  int64_t samples = 0;
  const double cpu = cpu_seconds();
  Stopwatch watch;
  while (watch.seconds() < seconds)
    if (run.next(b)) samples += b.count();
  const double wall = watch.seconds();
  std::string more = ", \"stage_ms_per_sample\": {";
  const PipelineReport r = run.report();
  append(more, cat("\"read\": ", 1e3 * r.read_seconds / static_cast<double>(r.samples)));
  for (const auto& [name, s] : r.stage_seconds)
    append(more, cat(", \"", name, "\": ", 1e3 * s / static_cast<double>(r.samples)));
  print(samples, wall, cpu_seconds() - cpu, more + "}");
}

int64_t resident_kib() {
  long pages = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return int64_t{resident} * sysconf(_SC_PAGESIZE) / 1024;
}

std::string list_of(const std::vector<double>& v) {
  std::string out = "[";
  for (double x : v) append(out, cat(out.size() > 1 ? ", " : "", x));
  return out + "]";
}

// An epoch's restart costs what its first batch takes longer than the batches around it: the time from the
// end of an epoch (next() says false) to the next batch, beside the median time between batches.
void steady(Pipeline& run, double pause) {
  Batch b;
  std::vector<double> restarts, steps, memory;
  Stopwatch all;
  int64_t samples = 0;
  const double cpu = cpu_seconds();
  for (int epoch = 0; epoch < 8; ++epoch) {
    for (bool first = true;; first = false) {
      Stopwatch watch;
      if (!run.next(b)) break;
      samples += b.count();
      (first && epoch > 0 ? restarts : steps).push_back(watch.seconds() * 1e3);
    }
    memory.push_back(static_cast<double>(resident_kib()) / 1024);
  }
  const double wall = all.seconds(), used = cpu_seconds() - cpu;
  std::ranges::sort(steps);
  std::this_thread::sleep_for(std::chrono::seconds(2));  // what was under way ends
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  const double idle = cpu_seconds() - before;
  print(samples, wall, used,
        cat(", \"restart_ms\": ", list_of(restarts), ", \"median_step_ms\": ", steps[steps.size() / 2],
            ", \"resident_mib_after_epoch\": ", list_of(memory), ", \"paused_s\": ", pause,
            ", \"paused_cpu_ms\": ", idle * 1e3));
}

void decode(const std::string& dir, int threads, double seconds, bool gpu) {
  if (gpu && !nvjpeg_lack().empty()) fail(ErrorCode::no_device, nvjpeg_lack());
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
        const Bytes bytes(f.as<uint8_t>(), static_cast<size_t>(f.count()));
        if (gpu)
          nvjpeg_decode(bytes, jpeg_info(bytes, "bench"), Colour::rgb);
        else
          jpeg_decode(bytes, {}, "bench");
      }
    });
  workers.clear();
  print(done, watch.seconds(), cpu_seconds() - cpu, "");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8)
    return std::fprintf(
               stderr,
               "usage: data_bench pipeline|steady|decode|nvjpeg DIR MATCH DTYPE BATCH THREADS SECONDS\n"),
           2;
  const int threads = std::atoi(argv[6]);
  set_threads(threads);
  try {
    const std::string what = argv[1];
    if (what == "decode" || what == "nvjpeg")
      return decode(argv[2], threads, std::atof(argv[7]), what == "nvjpeg"), 0;
    Pipeline run = make(argv[2], argv[3], argv[4], std::atoll(argv[5]));
    if (what == "steady")
      steady(run, std::atof(argv[7]));
    else
      pipeline(run, std::atof(argv[7]));
  } catch (const Error& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
}
