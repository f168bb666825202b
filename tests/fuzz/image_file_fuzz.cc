// SPDX-License-Identifier: Apache-2.0
// Encoded pictures: whole, and a cropped and resized part straight from the file.
#include "data/image/lazy_image.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  using namespace pelton::data;
  return fuzz::feed(data, size, [](std::string_view bytes) {
    DecodeOptions options;
    options.max_pixels = 1 << 18;
    auto raw = reinterpret_cast<const uint8_t*>(bytes.data());
    decode_image({raw, bytes.size()}, options, "fuzz");
    options.fill_truncated = true;
    Tensor encoded = Tensor::borrow(DType::u8, {static_cast<int64_t>(bytes.size())}, raw, nullptr);
    LazyImage image(encoded, options, Match::none, "fuzz");
    image.crop({image.width() / 4, image.height() / 4, image.width() / 4 + (image.width() + 1) / 2,
                image.height() / 4 + (image.height() + 1) / 2});
    image.resize(13, 9, Filter::linear);
    image.pixels();
  });
}
