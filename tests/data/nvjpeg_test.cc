// SPDX-License-Identifier: Apache-2.0
// JPEG on the GPU beside the CPU's decoder. PELTON_REAL_IMAGES names a folder of photographs to compare as
// well.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "data/codec/nvjpeg.h"
#include "data/pipeline.h"
#include "support/expect_error.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::data;

namespace {

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
  double mean = 0;
  int p999 = 0;
};
Difference difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.dims() == b.dims());
  std::vector<int64_t> counts(256, 0);
  double sum = 0;
  for (int64_t i = 0; i < a.count(); ++i) {
    const int d = std::abs(a.as<uint8_t>()[i] - b.as<uint8_t>()[i]);
    ++counts[static_cast<size_t>(d)];
    sum += d;
  }
  Difference out{sum / static_cast<double>(a.count()), 255};
  for (int64_t above = 0; out.p999 > 0; --out.p999)
    if ((above += counts[static_cast<size_t>(out.p999)]) > a.count() / 1000) break;
  return out;
}

}  // namespace

TEST_CASE("nvjpeg: pixels near the CPU's, and whatever it does not take goes to the CPU") {
  if (!nvjpeg_lack().empty()) PELTON_SKIP("no GPU that this build can use");
  std::vector<std::vector<uint8_t>> files;
  for (int quality : {50, 90, 98}) {
    files.push_back(picture(640, 427, 3, quality));
    files.push_back(picture(33, 17, 3, quality));
    files.push_back(picture(200, 100, 1, quality));
  }
  if (const char* folder = std::getenv("PELTON_REAL_IMAGES"))
    for (const auto& f : std::filesystem::recursive_directory_iterator(folder))
      if (f.path().extension() == ".jpg") {
        const std::string text = read_file(f.path().string());
        files.emplace_back(text.begin(), text.end());
      }
  double largest = 0;
  int worst = 0, compared = 0;
  for (const auto& bytes : files) {
    JpegInfo info;
    Tensor cpu;
    try {
      info = jpeg_info(bytes, "test");
      cpu = to_colour(jpeg_decode(bytes, {}, "test"), Colour::rgb);
    } catch (const Error&) {
      continue;  // odd files of a folder
    }
    const auto gpu = nvjpeg_decode(bytes, info, Colour::rgb);
    if (!gpu) continue;
    const Difference d = difference(to_colour(*gpu, Colour::rgb), cpu);
    CAPTURE(info.image.width);
    CAPTURE(info.image.height);
    CHECK(d.mean <= 0.5);
    CHECK(d.p999 <= 4);
    largest = std::max(largest, d.mean);
    worst = std::max(worst, d.p999);
    ++compared;
  }
  CHECK(compared >= 9);
  const std::vector<uint8_t> small = picture(9, 40, 3, 90);
  CHECK_FALSE(nvjpeg_decode(small, jpeg_info(small, "test"), Colour::rgb));
  const NvjpegCounts counts = nvjpeg_counts();
  MESSAGE("compared " << compared << ", left to the CPU " << counts.left_to_cpu << ", largest mean "
                      << largest << ", p99.9 " << worst);
  CHECK(counts.decoded >= compared);
  // A cut file is told as the CPU tells it.
  std::vector<uint8_t> cut = files[0];
  cut.resize(cut.size() / 2);
  DecodeOptions o;
  o.gpu = true;
  const Tensor bytes = Tensor::borrow(DType::u8, {std::ssize(cut)}, cut.data(), nullptr);
  test::expect_error(ErrorCode::bad_format, {"cut short"},
                     [&] { LazyImage(bytes, o, Match::none, "").pixels(); });
}

TEST_CASE("nvjpeg: a pipeline whose decode stage names the GPU") {
  PipelineSpec p;
  p.stages = {{"decode", {{"device", "gpu"}}, ""}, {"resize", {{"size", 64}}, ""}};
  const std::vector<uint8_t> file = picture(640, 427, 3, 90);
  auto source = [&] {
    return from_function(
        64,
        [file](int64_t) {
          Sample s;
          s.set("image", Tensor::from<uint8_t>({std::ssize(file)}, file));
          return s;
        },
        "file");
  };
  if (const std::string lack = nvjpeg_lack(); !lack.empty()) {
    test::expect_error(ErrorCode::no_device, {"device = \"gpu\"", lack.c_str()},
                       [&] { Pipeline(p, source(), {}); });
    return;
  }
  Pipeline gpu(p, source(), {.batch = 8});
  p.stages[0].options.clear();
  Pipeline cpu(p, source(), {.batch = 8});
  Batch a, b;
  while (gpu.next(a)) {
    REQUIRE(cpu.next(b));
    CHECK(difference(a.at("image"), b.at("image")).mean <= 0.5);
  }
  p.stages[0].options["device"] = "gpu";
  p.match = "pillow";
  test::expect_error(ErrorCode::usage, {"together with match"}, [&] { Pipeline(p, source(), {}); });
}
