// SPDX-License-Identifier: Apache-2.0
#include "data/image/lazy_image.h"

namespace pelton::data {

ColourMatrix multiply(const ColourMatrix& a, const ColourMatrix& b) {
  ColourMatrix out{};
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 4; ++j) {
      out[4 * i + j] = j == 3 ? a[4 * i + 3] : 0;
      for (size_t k = 0; k < 3; ++k) out[4 * i + j] += a[4 * i + k] * b[4 * k + j];
    }
  return out;
}

LazyImage::LazyImage(Tensor encoded, const DecodeOptions& decode, Match match, std::string where)
    : bytes_(std::move(encoded)), decode_(decode), where_(std::move(where)), match_(match) {
  Bytes b(bytes_.as<uint8_t>(), static_cast<size_t>(bytes_.count()));
  info_ = read_info(b, where_);
  check_size(info_.width, info_.height, decode_.max_pixels, where_);
  source_width_ = info_.width;
  source_height_ = info_.height;
  channels_ = decode_.colour == Colour::gray ? 1 : 3;
  geometry_ = Geometry::whole(source_width_, source_height_);
  if (decode_.orient) geometry_.orient(info_.orientation);
  decode_.orient = false;  // it is part of the geometry now
}

LazyImage::LazyImage(Tensor pixels, Match match) : match_(match) {
  replace(std::move(pixels));
}

void LazyImage::replace(Tensor pixels) {
  PELTON_CHECK(pixels.dtype() == DType::u8 && pixels.rank() == 3, pixels);
  bytes_ = Tensor();
  there_ = {};
  keeper_.reset();
  pixels_ = std::move(pixels);
  source_height_ = static_cast<int>(pixels_.dims()[0]);
  source_width_ = static_cast<int>(pixels_.dims()[1]);
  channels_ = static_cast<int>(pixels_.dims()[2]);
  geometry_ = Geometry::whole(source_width_, source_height_);
  warp_.reset();
  colour_.reset();
}

void LazyImage::crop(Rect r) {
  if (!warp_) return geometry_.crop(r);
  warp_->matrix =
      multiply(warp_->matrix, {1, 0, static_cast<double>(r.x0), 0, 1, static_cast<double>(r.y0), 0, 0, 1});
  warp_->width = r.width();
  warp_->height = r.height();
}

void LazyImage::resize(int w, int h, Filter filter, bool antialias) {
  if (match_ != Match::none) return exact_resize(w, h, filter, antialias);
  if (warp_) {
    warp_->matrix = multiply(warp_->matrix, {static_cast<double>(width()) / w, 0, 0, 0,
                                             static_cast<double>(height()) / h, 0, 0, 0, 1});
    warp_->width = w;
    warp_->height = h;
    return;
  }
  if (geometry_.padded() ||
      (geometry_.resized() && (geometry_.filter != filter || geometry_.antialias != antialias)))
    settle();
  geometry_.filter = filter;
  geometry_.antialias = antialias;
  geometry_.resize(w, h);
}

void LazyImage::set_fill(std::array<uint8_t, 3> fill) {
  if (fill != fill_ && (geometry_.padded() || warp_)) settle();
  fill_ = fill;
}

void LazyImage::mirror_x() {
  if (!warp_) return geometry_.mirror_x();
  warp_->matrix = multiply(warp_->matrix, {-1, 0, static_cast<double>(warp_->width), 0, 1, 0, 0, 0, 1});
}

void LazyImage::mirror_y() {
  if (!warp_) return geometry_.mirror_y();
  warp_->matrix = multiply(warp_->matrix, {1, 0, 0, 0, -1, static_cast<double>(warp_->height), 0, 0, 1});
}

void LazyImage::pad(int left, int top, int right, int bottom) {
  if (colour_) settle();  // fill is not recoloured
  if (!warp_) return geometry_.pad(left, top, right, bottom);
  warp_->matrix =
      multiply(warp_->matrix, {1, 0, -static_cast<double>(left), 0, 1, -static_cast<double>(top), 0, 0, 1});
  warp_->width += left + right;
  warp_->height += top + bottom;
}

void LazyImage::warp(const Matrix& m, int w, int h, Filter filter) {
  if (colour_ || match_ != Match::none || (warp_ && warp_->filter != filter)) settle();
  warp_ = Warp{warp_ ? multiply(warp_->matrix, m) : m, w, h, filter};
  if (match_ != Match::none) settle();
}

void LazyImage::recolour(const ColourMatrix& m) {
  if (geometry_.padded() || warp_) settle();
  colour_ = colour_ ? multiply(m, *colour_) : m;
}

void LazyImage::to_grey() {
  if (channels_ == 1) return;
  replace(to_colour(pixels(), Colour::gray));
}

Dims LazyImage::dims(const PixelFormat& f) const {
  return f.channels_first ? Dims{channels_, height(), width()} : Dims{height(), width(), channels_};
}

const Tensor& LazyImage::pixels() {
  settle();
  return pixels_;
}

void LazyImage::settle() {
  fetch();
  if (!encoded() && !colour_ && !warp_ && geometry_.is_identity(source_width_, source_height_)) return;
  PixelFormat f;
  f.dtype = DType::u8;
  f.channels_first = false;
  Tensor out(DType::u8, {height(), width(), channels_});
  finish(f, out.mutable_data());
  replace(std::move(out));
}

}  // namespace pelton::data
