// SPDX-License-Identifier: Apache-2.0
// Numbers, sizes and contents that nothing sensible has: each is refused by name, or kept within its limits,
// and none ends the process.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "data/audio/audio.h"
#include "data/ops/stage.h"
#include "data/pipeline.h"
#include "data/source/tar_index.h"
#include "data/tools/tools.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "tensor/npy.h"

using namespace pelton;
using namespace pelton::data;
using test::expect_error;
using test::TempDir;

namespace {

StageFn stage(const char* op, const Options& o = {}) {
  const StageKind& k = stage_kind(op, "test");
  return k.make(Args(k.schema, o, "test"), Match::none);
}

std::unique_ptr<Source> open(const char* kind, const Options& o, const TempDir& dir) {
  return make_source(kind, o, dir.path(), "test");
}

Sample grey(int side, double level) {
  Sample s;
  s.image.emplace(Tensor::full(DType::u8, {side, side, 3}, level));
  return s;
}

// A WAV file of these 16-bit samples whose header says `rate`.
std::string wav(uint32_t rate, int samples) {
  auto le = [](uint32_t v, int n) {
    std::string s;
    for (int i = 0; i < n; ++i) s += static_cast<char>(v >> (8 * i));
    return s;
  };
  const auto bytes = static_cast<uint32_t>(2 * samples);
  return "RIFF" + le(36 + bytes, 4) + "WAVEfmt " + le(16, 4) + le(1, 2) + le(1, 2) + le(rate, 4) +
         le(2 * rate, 4) + le(2, 2) + le(16, 2) + "data" + le(bytes, 4) + std::string(bytes, '\1');
}

Sample sound(const std::string& bytes) {
  Sample s;
  Tensor t(DType::u8, {std::ssize(bytes)});
  std::memcpy(t.mutable_data(), bytes.data(), bytes.size());
  s.set("audio", t);
  return s;
}

std::string coco(const std::string& annotation) {
  return R"({"categories":[{"id":1,"name":"x"}],"images":[{"id":1,"width":8,"height":6,"file_name":"a.jpg"}],)"
         R"("annotations":[{"image_id":1,"category_id":1,"bbox":[1,2,3,4],)" +
         annotation + "}]}";
}

}  // namespace

TEST_CASE("numbers of options: finite, whole where they must be, and drawn within their limits") {
  expect_error(ErrorCode::usage, {"'angle'", "not a finite number"}, [] {
    stage("rotate", {{"angle", INFINITY}});
  });
  expect_error(ErrorCode::usage, {"'angle'", "not a finite number"}, [] {
    stage("rotate", {{"angle", normal(NAN, 1)}});
  });
  expect_error(ErrorCode::usage, {"'samples' is 1e+300"}, [] { stage("fit_audio", {{"samples", 1e300}}); });
  expect_error(ErrorCode::usage, {"'sigma' is 0, outside 0.05 .. 100"}, [] {
    stage("gaussian_blur", {{"sigma", coin(0.5)}});
  });
  expect_error(ErrorCode::usage, {"'sigma'", "a deviation is at least 0"}, [] {
    stage("gaussian_blur", {{"sigma", normal(1, -1)}});
  });
  expect_error(ErrorCode::usage, {"'keys' holds 0.5, not a whole number"}, [] {
    stage("lookup", {{"keys", std::vector<double>{0.5}}, {"values", std::vector<double>{1}}});
  });
  // A wide normal distribution stays within what the stage takes.
  const StageKind& k = stage_kind("posterize", "test");
  const Args args(k.schema, {{"bits", normal(4, 1000)}}, "test");
  const Drawn bits(args, "bits");
  int low = 0, high = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const double v = bits(Draw(1, 0, i, 0));
    REQUIRE((v >= 1 && v <= 8));
    low += v == 1;
    high += v == 8;
  }
  CHECK(low > 50);
  CHECK(high > 50);
  Sample s = grey(8, 77);
  stage("gaussian_blur", {{"sigma", normal(1, 1e12)}})(s, Draw(1, 0, 3, 0));
  CHECK(s.image->pixels().get_int(0) == 77);
}

TEST_CASE("csv: labels that no whole number can be stay numbers") {
  TempDir dir;
  write_file(dir / "a.csv", "x,y\n1,3\n2,1e300\n3,inf\n4,2.5\n");
  const auto s = open("csv", {{"path", "a.csv"}, {"label", "y"}}, dir);
  CHECK(s->read(0).at("label").dtype() == DType::i64);
  for (int64_t i : {1, 2, 3}) CHECK(s->read(i).at("label").dtype() == DType::f32);
}

TEST_CASE("coco: coordinates, runs and masks beyond any picture") {
  TempDir dir;
  write_file(dir / "a.jpg", "bytes");
  auto source = [&](const std::string& annotation) {
    write_file(dir / "a.json", coco(annotation));
    return open("coco", {{"images", "."}, {"annotations", "a.json"}, {"masks", true}}, dir);
  };
  CHECK(source(R"("segmentation":[[1,2,4,2,4,6]])")->read(0).at("masks").dims() == Dims{1, 6, 8});
  for (const char* far : {"1e300", "-1e300", "16777217"})
    expect_error(ErrorCode::bad_format, {"a.json", "a coordinate is"},
                 [&] { source(cat(R"("segmentation":[[1,2,)", far, ",2,4,6]]")); });
  expect_error(ErrorCode::bad_format, {"whole number, got 18446744073709551615"},
               [&] { source(R"("iscrowd":18446744073709551615)"); });
  expect_error(ErrorCode::bad_format, {"another size than 8x6"},
               [&] { source(R"("segmentation":{"size":[8,6],"counts":[48]})"); });
  CHECK(source(R"("segmentation":{"size":[6,8],"counts":[40,8]})")->read(0).at("masks").get_int(47) == 1);
  // Runs that add up beyond any picture, each within what its characters hold.
  expect_error(ErrorCode::bad_format, {"a run of"},
               [&] { source(R"("segmentation":{"counts":"ooooooooo1ooooooooo1ooooooooo1ooooooooo1"})"); });
  std::string many = R"({"categories":[{"id":1,"name":"x"}],"images":[{"id":1,"width":13000,"height":13000,)"
                     R"("file_name":"a.jpg"}],"annotations":[)";
  for (int i = 0; i < 13; ++i)
    append(many, cat(i ? "," : "", R"({"image_id":1,"category_id":1,"bbox":[1,2,3,4]})"));
  write_file(dir / "b.json", many + "]}");
  const auto s = open("coco", {{"images", "."}, {"annotations", "b.json"}, {"masks", true}}, dir);
  expect_error(ErrorCode::limit, {"13 objects in 13000x13000", "leave 'masks' out"}, [&] { s->read(0); });
}

TEST_CASE("mixes: parts without samples, weights without end, classes that disagree") {
  TempDir dir;
  save_npy(dir / "none.npy", Tensor(DType::f32, {0, 2}));
  for (const char* c : {"a/cat", "a/dog", "b/dog", "c/cat"}) {
    std::filesystem::create_directories(dir / c);
    write_file(dir / (std::string(c) + "/x.jpg"), "x");
  }
  auto parts = [&](const char* one, const char* two) {
    std::vector<std::unique_ptr<Source>> out;
    out.push_back(open("folder", {{"path", one}}, dir));
    out.push_back(open("folder", {{"path", two}}, dir));
    return out;
  };
  CHECK(concatenate(parts("c", "a"))->classes() == std::vector<std::string>{"cat", "dog"});
  CHECK(mix(parts("a", "c"), {1, 1}, 4, 0)->classes() == std::vector<std::string>{"cat", "dog"});
  expect_error(ErrorCode::usage, {"label 0 is 'cat' in one part and 'dog' in part 2", "same 'classes'"},
               [&] { concatenate(parts("a", "b")); });
  for (std::vector<double> w : {std::vector<double>{0, INFINITY}, {NAN, 1}, {0, 0}, {1, -1}, {1}})
    expect_error(ErrorCode::usage, {"one weight of at least 0"}, [&] { mix(parts("a", "c"), w, 4, 0); });
  std::vector<std::unique_ptr<Source>> empty;
  empty.push_back(open("npy", {{"path", "none.npy"}}, dir));
  expect_error(ErrorCode::usage, {"part 1 of the mix has no samples"},
               [&] { mix(std::move(empty), {1}, 4, 0); });
}

TEST_CASE("sound headers that promise too much") {
  const Options to16k = {{"rate", 16000}};
  Sample s = sound(wav(2147483647, 100));
  expect_error(ErrorCode::bad_format, {"2147483647 samples a second"},
               [&] { stage("decode_audio", to16k)(s, Draw(0, 0, 0, 0)); });
  s = sound(wav(1, 100000));
  expect_error(ErrorCode::limit, {"become 1600000000", "above the limit"},
               [&] { stage("decode_audio", to16k)(s, Draw(0, 0, 0, 0)); });
  s = sound(wav(1048573, 100));
  expect_error(ErrorCode::limit, {"taps", "more in common"}, [&] {
    stage("decode_audio", {{"rate", 524287}})(s, Draw(0, 0, 0, 0));
  });
  s = sound(wav(8000, 100));
  stage("decode_audio", to16k)(s, Draw(0, 0, 0, 0));
  CHECK(s.at("audio").dims() == Dims{200});
  s.set("rate", Tensor::scalar<int64_t>(0));
  expect_error(ErrorCode::bad_format, {"0 samples a second"}, [&] {
    stage("resample_audio", {{"rate", 8000}})(s, Draw(0, 0, 0, 0));
  });
  s.set("rate", Tensor(DType::i64, {0}));
  expect_error(ErrorCode::bad_type, {"not one whole number"}, [&] {
    stage("resample_audio", {{"rate", 8000}})(s, Draw(0, 0, 0, 0));
  });
  s.set("audio", Tensor::scalar(1.f));
  for (const char* op : {"preemphasis", "trim", "spectrogram"})
    expect_error(ErrorCode::bad_shape, {"not a signal"}, [&] { stage(op)(s, Draw(0, 0, 0, 0)); });
  expect_error(ErrorCode::bad_shape, {"not a signal"}, [&] {
    stage("fit_audio", {{"samples", 4}})(s, Draw(0, 0, 0, 0));
  });
}

TEST_CASE("arrays of texts have no rows to take samples from") {
  TempDir dir;
  const Tensor texts = Tensor::of_strings({2}, {"one", "two"});
  save_npy(dir / "a.npy", texts);
  save_npz(dir / "b.npz", {{"x", texts}});
  for (const char* path : {"a.npy", "b.npz"})
    expect_error(ErrorCode::bad_type, {path, "rows of texts"}, [&] { open("npy", {{"path", path}}, dir); });
}

TEST_CASE("a function of the caller's that throws anything is a bad sample") {
  PipelineSpec spec;
  spec.bad_samples = "skip";
  spec.bad_limit = 1;
  Pipeline p(spec,
             from_function(
                 6,
                 [](int64_t i) {
                   if (i == 2) throw std::runtime_error("the disk of sample 2");
                   Sample s;
                   s.set("x", Tensor::scalar<int64_t>(i));
                   return s;
                 },
                 "mine"),
             {.batch = 6});
  Batch b;
  REQUIRE(p.next(b));
  CHECK(b.count() == 5);
  REQUIRE(b.bad.size() == 1);
  CHECK(b.bad[0].reason == "the disk of sample 2");
  CHECK(b.bad[0].origin == "function mine at 2");
}

TEST_CASE("the first sample that can be read is looked for among all of them, none twice") {
  std::atomic<int64_t> largest{0};
  PipelineSpec spec;
  spec.bad_samples = "skip";
  spec.bad_limit = 1;
  spec.source.shuffle = true;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    spec.seed = seed;
    Pipeline p(spec,
               from_function(
                   9,
                   [&](int64_t i) {
                     largest = std::max(largest.load(), i);
                     if (i < 0 || i > 8) throw std::out_of_range("no such sample");
                     if (i != 4) fail(ErrorCode::bad_format, "spoilt", cat("file-", i));
                     Sample s;
                     s.set("x", Tensor::scalar<int64_t>(i));
                     return s;
                   },
                   "one good one"),
               {.batch = 9});
    Batch b;
    REQUIRE(p.next(b));
    CHECK(b.indices == std::vector<int64_t>{4});
  }
  CHECK(largest == 8);
}

TEST_CASE("a replaced sample leaves nothing of the one it stands for") {
  // Sample 1 is larger than the others and lacks the field y: its x must not stay behind the replacement's.
  PipelineSpec spec;
  spec.bad_samples = "replace";
  spec.bad_limit = 1;
  Pipeline p(spec,
             from_function(
                 8,
                 [](int64_t i) {
                   Sample s;
                   s.set("x", Tensor::full(DType::i64, {i == 1 ? 50 : i + 1}, i == 1 ? 99. : 1.));
                   if (i != 1) s.set("y", Tensor::scalar<int64_t>(i));
                   return s;
                 },
                 "ragged"),
             {.batch = 8});
  Batch b;
  REQUIRE(p.next(b));
  REQUIRE(b.bad.size() == 1);
  CHECK(b.at("x").dims() == Dims{8, 8});
  for (int64_t i = 0; i < 64; ++i) CHECK(b.at("x").get_int(i) <= 1);
  for (int64_t i = 0; i < 8; ++i) CHECK(b.at("x.size").get_int(i) == b.indices[static_cast<size_t>(i)] + 1);
}

TEST_CASE("converted shards give the fields of the source") {
  TempDir dir;
  const auto source = from_function(
      5,
      [](int64_t i) {
        Sample s;
        s.set("image", Tensor::full(DType::u8, {4, 3, 1}, static_cast<double>(i)));
        s.set("label", Tensor::scalar<int64_t>(i));
        s.set("boxes", Tensor::full(DType::f32, {i, 4}, 0.5));
        s.set("info.of/it", Tensor::from<int64_t>({2}, {i, -i}));
        s.set("caption", Tensor::of_strings({}, {cat("picture ", i)}));
        s.set("txt", Tensor::of_strings({}, {"plain"}));
        s.set("data", Tensor::from<uint8_t>({4}, {'B', 'M', 'M', 0}));
        if (i == 3) s.set("words", Tensor::of_strings({2}, {"two", "texts"}));
        return s;
      },
      "made up");
  const ConvertResult r = convert_to_tar(*source, dir / "s", 1 << 20, [](int64_t) {});
  CHECK(r.samples == 4);
  CHECK(r.skipped == 1);  // two texts
  const auto shards = open("tar", {{"shards", "s-000000.tar"}}, dir);
  REQUIRE(shards->size() == 4);
  for (int64_t k = 0; k < 4; ++k) {
    const int64_t i = k == 3 ? 4 : k;
    Sample want = source->read(i), got = shards->read(k);
    CHECK(got.fields.size() == want.fields.size());
    for (const char* name : {"image", "label", "boxes", "data"})
      CHECK((got.at(name).dtype() == want.at(name).dtype() && got.at(name).dims() == want.at(name).dims() &&
             got.at(name).same_bytes(want.at(name))));
    CHECK(got.at("info_of_it").same_bytes(want.at("info.of/it")));
    for (const char* name : {"caption", "txt"}) CHECK(got.at(name).strings() == want.at(name).strings());
  }
}

TEST_CASE("disk errors are errors of the samples they hit") {
  TempDir dir;
  write_file(dir / "x", std::string(40, 'x'));
  const std::shared_ptr<const Source> source =
      open("raw", {{"path", "x"}, {"dims", 4}, {"dtype", "u8"}}, dir);
  // The descriptor becomes one that cannot be read, as a disk that fails does.
  int broken = -1;
  for (const auto& f : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    if (std::filesystem::read_symlink(f.path(), none).string() == dir / "x")
      broken = std::stoi(f.path().filename().string());
  }
  REQUIRE(broken >= 0);
  const int saved = dup(broken), folder = ::open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  PipelineSpec spec;
  spec.bad_samples = "skip";
  spec.bad_limit = 1;
  Pipeline p(spec, source, {.batch = 5, .prefetch = 1});
  Batch b;
  REQUIRE(p.next(b));
  dup2(folder, broken);
  expect_error(ErrorCode::io, {"cannot read", dir.path().c_str()}, [&] { source->read(9); });
  dup2(saved, broken);
  CHECK(source->read(9).find("data"));
  close(saved);
  close(folder);
}
