// SPDX-License-Identifier: Apache-2.0
// JPEG decoded by the GPU beside the CPU's decoder, and pipelines whose batches stay there.
// PELTON_REAL_IMAGES names a folder of photographs to compare as well.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "data/codec/jpeg.h"
#include "data/pipeline.h"
#include "register/registry.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;

namespace {

std::shared_ptr<device::Device> gpu() {
  return registry().open(find_device("cuda", 0));
}

std::vector<uint8_t> picture(int w, int h, int channels, int quality) {
  Tensor t(DType::u8, {h, w, channels});
  uint8_t* v = t.as_mutable<uint8_t>();
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x)
      for (int c = 0; c < channels; ++c)
        *v++ = static_cast<uint8_t>(128 + 60 * std::sin(0.11 * x + c) + 60 * std::cos(0.07 * y * (c + 1)));
  return jpeg_encode(t, quality);
}

struct Difference {
  double mean = 0, largest = 0;
  int p999 = 0;
};
Difference difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.dims() == b.dims());
  std::vector<int64_t> counts(256, 0);
  double sum = 0, largest = 0;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double d = std::abs(a.get_double(i) - b.get_double(i));
    ++counts[static_cast<size_t>(std::min(d, 255.0))];
    largest = std::max(largest, d);
    sum += d;
  }
  Difference out{sum / static_cast<double>(a.count()), largest, 255};
  for (int64_t above = 0; out.p999 > 0; --out.p999)
    if ((above += counts[static_cast<size_t>(out.p999)]) > a.count() / 1000) break;
  return out;
}

Sample sample_of(const std::vector<uint8_t>& file, const std::string& name) {
  Sample s;
  s.origin.file = name;
  s.set("image", Tensor::from<uint8_t>({std::ssize(file)}, file));
  return s;
}

std::shared_ptr<const Source> of_files(std::vector<std::vector<uint8_t>> files, int64_t count) {
  return from_function(
      count,
      [files = std::move(files)](int64_t i) {
        return sample_of(files[static_cast<size_t>(i) % files.size()], cat("file", i, ".jpg"));
      },
      "files");
}

PipelineSpec spec(std::vector<StageSpec> stages) {
  PipelineSpec p;
  p.seed = 3;
  p.stages = {{"decode", {{"device", "gpu"}}, ""}};
  p.stages.insert(p.stages.end(), stages.begin(), stages.end());
  return p;
}

}  // namespace

TEST_CASE("jpeg on the GPU: pixels near the CPU's, and whatever it does not take goes to the CPU") {
  std::vector<std::vector<uint8_t>> files;
  for (int quality : {50, 90, 98}) {
    files.push_back(picture(640, 427, 3, quality));
    files.push_back(picture(33, 17, 3, quality));
    files.push_back(picture(200, 100, 3, quality));
  }
  if (const char* folder = std::getenv("PELTON_REAL_IMAGES"))
    for (const auto& f : std::filesystem::recursive_directory_iterator(folder))
      if (f.path().extension() == ".jpg") {
        const std::string text = read_file(f.path().string());
        files.emplace_back(text.begin(), text.end());
      }
  double mean = 0;
  int worst = 0;
  int64_t compared = 0, left = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    Tensor cpu;
    try {
      cpu = to_colour(jpeg_decode(files[i], {}, "test"), Colour::rgb);
    } catch (const Error&) {
      continue;  // odd files of a folder
    }
    PipelineSpec one = spec({});
    one.stages[0].options["orient"] = false;
    Pipeline p(one, of_files({files[i]}, 1), {.batch = 1, .device = gpu()});
    Batch b;
    REQUIRE(p.next(b));
    compared += p.report().decoded_on_device;
    left += p.report().left_to_host;
    const Difference d = difference(b.at("image").reshaped(cpu.dims()), cpu);
    CAPTURE(i);
    CHECK(d.mean <= 0.5);
    CHECK(d.p999 <= 4);
    mean = std::max(mean, d.mean);
    worst = std::max(worst, d.p999);
  }
  MESSAGE("compared " << compared << ", not taken " << left << ", largest mean " << mean << ", p99.9 "
                      << worst);
  CHECK(compared >= 9);
}

TEST_CASE("jpeg on the GPU: its cuts, resizes, turns and colours are the host's on the same pixels") {
  std::vector<std::vector<uint8_t>> files;
  for (int i = 0; i < 5; ++i) files.push_back(picture(300 + 31 * i, 200 + 17 * i, 3, 92));
  const std::vector<std::vector<StageSpec>> chains = {
      {{"random_resized_crop", {{"size", 96}}, ""}, {"flip", {}, ""}, {"normalize", {}, ""}},
      {{"random_resized_crop", {{"size", 96}}, ""}, {"flip", {}, ""}},
      {{"resize", {{"size", 90}, {"filter", "cubic"}}, ""},
       {"flip", {{"vertical", true}}, ""},
       {"normalize", {{"dtype", "f16"}}, ""}},
      {{"resize", {{"size", 90}, {"filter", "lanczos"}}, ""},
       {"brightness", {{"factor", 1.3}}, ""},
       {"saturation", {{"factor", 0.4}}, ""},
       {"normalize", {{"layout", "hwc"}}, ""}},
      {{"crop", {{"size", 100}}, ""}, {"pad", {{"border", 9.0}, {"fill", 77.0}}, ""}, {"normalize", {}, ""}},
  };
  // The host sees the pixels that the GPU has decoded.
  std::vector<Tensor> pixels;
  for (const auto& file : files) {
    Pipeline p(spec({}), of_files({file}, 1), {.batch = 1, .device = gpu()});
    Batch b;
    REQUIRE(p.next(b));
    const Dims d = b.at("image").dims();
    pixels.push_back(b.at("image").reshaped({d[1], d[2], d[3]}));
  }
  for (size_t chain = 0; chain < chains.size(); ++chain) {
    CAPTURE(chain);
    const std::shared_ptr<const Source> decoded = from_function(
        20,
        [pixels](int64_t i) {
          Sample s;
          s.set("image", pixels[static_cast<size_t>(i) % pixels.size()]);
          return s;
        },
        "pixels");
    PipelineSpec p = spec(chains[chain]);
    Pipeline there(p, of_files(files, 20), {.batch = 8, .device = gpu(), .on_device = true});
    p.stages[0].options.clear();
    Pipeline here(p, decoded, {.batch = 8});
    Batch a, b;
    while (there.next(a)) {
      REQUIRE(here.next(b));
      REQUIRE(a.find_on_device("image"));
      const Difference d = difference(a.find_on_device("image")->to_host(), b.at("image"));
      const DType type = b.at("image").dtype();
      CHECK(d.largest <= (type == DType::u8 ? 1 : type == DType::f16 ? 0.01 : 1e-4));
      CHECK(d.mean <= (type == DType::u8 ? 0.01 : 1e-3));
    }
    CHECK(there.report().decoded_on_device >= 20);
  }
}

TEST_CASE("jpeg on the GPU: damage is told by the file's name, its neighbours are decoded") {
  std::vector<std::vector<uint8_t>> files;
  for (int i = 0; i < 8; ++i) files.push_back(picture(200 + i, 160, 3, 90));
  files[3].resize(files[3].size() / 2);                   // cut short
  for (size_t i = 160; i < 200; ++i) files[5][i] = 0xFF;  // tables overwritten
  files[6] = {0xFF, 0xD8, 0xFF, 0xD9};                    // nothing between
  PipelineSpec p = spec({{"resize", {{"size", 64}}, ""}});
  p.bad_samples = "mark";
  p.bad_limit = 1;
  Pipeline run(p, of_files(files, 8), {.batch = 8, .device = gpu(), .on_device = true});
  Batch b;
  REQUIRE(run.next(b));
  REQUIRE(b.bad.size() >= 2);
  std::string names;
  for (const BadSample& bad : b.bad) append(names, cat(bad.origin, " "));
  CHECK(names.find("file3.jpg") != std::string::npos);
  CHECK(names.find("file6.jpg") != std::string::npos);
  CHECK(names.find("file0.jpg") == std::string::npos);
  CHECK(run.report().decoded_on_device >= 5);
  const DeviceField* field = b.find_on_device("image");
  REQUIRE(field);
  CHECK(field->dims == Dims{8, 64, 64, 3});
}

TEST_CASE("cache on the GPU: later epochs decode nothing, and have the values of the first") {
  std::vector<std::vector<uint8_t>> files;
  for (int i = 0; i < 24; ++i) files.push_back(picture(120 + 8 * (i % 5), 96, 3, 90));
  const StageSpec cache = {"cache", {{"device", "gpu"}, {"memory_mib", 8}}, ""};
  const std::vector<StageSpec> drawn = {
      {"random_resized_crop", {{"size", 64}}, ""}, {"flip", {}, ""}, {"normalize", {}, ""}};
  for (const bool by_gpu : {true, false})
    for (const bool all_fit : {true, false}) {
      CAPTURE(by_gpu);
      CAPTURE(all_fit);
      PipelineSpec plain = spec(drawn), cached = plain;
      if (!by_gpu) plain.stages[0].options.clear();
      cached.stages[0] = plain.stages[0];
      cached.stages.insert(cached.stages.begin() + 1, cache);
      if (!all_fit) cached.stages[1].options["memory_mib"] = 1;  // 24 of 34 to 44 KiB would need 0.9 MiB
      // The host keeps the same decoded pixels; what the GPU decodes is compared with the GPU's.
      if (!by_gpu) plain.stages.insert(plain.stages.begin() + 1, {"cache", {}, ""});
      const int64_t count = all_fit ? 24 : 72;
      Pipeline there(cached, of_files(files, count),
                     {.batch = 8, .prefetch = 1, .device = gpu(), .on_device = true});
      Pipeline here(plain, of_files(files, count),
                    {.batch = 8, .device = by_gpu ? gpu() : nullptr, .on_device = by_gpu});
      for (int epoch = 0; epoch < 3; ++epoch) {
        Batch a, b;
        while (there.next(a)) {
          REQUIRE(here.next(b));
          REQUIRE(a.find_on_device("image"));
          b.bring_to_host();
          const Difference d = difference(a.find_on_device("image")->to_host(), b.at("image"));
          CHECK(d.largest <= (by_gpu ? 0 : 1e-4));
        }
        REQUIRE_FALSE(here.next(b));
      }
      const PipelineReport r = there.report();
      CHECK(r.cached_bytes <= (all_fit ? 8 << 20 : 1 << 20));
      CHECK(r.left_to_host == 0);
      if (all_fit) CHECK(r.cached_samples == 24);
      if (!all_fit) CHECK(r.cached_samples < 32);
      if (!all_fit) CHECK(r.cached_samples > 16);
      if (by_gpu && all_fit) CHECK(r.decoded_on_device <= 32);
      if (!by_gpu) CHECK(r.decoded_on_device == 0);
    }
  PipelineSpec much = spec(drawn);
  much.stages.insert(much.stages.begin() + 1, cache);
  much.stages[1].options["memory_mib"] = 1 << 23;
  test::expect_error(ErrorCode::out_of_memory, {"a cache of 8388608 MiB does not fit", "lower memory_mib"},
                     [&] { Pipeline(much, of_files(files, 24), {.batch = 8, .device = gpu()}); });
}
