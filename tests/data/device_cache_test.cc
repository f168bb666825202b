// SPDX-License-Identifier: Apache-2.0
// The cache in a device's memory, with the tests' device (picture_device.h).
#include <doctest/doctest.h>

#include <cmath>

#include "data/picture_device.h"
#include "data/pipeline.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;

namespace {

constexpr int kSide = 64;  // of the smallest picture

Tensor pixels_of(int64_t i) {
  const int64_t w = kSide + 4 * (i % 3), h = kSide;
  Tensor t(DType::u8, {h, w, 3});
  for (int64_t k = 0; k < t.count(); ++k)
    t.as_mutable<uint8_t>()[k] = static_cast<uint8_t>(
        128 + 90 * std::sin(0.02 * static_cast<double>(k % 1000) + 0.7 * static_cast<double>(i)));
  return t;
}

enum class Form : uint8_t { jpeg, pixels };

// `broken`: a JPEG that is cut.
std::shared_ptr<const Source> source(Form form, std::atomic<int>* reads = nullptr, int64_t count = 24,
                                     int64_t broken = -1) {
  return from_function(
      count,
      [=](int64_t i) {
        if (reads) ++*reads;
        Sample s;
        s.origin.file = cat("picture", i, ".jpg");
        if (form == Form::pixels) {
          s.set("image", pixels_of(i));
        } else {
          std::vector<uint8_t> file = jpeg_encode(pixels_of(i), 90);
          if (i == broken) file.resize(file.size() / 2);
          s.set("image", Tensor::from<uint8_t>({std::ssize(file)}, file));
        }
        s.set("label", Tensor::scalar<int64_t>(i));
        return s;
      },
      "pictures");
}

std::shared_ptr<device::Device> fake_gpu() {
  static const auto made = std::make_shared<test::FakePictureDevice>();
  return made;
}

const StageSpec kNormalize = {"normalize", {{"std", 1.0}, {"mean", 0.5}}, ""};
const std::vector<StageSpec> kDrawn = {
    {"random_resized_crop", {{"size", 32}}, ""}, {"flip", {}, ""}, kNormalize};

StageSpec cache(double mib = 8) {
  return {"cache", {{"device", "gpu"}, {"memory_mib", mib}}, ""};
}
PipelineSpec spec(const std::string& decode, std::vector<StageSpec> stages) {
  PipelineSpec p;
  p.seed = 5;
  p.source.shuffle = true;
  p.stages = {{"decode", {{"device", decode}}, ""}};
  p.stages.insert(p.stages.end(), stages.begin(), stages.end());
  return p;
}
std::vector<StageSpec> behind(StageSpec first, std::vector<StageSpec> rest) {
  rest.insert(rest.begin(), std::move(first));
  return rest;
}

// The pictures of so many epochs, by epoch and index.
std::vector<Tensor> epochs(Pipeline& p, int count) {
  std::vector<Tensor> out(static_cast<size_t>(count * p.source().size()));
  for (int e = 0; e < count; ++e)
    for (Batch b; p.next(b);) {
      b.bring_to_host();
      const Tensor& all = b.at("image");
      const int64_t bytes = all.bytes() / b.count();
      for (int64_t i = 0; i < b.count(); ++i) {
        const int64_t index = b.indices[static_cast<size_t>(i)];
        CHECK(b.at("label").get_int(i) == index);
        Tensor one(all.dtype(), Dims(all.dims().begin() + 1, all.dims().end()));
        std::memcpy(one.mutable_data(), static_cast<const uint8_t*>(all.data()) + i * bytes,
                    static_cast<size_t>(bytes));
        out[static_cast<size_t>(e * p.source().size() + index)] = one;
      }
    }
  return out;
}

double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    REQUIRE(a[k].defined());
    REQUIRE(a[k].dims() == b[k].dims());
    for (int64_t i = 0; i < a[k].count(); ++i)
      largest = std::max(largest, std::abs(a[k].get_double(i) - b[k].get_double(i)));
  }
  return largest;
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return x.same_bytes(y); });
}

}  // namespace

TEST_CASE("device cache: sources are read once, and the values are those of the host's stages") {
  for (const Form form : {Form::jpeg, Form::pixels}) {
    CAPTURE(form == Form::jpeg);
    std::atomic<int> reads{0};
    test::pictures().there = 0;
    Pipeline there(spec("cpu", behind(cache(), kDrawn)), source(form, &reads),
                   {.batch = 8, .prefetch = 1, .device = fake_gpu(), .on_device = true});
    // A cache of the host's has the same decoded pixels, at the same place.
    Pipeline here(spec("cpu", behind({"cache", {}, ""}, kDrawn)), source(form), {.batch = 8});
    const std::vector<Tensor> a = epochs(there, 4), b = epochs(here, 4);
    CHECK(largest_difference(a, b) <= 2e-5);
    CHECK(reads <= 24 + 1 + 8);  // one more to learn the sizes; one batch was ahead before all were kept
    CHECK(test::pictures().there >= 3 * 24 - 8);
    CHECK(there.report().cached_samples == 24);
    CHECK(there.report().cached_bytes >= 24 * kSide * kSide * 3);
    CHECK(there.report().left_to_host == 0);
    CHECK(there.report().decoded_on_device == 0);
  }
}

TEST_CASE("device cache: batches stay on the device, and come to the host for who wants that") {
  for (const bool stays : {true, false}) {
    Pipeline p(spec("cpu", behind(cache(), kDrawn)), source(Form::pixels),
               {.batch = 8, .device = fake_gpu(), .on_device = stays});
    for (int e = 0; e < 2; ++e)
      for (Batch b; p.next(b);) {
        CHECK((b.find_on_device("image") != nullptr) == stays);
        CHECK((b.find("image") != nullptr) != stays);
      }
  }
}

TEST_CASE("device cache: files that the device decodes are decoded once") {
  test::pictures().files = 0;
  std::atomic<int> reads{0};
  const RunOptions options{.batch = 8, .prefetch = 1, .device = fake_gpu(), .on_device = true};
  Pipeline kept(spec("gpu", behind(cache(), kDrawn)), source(Form::jpeg, &reads), options);
  const std::vector<Tensor> a = epochs(kept, 3);
  CHECK(test::pictures().files <= 24 + 8);
  CHECK(reads <= 24 + 1 + 8);
  CHECK(kept.report().decoded_on_device == test::pictures().files);
  CHECK(kept.report().cached_samples == 24);
  Pipeline plain(spec("gpu", kDrawn), source(Form::jpeg), options);
  CHECK(same(a, epochs(plain, 3)));
}

TEST_CASE("device cache: what does not fit is made again, with the same values") {
  std::atomic<int> reads{0};
  std::vector<Tensor> whole;
  for (const char* decode : {"cpu", "gpu"}) {
    CAPTURE(decode);
    const PipelineSpec all = spec(decode, behind(cache(4), kDrawn)),
                       some = spec(decode, behind(cache(1), kDrawn));
    const RunOptions options{.batch = 8, .device = fake_gpu(), .on_device = true};
    const int64_t count = 120;  // of 12 to 14 KiB: 84 fit at most
    Pipeline a(all, source(Form::jpeg, nullptr, count), options),
        b(some, source(Form::jpeg, &reads, count), options);
    reads = 0;
    CHECK(same(epochs(a, 3), epochs(b, 3)));
    CHECK(a.report().cached_samples == count);
    CHECK(b.report().cached_samples > 60);
    CHECK(b.report().cached_samples < 86);
    CHECK(b.report().cached_bytes <= 1 << 20);
    CHECK(reads > count + 2 * (count - 86));
  }
}

TEST_CASE("device cache: pictures that come as they are have the host's bits, under match too") {
  for (const char* match : {"none", "pillow"}) {
    CAPTURE(match);
    std::vector<StageSpec> stages = {{"resize", {{"size", 40}}, ""}};
    PipelineSpec plain = spec("cpu", stages);
    stages.push_back(cache());
    stages.push_back({"flip", {}, ""});
    PipelineSpec p = spec("cpu", stages);
    plain.stages.push_back({"cache", {}, ""});
    plain.stages.push_back({"flip", {}, ""});
    p.match = plain.match = match;
    Pipeline there(p, source(Form::jpeg), {.batch = 8, .device = fake_gpu()}),
        here(plain, source(Form::jpeg), {.batch = 8});
    CHECK(same(epochs(there, 3), epochs(here, 3)));
    CHECK(there.report().cached_bytes < 24 * (40 * 40 * 3 + 1024));  // the small ones
  }
}

TEST_CASE("device cache: pictures that the device's decoder leaves are decoded by the host, and kept") {
  test::pictures().refuse_every = 2;
  Pipeline p(spec("gpu", behind(cache(), kDrawn)), source(Form::jpeg),
             {.batch = 8, .device = fake_gpu(), .on_device = true});
  epochs(p, 3);
  test::pictures().refuse_every = 0;
  CHECK(p.report().left_to_host > 0);
  CHECK(p.report().cached_samples == 24);
}

TEST_CASE("device cache: a bad sample is told every time and never kept; jobs that fail go to the host") {
  PipelineSpec p = spec("gpu", behind(cache(), kDrawn));
  p.bad_samples = "mark";
  Pipeline run(p, source(Form::jpeg, nullptr, 24, 10), {.batch = 8, .device = fake_gpu(), .on_device = true});
  for (int e = 0; e < 2; ++e) {
    int bad = 0;
    for (Batch b; run.next(b); bad += static_cast<int>(b.bad.size())) {
    }
    CHECK(bad == 1);
  }
  CHECK(run.report().cached_samples == 23);
  test::pictures().fail_every = 2;
  Pipeline failing(spec("gpu", behind(cache(), kDrawn)), source(Form::jpeg),
                   {.batch = 8, .device = fake_gpu(), .on_device = true});
  epochs(failing, 2);
  test::pictures().fail_every = 0;
  CHECK(failing.report().left_to_host > 0);
  CHECK(failing.report().cached_samples < 24);
  CHECK(failing.report().cached_samples > 0);
}

TEST_CASE("device cache: its memory goes with the pipeline and its last batch") {
  const int64_t before = test::fake_memory().used();
  {
    Batch last;
    {
      Pipeline p(spec("cpu", behind(cache(4), kDrawn)), source(Form::pixels),
                 {.batch = 8, .device = fake_gpu(), .on_device = true});
      CHECK(test::fake_memory().used() >= before + (4 << 20));
      REQUIRE(p.next(last));
    }
    CHECK(last.find_on_device("image")->to_host().count() > 0);
  }
  CHECK(test::fake_memory().used() == before);
  // Closed at any moment.
  for (int round = 0; round < 20; ++round) {
    Pipeline p(spec(round % 2 ? "cpu" : "gpu", behind(cache(4), kDrawn)), source(Form::jpeg),
               {.batch = 4, .device = fake_gpu(), .on_device = true});
    Batch b;
    for (int k = 0; k < round % 9; ++k) p.next(b);
  }
  CHECK(test::fake_memory().used() == before);
}

TEST_CASE("device cache: what cannot be is refused, with words") {
  const auto refused = [](ErrorCode code, std::initializer_list<const char*> words, const PipelineSpec& p,
                          std::shared_ptr<device::Device> device) {
    test::expect_error(code, words, [&] { Pipeline(p, source(Form::jpeg), {.device = device}); });
  };
  refused(ErrorCode::no_device, {"device = \"gpu\" for cache", "nothing here runs on a GPU"},
          spec("cpu", behind(cache(), kDrawn)), nullptr);
  refused(ErrorCode::no_device, {"takes no pictures"}, spec("cpu", behind(cache(), kDrawn)),
          std::make_shared<test::FakeDevice>(device::cuda_target(90)));
  const int64_t limit = test::fake().limit_bytes.exchange(test::fake_memory().used() + (1 << 20));
  refused(ErrorCode::out_of_memory, {"a cache of 8 MiB does not fit", "lower memory_mib"},
          spec("cpu", behind(cache(8), kDrawn)), fake_gpu());
  test::fake().limit_bytes = limit;
  PipelineSpec first = spec("cpu", kDrawn);
  first.stages.insert(first.stages.begin(), cache());
  refused(ErrorCode::usage, {"keeps pictures", "behind decode"}, first, fake_gpu());
  refused(ErrorCode::usage, {"stands behind flip, which is random"},
          spec("cpu", {{"flip", {}, ""}, cache(), kNormalize}), fake_gpu());
  refused(ErrorCode::usage, {"stands before gaussian_blur, which works on the host"},
          spec("cpu", {cache(), {"gaussian_blur", {}, ""}}), fake_gpu());
  refused(ErrorCode::usage, {"stands before cache"}, spec("cpu", {cache(), cache()}), fake_gpu());
  PipelineSpec shared = spec("gpu", behind(cache(), kDrawn));
  shared.stages[0].options["cpu_share"] = 0.5;
  refused(ErrorCode::usage, {"decode with cpu_share, which is drawn"}, shared, fake_gpu());
  PipelineSpec exact = spec("cpu", behind(cache(), kDrawn));
  exact.match = "pillow";
  refused(ErrorCode::usage, {"random_resized_crop, which works on the host with match = \"pillow\""}, exact,
          fake_gpu());
  // Evaluation has none.
  Pipeline eval(spec("cpu", behind(cache(), kDrawn)), source(Form::jpeg), {.evaluation = true});
  for (const StageSpec& s : eval.spec().stages) CHECK(s.op != "cache");
}

TEST_CASE("device cache: a training step's pictures come from it, cut where they would be without") {
  const PipelineSpec cached =
      spec("cpu", {{"resize", {{"size", 48}}, ""}, cache(), {"flip", {}, ""}, kNormalize});
  PipelineSpec plain = cached;
  plain.stages.erase(plain.stages.begin() + 2);
  Pipeline there(cached, source(Form::pixels),
                 {.batch = 8, .for_graph = true, .device = fake_gpu(), .on_device = true}),
      here(plain, source(Form::pixels), {.batch = 8, .for_graph = true});
  CHECK(there.graph_part().stages.size() == 2);
  CHECK(here.graph_part().stages.size() == 2);
  CHECK(same(epochs(there, 2), epochs(here, 2)));
  CHECK(there.report().cached_samples == 24);
}
