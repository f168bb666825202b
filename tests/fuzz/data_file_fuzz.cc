// SPDX-License-Identifier: Apache-2.0
// Whole sources over one damaged file: IDX, CIFAR, CSV, NumPy, COCO, TFRecord examples and RecordIO, opened
// and read at both ends. The first byte chooses. The file lies in TMPDIR: in memory (/dev/shm) the target
// runs many times as fast.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "data/source/source.h"
#include "fuzz/fuzz.h"

namespace {

using namespace pelton;
using namespace pelton::data;

// One file of this process, written again for every input.
const std::string& path() {
  static const std::string at =
      cat(std::filesystem::temp_directory_path().string(), "/pelton-fuzz-", getpid());
  static const int removal = std::atexit([] { std::remove(path().c_str()); });
  (void)removal;
  return at;
}

std::unique_ptr<Source> open(int kind) {
  const std::string f = path();
  switch (kind) {
    case 0:
      return make_source("mnist", {{"images", f}, {"labels", f}}, "", "fuzz");
    case 1:
      return make_source("cifar", {{"files", std::vector<std::string>{f}}}, "", "fuzz");
    case 2:
      return make_source("csv", {{"path", f}, {"label", "0"}}, "", "fuzz");
    case 3:
      return make_source("npy", {{"path", f}}, "", "fuzz");
    case 4:
      return make_source(
          "coco", {{"images", "/tmp"}, {"annotations", f}, {"masks", true}, {"keypoints", true}}, "", "fuzz");
    case 5:
      return make_source("tfrecord", {{"files", std::vector<std::string>{f}}, {"check", false}}, "", "fuzz");
    default:
      return make_source("recordio", {{"files", std::vector<std::string>{f}}}, "", "fuzz");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  return fuzz::feed(data + 1, size - 1, [&](std::string_view bytes) {
    write_file(path(), std::string(bytes));
    const std::unique_ptr<Source> s = open(data[0] % 7);
    PELTON_CHECK(s->size() >= 0, "a source of ", s->size(), " samples");
    if (s->size() == 0) return;
    s->read(0);
    s->read(s->size() - 1);
  });
}
