// SPDX-License-Identifier: Apache-2.0
// Pipelines whose pictures are decoded on a device, by the tests' one (picture_device.h).
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "data/picture_device.h"
#include "data/pipeline.h"
#include "device/pinned.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;

namespace {

std::vector<uint8_t> picture(int64_t i) {
  const int64_t w = 60 + 7 * (i % 5), h = 48 + 5 * (i % 7), c = i % 6 == 5 ? 1 : 3;
  Tensor t(DType::u8, {h, w, c});
  uint8_t* v = t.as_mutable<uint8_t>();
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x)
      for (int64_t k = 0; k < c; ++k)
        *v++ = static_cast<uint8_t>(128 +
                                    60 * std::sin(0.2 * static_cast<double>(x + i) + static_cast<double>(k)) +
                                    60 * std::cos(0.13 * static_cast<double>(y)));
  return jpeg_encode(t, 90);
}

// Files, or their decoded pixels as the host's decoder gives them.
std::shared_ptr<const Source> source(bool decoded, int64_t count = 24, int64_t cut = -1) {
  return from_function(
      count,
      [=](int64_t i) {
        Sample s;
        std::vector<uint8_t> file = picture(i);
        if (i == cut) file.resize(file.size() / 2);
        s.origin.file = cat("picture", i, ".jpg");
        if (decoded)
          s.set("image", to_colour(jpeg_decode(file, {}, "test"), Colour::rgb));
        else
          s.set("image", Tensor::from<uint8_t>({std::ssize(file)}, file));
        s.set("label", Tensor::scalar<int64_t>(i));
        return s;
      },
      "pictures");
}

PipelineSpec spec(std::vector<StageSpec> stages) {
  PipelineSpec p;
  p.seed = 5;
  p.stages = {{"decode", {{"device", "gpu"}}, ""}};
  p.stages.insert(p.stages.end(), stages.begin(), stages.end());
  return p;
}
PipelineSpec on_host(PipelineSpec p) {
  p.stages[0].options.clear();
  return p;
}

std::shared_ptr<device::Device> fake_gpu() {
  static const auto made = std::make_shared<test::FakePictureDevice>();
  return made;
}

// Resets what the decoders do.
struct Decoders {
  Decoders() { reset(); }
  ~Decoders() { reset(); }
  static void reset() {
    test::pictures().refuse_every = 0;
    test::pictures().fail_every = 0;
    test::pictures().sleep_ms = 0;
    test::pictures().fails = false;
  }
};

double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.dims() == b.dims());
  REQUIRE(a.dtype() == b.dtype());
  double largest = 0;
  for (int64_t i = 0; i < a.count(); ++i)
    largest = std::max(largest, std::abs(a.get_double(i) - b.get_double(i)));
  return largest;
}

const StageSpec kNormalize = {"normalize", {{"std", 1.0}, {"mean", 0.5}}, ""};  // levels / 255

}  // namespace

TEST_CASE("device pictures: one job does what the host's stages do to the same decoded pixels") {
  const Decoders decoders;
  const std::vector<std::vector<StageSpec>> chains = {
      {{"random_resized_crop", {{"size", 32}}, ""}, {"flip", {}, ""}, kNormalize},
      {{"resize", {{"size", 40}, {"mode", "shorter"}, {"filter", "cubic"}}, ""},
       {"crop", {{"size", 36}}, ""}},
      {{"resize", {{"size", std::vector<double>{24, 40}}, {"filter", "lanczos"}}, ""},
       {"brightness", {{"factor", 1.3}}, ""},
       {"saturation", {{"factor", 0.4}}, ""},
       kNormalize},
      {{"crop", {{"size", 30}}, ""}, {"pad", {{"border", 9.0}, {"fill", 77.0}}, ""}, kNormalize},
      {{"resize", {{"size", 32}, {"filter", "nearest"}}, ""},
       {"flip", {{"vertical", true}}, ""},
       {"normalize", {{"layout", "hwc"}}, ""}},
  };
  for (const auto& chain : chains) {
    CAPTURE(chain[0].op);
    Pipeline there(spec(chain), source(false), {.batch = 8, .device = fake_gpu(), .on_device = true});
    Pipeline here(on_host(spec(chain)), source(true), {.batch = 8});
    Batch a, b;
    int batches = 0;
    while (there.next(a)) {
      REQUIRE(here.next(b));
      const DeviceField* field = a.find_on_device("image");
      REQUIRE(field);
      CHECK(a.at("label").same_bytes(b.at("label")));
      // u8: the two round sums of another order; else levels.
      const Tensor want = b.at("image");
      CHECK(largest_difference(field->to_host(), want) <= (want.dtype() == DType::u8 ? 1 : 2e-5));
      ++batches;
    }
    CHECK(batches == 3);
    // Grey files of a coloured pipeline are the host's: 4 of 24. The next epoch is being made already.
    const PipelineReport r = there.report();
    CHECK(r.decoded_on_device >= 20);
    CHECK(r.decoded_on_device < r.samples);
    CHECK(there.report().left_to_host == 0);
  }
}

TEST_CASE("device pictures: what the decoder does not take goes to the host, sample by sample") {
  const Decoders decoders;
  const PipelineSpec p = spec({{"resize", {{"size", 32}}, ""}, kNormalize});
  for (const bool by_header : {true, false}) {
    CAPTURE(by_header);
    (by_header ? test::pictures().refuse_every : test::pictures().fail_every) = 3;
    Pipeline there(p, source(false), {.batch = 8, .device = fake_gpu(), .on_device = true});
    Pipeline here(on_host(p), source(true), {.batch = 8});
    Batch a, b;
    while (there.next(a)) {
      REQUIRE(here.next(b));
      // The host resamples JPEG from its coded planes: within half a level on the average.
      const Tensor got = a.find_on_device("image")->to_host(), want = b.at("image");
      double sum = 0;
      for (int64_t i = 0; i < got.count(); ++i) sum += std::abs(got.get_double(i) - want.get_double(i));
      CHECK(sum / static_cast<double>(got.count()) < 0.5 / 255);
    }
    const PipelineReport r = there.report();
    CHECK(r.left_to_host > 0);
    CHECK(r.decoded_on_device > 0);
    CHECK(r.decoded_on_device + r.left_to_host < r.samples);  // no sample counts twice
    Decoders::reset();
  }
}

TEST_CASE(
    "device pictures: only files of one whole scan, without other markers in it, are left to the device") {
  const std::vector<uint8_t> file = picture(0);
  auto job_of = [](const std::vector<uint8_t>& f) {
    DecodeOptions options;
    options.gpu = true;
    const LazyImage image(Tensor::from<uint8_t>({std::ssize(f)}, f), options, Match::none, "test");
    const auto job = image.device_job();
    return job ? std::ssize(job->file) : -1;
  };
  const auto size = std::ssize(file);
  auto with = [&](ptrdiff_t at, std::initializer_list<uint8_t> more) {
    std::vector<uint8_t> f = file;
    f.insert(f.begin() + at, more);
    return f;
  };
  CHECK(job_of(file) == size);
  CHECK(job_of(with(size, {1, 2, 0xFF, 0xD9, 3})) == size);  // what follows the end is not the picture's
  std::vector<uint8_t> cut(file.begin(), file.end() - 2);
  CHECK(job_of(cut) == -1);
  cut.push_back(0xFF);
  CHECK(job_of(cut) == -1);
  // Before the last bytes of the scan: another table, another scan, a restart out of turn, restarts in turn.
  CHECK(job_of(with(size - 2, {0xFF, 0xC4})) == -1);
  CHECK(job_of(with(size - 2, {0xFF, 0xDA})) == -1);
  CHECK(job_of(with(size - 2, {0xFF, 0xD1})) == -1);
  CHECK(job_of(with(size - 2, {0xFF, 0xD0, 7, 0xFF, 0xD0})) == -1);
  CHECK(job_of(with(size - 2, {0xFF, 0xD0, 7, 0xFF, 0xD1, 0xFF, 0x00})) == size + 7);
}

TEST_CASE("device pictures: the threads that decode ask about no header") {
  const Decoders decoders;
  test::pictures().asked_by.clear();
  test::pictures().decoded_by.clear();
  {
    Pipeline there(spec({{"resize", {{"size", 32}}, ""}, kNormalize}), source(false),
                   {.batch = 4, .device = fake_gpu(), .on_device = true});
    for (Batch b; there.next(b);) {
    }
  }
  REQUIRE(!test::pictures().asked_by.empty());
  REQUIRE(!test::pictures().decoded_by.empty());
  for (const std::thread::id id : test::pictures().decoded_by)
    CHECK_FALSE(test::pictures().asked_by.contains(id));
}

TEST_CASE("device pictures: cpu_share leaves a drawn share to the host, the same one in every run") {
  const Decoders decoders;
  std::vector<Tensor> runs;
  for (const int64_t batch : {int64_t{40}, int64_t{40}, int64_t{120}}) {
    PipelineSpec p = spec({{"resize", {{"size", 8}}, ""}});
    p.stages[0].options["cpu_share"] = 0.5;
    Pipeline there(p, source(false, 120), {.batch = batch, .device = fake_gpu()});
    Tensor all(DType::u8, {120, 8, 8, 3});
    uint8_t* to = all.as_mutable<uint8_t>();
    for (Batch b; there.next(b); to += b.at("image").bytes())
      std::memcpy(to, b.at("image").data(), static_cast<size_t>(b.at("image").bytes()));
    runs.push_back(all);
    const PipelineReport r = there.report();
    // Of 5 in 6 of the samples, half. The next epoch is being made already.
    CHECK(r.decoded_on_device >= 35);
    CHECK(static_cast<double>(r.decoded_on_device) < 0.58 * static_cast<double>(r.samples));
  }
  CHECK(runs[0].same_bytes(runs[1]));
  CHECK(runs[0].same_bytes(runs[2]));
}

TEST_CASE("device pictures: a cut file is told by its name and replaced, as on the host") {
  const Decoders decoders;
  PipelineSpec p = spec({{"resize", {{"size", 32}}, ""}, kNormalize});
  for (const bool skip : {false, true}) {
    if (skip) p.bad_samples = "skip";
    Pipeline there(p, source(false, 24, 10), {.batch = 8, .device = fake_gpu(), .on_device = true});
    Batch b;
    std::vector<BadSample> bad;
    int64_t samples = 0;
    while (there.next(b)) {
      bad.insert(bad.end(), b.bad.begin(), b.bad.end());
      samples += b.count();
      // A batch that has lost a sample is put together on the host.
      CHECK((b.find_on_device("image") != nullptr) == (b.count() == 8));
      CHECK((b.find_on_device("image") ? b.find_on_device("image")->dims : b.at("image").dims())[0] ==
            b.count());
    }
    REQUIRE(bad.size() == 1);
    CHECK(bad[0].origin.find("picture10.jpg") != std::string::npos);
    CHECK(bad[0].reason.find("cut short") != std::string::npos);
    CHECK(samples == (skip ? 23 : 24));
  }
}

TEST_CASE("device pictures: pictures of several sizes, and consumers without a device, get host tensors") {
  const Decoders decoders;
  const PipelineSpec ragged = spec({{"resize", {{"size", 32}, {"mode", "shorter"}}, ""}, kNormalize});
  const PipelineSpec mixed = [] {
    PipelineSpec p = spec({{"resize", {{"size", 32}}, ""}, {"one_hot", {{"classes", 24}}, ""}, kNormalize});
    p.stages.push_back({"mixup", {}, ""});
    return p;
  }();
  const PipelineSpec plain = spec({{"resize", {{"size", 32}}, ""}, kNormalize});
  for (const auto& [p, stay] :
       {std::pair(&ragged, true), std::pair(&mixed, true), std::pair(&plain, false)}) {
    Pipeline there(*p, source(false), {.batch = 8, .device = fake_gpu(), .on_device = stay});
    Pipeline here(on_host(*p), source(true), {.batch = 8});
    Batch a, b;
    while (there.next(a)) {
      REQUIRE(here.next(b));
      CHECK(a.on_device.empty());
      CHECK(largest_difference(a.at("image"), b.at("image")) <= 0.02);  // some of the host's own
    }
    CHECK(there.report().decoded_on_device > 0);
  }
}

TEST_CASE("device pictures: batches for a device lie in pinned memory that goes round") {
  const Decoders decoders;
  PipelineSpec p;
  p.source = {"synthetic", {{"dims", std::vector<double>{3, 200, 200}}, {"count", 64.0}}, {}, false};
  std::set<const void*> buffers;
  Batch b;
  {
    Pipeline run(p, {.batch = 4, .prefetch = 2, .device = fake_gpu()});
    while (run.next(b)) {
      CHECK(device::is_pinned(b.at("image").data(), b.at("image").bytes()));
      CHECK_FALSE(device::is_pinned(b.at("image").data(), b.at("image").bytes() + 1));
      buffers.insert(b.at("image").data());
    }
  }
  CHECK(buffers.size() <= 7);
  const void* kept = b.at("image").data();
  CHECK(device::is_pinned(kept, 1));  // outlives the pipeline
  b = {};
  CHECK_FALSE(device::is_pinned(kept, 1));
  Pipeline without(p, {.batch = 4});
  REQUIRE(without.next(b));
  CHECK_FALSE(device::is_pinned(b.at("image").data(), 1));
}

TEST_CASE("device pictures: a lost device is the batch's error, and closing at any moment ends") {
  const Decoders decoders;
  const PipelineSpec p = spec({{"resize", {{"size", 32}}, ""}, kNormalize});
  {
    test::pictures().fails = true;
    Pipeline there(p, source(false), {.batch = 8, .device = fake_gpu(), .on_device = true});
    Batch b;
    test::expect_error(ErrorCode::device_lost, {"FakeDecode failed"}, [&] { there.next(b); });
    test::pictures().fails = false;
  }
  test::pictures().sleep_ms = 2;
  for (int round = 0; round < 30; ++round) {
    Pipeline there(p, source(false), {.batch = 4, .device = fake_gpu(), .on_device = true});
    Batch b;
    const PipelineState start = there.state();
    for (int k = 0; k < round % 4; ++k) there.next(b);
    if (round % 3 == 1) there.restore(start);
    std::this_thread::sleep_for(std::chrono::microseconds(150 * round));
  }
}

TEST_CASE("device pictures: a decode stage that names the GPU needs one") {
  const Decoders decoders;
  PipelineSpec p = spec({{"resize", {{"size", 32}}, ""}});
  test::expect_error(ErrorCode::no_device, {"device = \"gpu\"", "nothing here runs on a GPU"},
                     [&] { Pipeline(p, source(false), {}); });
  const auto plain = std::make_shared<test::FakeDevice>(device::cuda_target(90));
  test::expect_error(ErrorCode::no_device, {"device = \"gpu\"", "takes no pictures"},
                     [&] { Pipeline(p, source(false), {.device = plain}); });
  // The evaluation form decodes on the host.
  Pipeline(p, source(false), {.evaluation = true});
  p.match = "pillow";
  test::expect_error(ErrorCode::usage, {"together with match"},
                     [&] { Pipeline(p, source(false), {.device = fake_gpu()}); });
}
