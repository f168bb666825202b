// SPDX-License-Identifier: Apache-2.0
// A picture as a job for a device's decoder: the same tables of taps as the host's resample.
#include <algorithm>
#include <cstring>

#include "data/codec/jpeg.h"
#include "data/image/lazy_image.h"
#include "ir/image/filter_table.h"

namespace pelton::data {
namespace {

constexpr int kSmallest =
    16;  // side of a picture for a device: smaller than a coded unit some come out wrong

device::PictureTaps taps_of(const ir::FilterTable& table) {
  device::PictureTaps out;
  out.taps = table.taps;
  out.first.assign(table.first.begin(), table.first.end());
  out.weights.assign(table.weights.begin(), table.weights.end());
  return out;
}

// The file up to its end, if all of its coded data lies in the scan that begins at `scan`, with no markers in
// it but restarts in their turn. Empty else: decoders on devices do not tell of damage, or only by checks of
// their own on the few threads that feed them, and this one runs on the threads that read.
Bytes one_sound_scan(Bytes b, size_t scan) {
  if (scan == 0 || scan + 4 > b.size()) return {};
  size_t at = scan + 2 + static_cast<size_t>(b[scan + 2] << 8 | b[scan + 3]);
  for (int restarts = 0; at + 2 <= b.size(); at += 2) {
    const void* const found = std::memchr(b.data() + at, 0xFF, b.size() - 1 - at);
    if (!found) return {};
    at = static_cast<size_t>(static_cast<const uint8_t*>(found) - b.data());
    const int marker = b[at + 1];
    if (marker == 0xD9) return b.first(at + 2);
    if (marker != 0 && marker != 0xD0 + restarts++ % 8) return {};
  }
  return {};
}

}  // namespace

void LazyImage::leave_to_device() {
  if (!encoded() || !decode_.gpu) settle();
  for_device_ = true;
}

void LazyImage::decode() {
  if (!encoded()) return;
  Tensor pixels;
  Rect all;
  decode_region({0, 0, source_width_, source_height_}, pixels, all);
  PELTON_CHECK(pixels.dims() == Dims({source_height_, source_width_, channels_}), pixels);
  pixels_ = std::move(pixels);
  bytes_ = Tensor();
}

int64_t LazyImage::source_bytes() const {
  return int64_t{source_height_} * source_width_ * channels_;
}

LazyImage LazyImage::with_pixels(DevicePixels source) const {
  LazyImage out = *this;
  out.bytes_ = out.pixels_ = Tensor();
  out.keeper_.reset();
  out.there_ = std::move(source);
  return out;
}

void LazyImage::kept() const {
  if (keeper_) keeper_->filled();
}

void LazyImage::fetch() {
  if (!there_) return;
  Tensor pixels(DType::u8, {source_height_, source_width_, channels_});
  there_.device->activate();
  const auto stream = there_.device->make_stream();
  stream->download(pixels.mutable_data(), there_.memory.get(), pixels.bytes());
  stream->synchronize();
  pixels_ = std::move(pixels);
  there_ = {};
}

// The part of a job that is the file, empty where the device does not decode it.
Bytes LazyImage::file_for_device() const {
  if (!decode_.gpu || info_.format != ImageFormat::jpeg || match_ != Match::none) return {};
  const Bytes b(bytes_.as<uint8_t>(), static_cast<size_t>(bytes_.count()));
  if (std::min(source_width_, source_height_) < kSmallest) return {};
  // Ink and RGB codings have conversions of their own; grey pictures whose one component has other sampling
  // factors than 1 come out wrong on some decoders.
  const JpegInfo jpeg = jpeg_info(b, where_);
  if (jpeg.progressive) return {};  // which engines do not take
  const bool grey = jpeg.components == 1 && jpeg.h[0] == 1 && jpeg.v[0] == 1,
             colour = jpeg.components == 3 && jpeg.ycc && jpeg.h[0] <= 2 && jpeg.v[0] <= 2 &&
                      jpeg.h[1] == 1 && jpeg.v[1] == 1 && jpeg.h[2] == 1 && jpeg.v[2] == 1;
  if (!(colour || (grey && channels_ == 1))) return {};
  return one_sound_scan(b, jpeg.scan);
}

std::optional<device::PictureJob> LazyImage::device_job() const {
  if (warp_) return {};
  device::PictureJob job;
  if (encoded()) {
    job.file = file_for_device();
    if (job.file.empty()) return {};
  } else if (!for_device_) {
    return {};
  } else {
    job.pixels = there_ ? there_.memory.get() : pixels_.as<uint8_t>();
    job.pixels_there = static_cast<bool>(there_);
  }
  if (keeper_) job.keep = keeper_->memory();
  job.width = source_width_;
  job.height = source_height_;
  job.x = taps_of(filter_table(geometry_.x, geometry_.filter, geometry_.antialias));
  job.y = taps_of(filter_table(geometry_.y, geometry_.filter, geometry_.antialias));
  job.swap = geometry_.swap;
  job.left = geometry_.left;
  job.top = geometry_.top;
  std::ranges::copy(fill_, job.fill.begin());
  if (colour_) {
    job.recolour = true;
    job.matrix = *colour_;
  }
  return job;
}

}  // namespace pelton::data
