// SPDX-License-Identifier: Apache-2.0
// One measurement of the input pipeline for run.py, as one JSON line:
//   data_bench pipeline DIR MATCH DTYPE BATCH THREADS SECONDS
//     files (or tar shards) of DIR -> random-resized-crop 224 -> flip -> normalise
//   data_bench steady DIR MATCH DTYPE BATCH THREADS SECONDS
//     the same for 8 epochs (gaps between epochs, memory at the end of each), then SECONDS of a paused
//     consumer
//   data_bench decode DIR - - - THREADS SECONDS
//     whole files through libjpeg-turbo alone, from memory
//   data_bench nvjpeg DIR - - BATCH THREADS SECONDS
//     whole files decoded by the GPU in lists of BATCH by THREADS decoders, pixels left in its memory
//   data_bench gpu DIR CPU_SHARE DTYPE BATCH THREADS SECONDS
//     as pipeline, but decoded, cut, resized and normalised by the GPU (but for that share), batches left in
//     its memory
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <future>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "data/codec/jpeg.h"
#include "data/pipeline.h"
#include "register/registry.h"

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

std::shared_ptr<device::Device> gpu() {
  return registry().open(find_device("cuda", 0));
}

Pipeline make(const std::string& dir, const std::string& match, const std::string& dtype, int64_t batch,
              bool on_gpu) {
  PipelineSpec p;
  if (!on_gpu) p.match = match;
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
  Options decode;
  if (on_gpu) decode = {{"device", "gpu"}, {"cpu_share", std::atof(match.c_str())}};
  p.stages = {{"decode", decode, ""},
              {"random_resized_crop", crop, ""},
              {"flip", {}, ""},
              {"normalize", {{"dtype", dtype}}, ""}};
  return Pipeline(p, {.batch = batch,
                      .last = LastBatch::fill,
                      .prefetch = 3,
                      .device = on_gpu ? gpu() : nullptr,
                      .on_device = on_gpu});
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

std::vector<Tensor> files_of(const std::string& dir) {
  std::vector<Tensor> files;
  for (const auto& f : std::filesystem::directory_iterator(dir))
    files.push_back(whole_file(f.path().string()));
  if (files.empty()) fail(ErrorCode::not_found, "no file to decode", dir);
  return files;
}

Bytes bytes_of(const Tensor& file) {
  return {file.as<uint8_t>(), static_cast<size_t>(file.count())};
}

void decode(const std::string& dir, int threads, double seconds) {
  const std::vector<Tensor> files = files_of(dir);
  std::atomic<int64_t> done{0};
  const double cpu = cpu_seconds();
  Stopwatch watch;
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      while (watch.seconds() < seconds)
        jpeg_decode(bytes_of(files[static_cast<size_t>(done++) % files.size()]), {}, "bench");
    });
  workers.clear();
  print(done, watch.seconds(), cpu_seconds() - cpu, "");
}

// A picture as it is: every result is one pixel.
device::PictureJob whole(const Tensor& file) {
  const JpegInfo info = jpeg_info(bytes_of(file), "bench");
  auto every = [](int n) {
    device::PictureTaps t{1, {}, std::vector<float>(static_cast<size_t>(n), 1.0f)};
    for (int i = 0; i < n; ++i) t.first.push_back(i);
    return t;
  };
  device::PictureJob job;
  job.file = bytes_of(file);
  job.width = info.image.width;
  job.height = info.image.height;
  job.x = every(job.width);
  job.y = every(job.height);
  return job;
}

// All pictures have the size of the first.
void nvjpeg(const std::string& dir, int64_t batch, int lanes, double seconds) {
  const std::vector<Tensor> files = files_of(dir);
  const auto device = gpu();
  auto* const decoding = dynamic_cast<device::PictureDevice*>(device.get());
  if (!decoding) fail(ErrorCode::no_device, "the device decodes no pictures");
  std::vector<device::PictureJob> prepared;
  for (const Tensor& f : files) prepared.push_back(whole(f));
  const device::PictureJob& first = prepared.at(0);
  device::PictureForm form;
  form.width = first.width;
  form.height = first.height;
  form.dtype = DType::u8;
  form.channels_first = false;
  const int64_t size = int64_t{form.width} * form.height * 3;
  set_threads(0);  // of those that ask about headers
  std::atomic<int64_t> asked{0}, done{0}, warm{0};
  std::atomic<bool> go{false};
  Stopwatch watch;
  double cpu = 0;
  std::vector<std::jthread> workers;
  for (int t = 0; t < lanes; ++t)
    workers.emplace_back([&] {
      device->activate();
      const auto decoder = decoding->make_picture_decoder(true);
      const device::Memory out(device, size * batch, "decoded pictures");
      std::vector<device::PictureJob> jobs, next;
      std::vector<uint8_t> taken(static_cast<size_t>(batch));
      // As in a pipeline, other threads ask about the headers of the next list meanwhile.
      auto ask = [&] {
        next.clear();
        for (int64_t i = 0; i < batch; ++i) {
          next.push_back(prepared[static_cast<size_t>(asked++) % files.size()]);
          next.back().out = out.bytes_at(i * size);
        }
        parallel_for(0, batch, 8, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            if (!decoding->decodes(next[static_cast<size_t>(i)], 3))
              fail(ErrorCode::bad_format, "the device does not take a file of the folder", dir);
        });
      };
      ask();
      auto list = [&] {
        std::swap(jobs, next);
        auto asking = std::async(std::launch::async, ask);
        decoder->run(jobs, form, taken);
        asking.get();
        return std::ranges::count(taken, 1);
      };
      list();
      ++warm;
      go.wait(false);
      while (watch.seconds() < seconds) done += list();
    });
  while (warm < lanes) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  cpu = cpu_seconds();
  watch = {};
  go = true;
  go.notify_all();
  workers.clear();
  print(done, watch.seconds(), cpu_seconds() - cpu, "");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8)
    return std::fprintf(
               stderr,
               "usage: data_bench pipeline|steady|decode|nvjpeg|gpu DIR MATCH DTYPE BATCH THREADS SECONDS\n"),
           2;
  const int threads = std::atoi(argv[6]);
  set_threads(threads);
  try {
    const std::string what = argv[1];
    const double seconds = std::atof(argv[7]);
    const int64_t batch = std::atoll(argv[5]);
    if (what == "decode") return decode(argv[2], threads, seconds), 0;
    if (what == "nvjpeg") return nvjpeg(argv[2], batch, threads, seconds), 0;
    Pipeline run = make(argv[2], argv[3], argv[4], batch, what == "gpu");
    if (what == "steady")
      steady(run, seconds);
    else
      pipeline(run, seconds);
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "data_bench: %s\n", e.what()), 1;
  }
}
