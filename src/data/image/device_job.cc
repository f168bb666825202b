// SPDX-License-Identifier: Apache-2.0
// A picture as a job for a device's decoder: the same tables of taps as the host's resample.
#include <algorithm>

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

// Whether the file ends as a whole one does: decoders on devices do not tell of what is missing.
bool has_end(Bytes b) {
  constexpr uint8_t end[] = {0xFF, 0xD9};
  constexpr size_t kSearched = 64;  // bytes of padding behind the end
  const Bytes tail = b.last(std::min(b.size(), kSearched));
  return !std::ranges::search(tail, end).empty();
}

}  // namespace

std::optional<device::PictureJob> LazyImage::device_job() const {
  if (!decode_.gpu || !encoded() || info_.format != ImageFormat::jpeg || warp_ || match_ != Match::none)
    return {};
  const Bytes b(bytes_.as<uint8_t>(), static_cast<size_t>(bytes_.count()));
  if (std::min(source_width_, source_height_) < kSmallest || !has_end(b)) return {};
  // Ink and RGB codings have conversions of their own; grey pictures whose one component has other sampling
  // factors than 1 come out wrong on some decoders.
  const JpegInfo jpeg = jpeg_info(b, where_);
  if (jpeg.progressive) return {};  // which engines do not take
  const bool grey = jpeg.components == 1 && jpeg.h[0] == 1 && jpeg.v[0] == 1,
             colour = jpeg.components == 3 && jpeg.ycc && jpeg.h[0] <= 2 && jpeg.v[0] <= 2 &&
                      jpeg.h[1] == 1 && jpeg.v[1] == 1 && jpeg.h[2] == 1 && jpeg.v[2] == 1;
  if (!(colour || (grey && channels_ == 1))) return {};
  device::PictureJob job;
  job.file = b;
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
