// SPDX-License-Identifier: Apache-2.0
// What holds for every source: a run stopped in the middle of an epoch goes on exactly, shards divide the
// samples as their policy says, the number of workers changes between epochs, and files that are damaged,
// empty, of another kind, or cut while they are read are errors and nothing else.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/thread_pool.h"
#include "data/codec/jpeg.h"
#include "data/gzip.h"
#include "data/pipeline.h"
#include "data/source/tar_index.h"
#include "data/source/tfrecord.h"
#include "data/stages.h"
#include "range_server.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "tensor/npy.h"
#include "tensor/proto_wire.h"

using namespace pelton;
using namespace pelton::data;
using test::gzip;
using test::TempDir;

namespace {

namespace fs = std::filesystem;

struct Kind {
  const char* name;
  SourceSpec source;
  std::vector<std::string> files;  // that it reads; a cut one is noticed at the last sample, or at once
  bool in_memory = false;          // read whole when it is opened
};

std::string picture(int i) {
  Tensor t = Tensor::full(DType::u8, {8 + i % 3, 9, 3}, i * 7);
  const std::vector<uint8_t> b = jpeg_encode(t, 90);
  return {b.begin(), b.end()};
}

// 16-bit mono at 8 kHz.
std::string wav(int samples) {
  auto le = [](uint32_t v, int n) {
    std::string s;
    for (int i = 0; i < n; ++i) s += static_cast<char>(v >> (8 * i));
    return s;
  };
  const auto bytes = static_cast<uint32_t>(2 * samples);
  return "RIFF" + le(36 + bytes, 4) + "WAVEfmt " + le(16, 4) + le(1, 2) + le(1, 2) + le(8000, 4) +
         le(16000, 4) + le(2, 2) + le(16, 2) + "data" + le(bytes, 4) + std::string(bytes, '\1');
}

std::string example(int i) {
  wire::Writer bytes, ints, list, feature, image, label, features, whole;
  bytes.bytes(1, picture(i));
  list.bytes(1, bytes.data());
  image.bytes(1, "image/encoded");
  image.bytes(2, list.data());
  ints.ints(1, {i % 2});
  feature.bytes(3, ints.data());
  label.bytes(1, "image/class/label");
  label.bytes(2, feature.data());
  features.bytes(1, image.data());
  features.bytes(1, label.data());
  whole.bytes(1, features.data());
  return whole.data();
}

std::string image_record(int i) {
  const uint32_t magic = 0xced7230a, none = 0;
  const auto label = static_cast<float>(i % 2);
  const uint64_t id[2] = {static_cast<uint64_t>(i), 0};
  std::string payload(reinterpret_cast<const char*>(&none), 4);
  payload.append(reinterpret_cast<const char*>(&label), 4);
  payload.append(reinterpret_cast<const char*>(id), 16);
  payload += picture(i);
  const auto size = static_cast<uint32_t>(payload.size());
  std::string out(reinterpret_cast<const char*>(&magic), 4);
  out.append(reinterpret_cast<const char*>(&size), 4);
  payload.append((4 - size % 4) % 4, '\0');
  return out + payload;
}

// 14 samples of each kind (the LMDB file of the expectations has 79).
std::vector<Kind> every_kind(const TempDir& dir) {
  constexpr int n = 14;
  auto at = [&](const std::string& name) { return dir / name; };
  for (const char* d : {"cat", "dog"}) fs::create_directories(at("folder") + "/" + d);
  fs::create_directories(at("sounds"));
  std::string list, tar, tar2, examples, records, csv = "a,b,y\n", images(16, '\0'), labels(8, '\0'), cifar,
                                                  raw;
  std::string annotations = R"({"categories":[{"id":1,"name":"x"}],"images":[)", objects;
  std::vector<uint16_t> tokens{0};
  for (int i = 0; i < n; ++i) {
    const std::string name = cat("folder/", i % 2 ? "dog/" : "cat/", i, ".jpg");
    write_file(at(name), picture(i));
    write_file(at(cat("sounds/", i, ".wav")), wav(100 + i));
    append(list, cat(name, " ", i % 2, "\n"));
    const std::string entry = tar_entry(cat(i, ".jpg"), picture(i)) + tar_entry(cat(i, ".cls"), cat(i % 2)) +
                              tar_entry(cat(i, ".txt"), cat("picture ", i));
    (i < 8 ? tar : tar2) += entry;
    examples += tfrecord_entry(example(i));
    records += image_record(i);
    append(csv, cat(i, ",", 0.5 * i, ",", i % 2, "\n"));
    images += std::string(6, static_cast<char>(i));
    labels += static_cast<char>(i % 10);
    cifar += static_cast<char>(i % 10) + std::string(3072, static_cast<char>(i));
    raw += std::string(6, static_cast<char>(i));
    for (int k = 0; k < 3; ++k) tokens.push_back(static_cast<uint16_t>(3 * i + k + 1));
    append(annotations, cat(i ? "," : "", R"({"id":)", i, R"(,"width":9,"height":)", 8 + i % 3,
                            R"(,"file_name":")", name, R"("})"));
    append(objects, cat(i ? "," : "", R"({"id":)", i, R"(,"image_id":)", i,
                        R"(,"category_id":1,"bbox":[1,2,3,4],"segmentation":[[1,2,4,2,4,6]]})"));
  }
  const std::string end(1024, '\0');
  images.replace(0, 16, std::string("\0\0\x08\x03\0\0\0\x0e\0\0\0\x02\0\0\0\x03", 16));
  labels.replace(0, 8, std::string("\0\0\x08\x01\0\0\0\x0e", 8));
  const Tensor rows = Tensor::from<float>({n, 2}, std::vector<float>(28, 1.5f));
  Tensor numbered = rows.clone();
  for (int64_t i = 0; i < 28; ++i) numbered.set_double(i, static_cast<double>(i));
  write_file(at("list.txt"), list);
  write_file(at("a0.tar"), tar + end);
  write_file(at("a1.tar"), tar2 + end);
  write_file(at("b.tar.gz"), gzip(tar + tar2 + end));
  write_file(at("c.tfrecord"), examples);
  write_file(at("d.rec"), records);
  write_file(at("data.mdb"), expanded(read_file("tests/data/expect/records.mdb.gz"), "test"));
  write_file(at("e.json"), annotations + "],\"annotations\":[" + objects + "]}");
  write_file(at("images"), images);
  write_file(at("labels"), gzip(labels));
  write_file(at("f.bin"), cifar);
  write_file(at("g.csv"), csv);
  save_npy(at("h.npy"), numbered);
  save_npz(at("i.npz"), {{"x", numbered}, {"y", rows}});
  write_file(at("j.raw"), raw);
  write_file(at("k.bin"), {reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()});
  using Numbers = std::vector<double>;
  const SourceSpec csv_source{"csv", {{"path", "g.csv"}, {"label", "y"}}, {}},
      npy_source{"npy", {{"path", "h.npy"}}, {}};
  std::vector<Kind> kinds = {
      {"folder", {"folder", {{"path", "folder"}}, {}}, {"folder/dog/13.jpg"}},
      {"sounds",
       {"folder", {{"path", "sounds"}, {"labels", false}, {"field", "audio"}}, {}},
       {"sounds/9.wav"}},
      {"list", {"list", {{"path", "list.txt"}}, {}}, {"list.txt"}, true},
      {"tar", {"tar", {{"shards", "a{0..1}.tar"}}, {}}, {"a0.tar", "a1.tar"}},
      {"compressed tar", {"tar", {{"shards", "b.tar.gz"}}, {}}, {"b.tar.gz"}, true},
      {"tfrecord", {"tfrecord", {{"files", "c.tfrecord"}}, {}}, {"c.tfrecord"}},
      {"recordio", {"recordio", {{"files", "d.rec"}}, {}}, {"d.rec"}},
      {"lmdb", {"lmdb", {{"path", "data.mdb"}, {"datum", false}}, {}}, {"data.mdb"}},
      {"coco", {"coco", {{"images", "."}, {"annotations", "e.json"}, {"masks", true}}, {}}, {"e.json"}, true},
      {"mnist", {"mnist", {{"images", "images"}, {"labels", "labels"}}, {}}, {"images", "labels"}, true},
      {"cifar", {"cifar", {{"files", "f.bin"}}, {}}, {"f.bin"}, true},
      {"csv", csv_source, {"g.csv"}, true},
      {"npy", npy_source, {"h.npy"}},
      {"npz", {"npy", {{"path", "i.npz"}}, {}}, {"i.npz"}, true},
      {"raw", {"raw", {{"path", "j.raw"}, {"dims", Numbers{2, 3}}, {"dtype", "u8"}}, {}}, {"j.raw"}},
      {"tokens", {"tokens", {{"files", "k.bin"}, {"length", 3}}, {}}, {"k.bin"}},
      {"synthetic", {"synthetic", {{"dims", Numbers{4, 3}}, {"count", n}}, {}}, {}},
      {"concat", {"concat", {}, {npy_source, npy_source}}, {}},
      {"mix", {"mix", {{"weights", Numbers{1, 2}}, {"count", n}}, {npy_source, npy_source}}, {}}};
  return kinds;
}

PipelineSpec spec_of(const Kind& k, const TempDir& dir, bool shuffle = true) {
  PipelineSpec p;
  p.seed = 4;
  p.bad_samples = "raise";
  p.source = k.source;
  p.source.shuffle = shuffle;
  p.folder = dir.path();
  p.name = k.name;
  return p;
}

// All that a batch holds, as one text.
std::string content(const Batch& b) {
  std::string out = cat(b.epoch, " ", b.step, "\n");
  for (int64_t i : b.indices) append(out, cat(i, " "));
  for (const auto& [name, t] : b.fields) {
    append(out, cat("\n", name, " ", t, " "));
    if (t.dtype() == DType::string)
      for (const std::string& s : t.strings()) append(out, cat(s, ";"));
    else
      out.append(static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes()));
  }
  return out;
}

// The batches up to the end of the epoch.
std::vector<std::string> rest_of(Pipeline& p) {
  std::vector<std::string> out;
  for (Batch b; p.next(b);) out.push_back(content(b));
  return out;
}

std::vector<int64_t> epoch_indices(Pipeline& p) {
  std::vector<int64_t> out;
  for (Batch b; p.next(b);)
    out.insert(out.end(), b.indices.begin(), b.indices.end() - static_cast<ptrdiff_t>(b.padding));
  return out;
}

}  // namespace

TEST_CASE("every source: a run stopped in the middle of an epoch goes on with the same batches") {
  TempDir dir;
  for (const Kind& k : every_kind(dir)) {
    CAPTURE(k.name);
    const PipelineSpec spec = spec_of(k, dir);
    Pipeline a(spec, {.batch = 3});
    Batch b;
    std::vector<std::string> before;
    for (int i = 0; i < 2; ++i) {
      REQUIRE(a.next(b));
      before.push_back(content(b));
    }
    const std::string saved = a.state().str();
    CHECK(saved.size() < 80);
    const auto rest = rest_of(a), after = rest_of(a);
    CHECK(rest.size() + 2 == static_cast<size_t>(a.steps()));
    Pipeline c(spec, {.batch = 3, .prefetch = 4});
    c.restore(PipelineState::parse(saved));
    CHECK(rest_of(c) == rest);
    CHECK(rest_of(c) == after);
    c.restore({0, 0, c.state().fingerprint});
    REQUIRE(c.next(b));
    CHECK(content(b) == before[0]);
  }
}

TEST_CASE("every source: shards by policy, those that keep their samples, and other numbers of workers") {
  TempDir dir;
  for (const Kind& k : every_kind(dir)) {
    CAPTURE(k.name);
    PipelineSpec spec = spec_of(k, dir);
    const std::shared_ptr<const Source> source = open_source(spec.source, spec.folder, spec.seed, k.name);
    const int64_t n = source->size(), shards = 3, batch = 2;
    const int64_t smallest = n / shards, largest = (n + shards - 1) / shards;
    for (LastBatch last : {LastBatch::partial, LastBatch::fill, LastBatch::drop}) {
      std::multiset<int64_t> seen;
      int64_t steps = 0, slots = 0;
      for (int64_t shard = 0; shard < shards; ++shard) {
        Pipeline p(spec, source, {.batch = batch, .shards = shards, .shard = shard, .last = last});
        steps = p.steps();
        int64_t taken = 0;
        for (Batch b; p.next(b); ++taken) {
          slots += b.count();
          for (int64_t i = 0; i < b.count() - b.padding; ++i) seen.insert(b.indices[static_cast<size_t>(i)]);
        }
        CHECK(taken == steps);
      }
      const std::set<int64_t> unique(seen.begin(), seen.end());
      CHECK(unique.size() == seen.size());
      if (last == LastBatch::drop) {
        CHECK(steps == smallest / batch);
        CHECK(std::ssize(unique) == steps * batch * shards);
      } else {
        CHECK(steps == (largest + batch - 1) / batch);
        CHECK(std::ssize(unique) == n);
        if (last == LastBatch::fill) CHECK(slots == steps * batch * shards);
      }
    }
    // A worker that sticks to its shard reads it once and takes it from memory in the second epoch.
    spec.stages = {{"cache", {}, ""}};
    std::set<int64_t> all;
    PipelineState end;
    for (int64_t shard = 0; shard < shards; ++shard) {
      Pipeline p(spec, source, {.batch = batch, .shards = shards, .shard = shard, .stick_to_shard = true});
      std::vector<int64_t> one = epoch_indices(p);
      const int64_t cached = p.report().cached_samples;
      std::vector<int64_t> two = epoch_indices(p);
      CHECK(p.report().cached_samples == cached);
      CHECK(cached == std::ssize(one));
      std::ranges::sort(one);
      std::ranges::sort(two);
      CHECK(one == two);
      all.insert(one.begin(), one.end());
    }
    CHECK(std::ssize(all) == n);
    spec.stages.clear();
    // Three workers, then two from the next epoch on.
    {
      Pipeline p(spec, source, {.batch = batch, .shards = shards, .shard = 1});
      epoch_indices(p);
      end = p.state();
      CHECK(end.epoch == 1);
    }
    std::multiset<int64_t> again;
    for (int64_t shard = 0; shard < 2; ++shard) {
      Pipeline p(spec, source, {.batch = 3, .shards = 2, .shard = shard});
      p.restore(end);
      const std::vector<int64_t> part = epoch_indices(p);
      again.insert(part.begin(), part.end());
    }
    CHECK(std::ssize(again) == n);
    CHECK(std::set<int64_t>(again.begin(), again.end()).size() == again.size());
  }
}

TEST_CASE("every source: closing and going back at random moments") {
  TempDir dir;
  const std::vector<Kind> kinds = every_kind(dir);
  set_threads(4);
  uint64_t round = 0;
  for (const Kind& k : kinds)
    for (int turn = 0; turn < 6; ++turn) {
      CAPTURE(k.name);
      const Draw draw(17, 0, round++, 0);
      PipelineSpec spec = spec_of(k, dir);
      if (turn % 2) spec.stages = {{"cache", {}, ""}};
      Pipeline p(spec, {.batch = 2, .prefetch = 4});
      Batch b;
      for (int64_t i = draw.below(0, 8); i > 0; --i) p.next(b);
      std::this_thread::sleep_for(std::chrono::microseconds(draw.below(1, 800)));
      if (draw.coin(2, 0.3)) {
        p.restore({draw.below(3, 3), draw.below(4, p.steps()), p.state().fingerprint});
        p.next(b);
      }
    }
  set_threads(0);
}

TEST_CASE("every source: a file that is cut while it is open is an error of the samples it held") {
  for (bool whole : {true, false}) {
    TempDir dir;
    for (const Kind& k : every_kind(dir)) {
      if (k.files.empty()) continue;
      CAPTURE(k.name);
      const auto source = open_source(k.source, dir.path(), 0, k.name);
      for (const std::string& f : k.files) fs::resize_file(dir / f, whole ? 0 : fs::file_size(dir / f) / 2);
      int64_t good = 0, bad = 0;
      for (int64_t i = 0; i < source->size(); ++i) {
        try {
          source->read(i);
          ++good;
        } catch (const Error& e) {
          ++bad;
          const std::string line = e.what();
          CAPTURE(line);
          CHECK(e.code() == ErrorCode::io);
          CHECK(line.find("when it was opened") != line.npos);
        }
      }
      // One file a sample: a file is opened when it is read, and what is wrong shows when it is decoded.
      const bool single = std::string_view(k.source.kind) == "folder";
      CHECK((bad > 0) == (!k.in_memory && !single));
      if (whole && bad > 0 && std::string_view(k.name) != "tar") CHECK(good <= 1);  // empty values
    }
  }
}

TEST_CASE("every source: empty files and files of another kind are refused when they are opened") {
  for (const char* bytes : {"", "\x89PNG\r\n\x1a\n this is no file that any of the sources reads"}) {
    TempDir dir;
    for (const Kind& k : every_kind(dir)) {
      const std::string_view kind = k.source.kind;
      if (k.files.empty() || kind == "folder") continue;
      if (*bytes && (kind == "raw" || kind == "tokens")) continue;  // they have no header to tell by
      CAPTURE(k.name);
      for (const std::string& f : k.files) write_file(dir / f, bytes);
      try {
        const auto source = open_source(k.source, dir.path(), 0, k.name);
        FAIL_CHECK("opened with " << source->size() << " samples");
      } catch (const Error& e) {
        const std::string line = e.what();
        CAPTURE(line);
        CHECK((e.code() == ErrorCode::bad_format || e.code() == ErrorCode::not_found ||
               e.code() == ErrorCode::bad_shape || e.code() == ErrorCode::bad_name));
        CHECK(std::ranges::any_of(k.files, [&](const std::string& f) { return line.find(f) != line.npos; }));
      }
    }
  }
}

TEST_CASE("every source: nothing there, or a name that is no file") {
  TempDir dir;
  for (Kind& k : every_kind(dir)) {
    if (k.files.empty()) continue;
    CAPTURE(k.name);
    for (const std::string& f : k.files) fs::remove(dir / f);
    if (std::string_view(k.source.kind) != "folder")
      test::expect_error(ErrorCode::not_found, {k.files[0].c_str(), "check the path"},
                         [&] { open_source(k.source, dir.path(), 0, k.name); });
    for (const std::string& f : k.files) fs::create_directories(dir / f);
    if (std::string_view(k.source.kind) != "folder" && k.name != std::string_view("lmdb"))
      test::expect_error(ErrorCode::io, {k.files[0].c_str(), "not a regular file"},
                         [&] { open_source(k.source, dir.path(), 0, k.name); });
  }
}

TEST_CASE("every source: files behind URLs give the samples of the files") {
  TempDir dir;
  const std::vector<Kind> kinds = every_kind(dir);
  std::map<std::string, std::string> files;
  for (const auto& f : fs::recursive_directory_iterator(dir.path()))
    if (f.is_regular_file())
      files[f.path().lexically_relative(dir.path()).string()] = read_file(f.path().string());
  const test::RangeServer server(files);
  setenv("PELTON_HTTP_ALLOW", "127.0.0.1", 1);
  for (Kind k : kinds) {
    if (k.files.empty() || std::string_view(k.source.kind) == "folder") continue;
    CAPTURE(k.name);
    const auto local = open_source(k.source, dir.path(), 0, k.name);
    for (auto& [key, value] : k.source.options)
      if (key == "path" || key == "shards" || key == "files" || key == "images" || key == "annotations" ||
          key == "labels")
        for (std::string& f : value.texts) f = server.url(f);
    const auto remote = open_source(k.source, "", 0, k.name);
    REQUIRE(remote->size() == local->size());
    for (int64_t i = 0; i < local->size(); ++i) {
      const Sample a = local->read(i), b = remote->read(i);
      REQUIRE(a.fields.size() == b.fields.size());
      for (size_t f = 0; f < a.fields.size(); ++f) {
        CHECK(a.fields[f].first == b.fields[f].first);
        if (a.fields[f].second.dtype() == DType::string)
          CHECK(a.fields[f].second.strings() == b.fields[f].second.strings());
        else
          CHECK(a.fields[f].second.same_bytes(b.fields[f].second));
      }
    }
  }
  unsetenv("PELTON_HTTP_ALLOW");
}

TEST_CASE("closing does not wait for a server that is silent") {
  std::atomic<bool> silent{false};
  const test::RangeServer server({{"x", std::string(6000, 'x')}}, [&](size_t) { return silent.load(); });
  setenv("PELTON_HTTP_ALLOW", "127.0.0.1", 1);
  set_threads(2);
  PipelineSpec spec;
  spec.source = {"raw", {{"path", server.url("x")}, {"dims", 2}, {"dtype", "u8"}}, {}};
  std::chrono::steady_clock::time_point start;
  {
    Pipeline p(spec, {.batch = 100, .prefetch = 20});
    Batch b;
    REQUIRE(p.next(b));
    silent = true;  // while the helper reads the twenty batches ahead
    while (server.unanswered() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    start = std::chrono::steady_clock::now();
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));  // silence alone is borne for 15
  set_threads(0);
  unsetenv("PELTON_HTTP_ALLOW");
}
