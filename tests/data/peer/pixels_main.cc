// SPDX-License-Identifier: Apache-2.0
// Answers requests of tests/peers/data_pixels.py: one request a line on standard input, and for each
// "height width channels\n" and the raw u8 pixels on standard output, or "error TEXT\n".
//   decode PATH
//   resize MATCH FILTER ANTIALIAS X0 Y0 X1 Y1 WIDTH HEIGHT PATH
#include <array>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "base/file.h"
#include "data/image/lazy_image.h"

using namespace pelton;
using namespace pelton::data;

namespace {

Tensor read_bytes(const std::string& path) {
  auto text = std::make_shared<std::string>(read_file(path));
  return Tensor::borrow(DType::u8, {static_cast<int64_t>(text->size())}, text->data(), text);
}

Match match_of(const std::string& s) {
  return s == "pillow"        ? Match::pillow
         : s == "torchvision" ? Match::torchvision
         : s == "opencv"      ? Match::opencv
                              : Match::none;
}

Filter filter_of(const std::string& s) {
  constexpr std::array<const char*, 6> names = {"nearest", "box", "linear", "hamming", "cubic", "lanczos"};
  for (size_t i = 0; i < names.size(); ++i)
    if (s == names[i]) return static_cast<Filter>(i);
  fail(ErrorCode::usage, cat("filter ", s));
}

Tensor answer(const std::string& line) {
  std::istringstream in(line);
  std::string verb, path;
  in >> verb;
  if (verb == "decode") {
    std::getline(in >> std::ws, path);
    return LazyImage(read_bytes(path), {}, Match::none, path).pixels();
  }
  std::string match, filter;
  int antialias = 0, width = 0, height = 0;
  Rect r;
  in >> match >> filter >> antialias >> r.x0 >> r.y0 >> r.x1 >> r.y1 >> width >> height;
  std::getline(in >> std::ws, path);
  LazyImage image(read_bytes(path), {}, match_of(match), path);
  image.crop(r);
  image.resize(width, height, filter_of(filter), antialias != 0);
  return image.pixels();
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      Tensor t = answer(line);
      std::printf("%lld %lld %lld\n", static_cast<long long>(t.dims()[0]),
                  static_cast<long long>(t.dims()[1]), static_cast<long long>(t.dims()[2]));
      std::fwrite(t.data(), 1, static_cast<size_t>(t.bytes()), stdout);
    } catch (const Error& e) {
      std::printf("error %s\n", e.what());
    }
    std::fflush(stdout);
  }
}
