// SPDX-License-Identifier: Apache-2.0
// A LazyImage carried out: the ways from a file, or from pixels, to what was asked for.
#include <algorithm>
#include <cmath>

#include "data/codec/jpeg.h"
#include "data/image/gather.h"
#include "data/image/lazy_image.h"
#include "data/image/tile_writer.h"
#include "ir/image/exact.h"
#include "ir/image/resample.h"

namespace pelton::data {
using ir::filter_table;
using ir::FilterTable;
using ir::kTileRows;
using ir::PlaneResampler;
using ir::PlaneView;
namespace {

// A JPEG is decoded at 1/2, 1/4 or 1/8 only while the rest of the reduction is at least this much, so that
// the antialiasing filter still has pixels to weigh.
constexpr double kRestOfReduction = 2;

struct Scratch {
  JpegPlanes planes;
  std::vector<float> tile, resample;
};
// Room for so many, at a multiple of 64 bytes.
float* room(std::vector<float>& v, size_t floats) {
  constexpr size_t line = 64 / sizeof(float);
  if (v.size() < floats + line) v.resize(floats + line);
  const size_t past = reinterpret_cast<uintptr_t>(v.data()) / sizeof(float) % line;
  return v.data() + (line - past) % line;
}
Scratch& scratch() {
  thread_local Scratch s;
  return s;
}

// By how much a picture must shrink to be resampled from its coded planes: where a side grows, each coded
// chroma pixel would spread over many of the result, and filters with edges or ringing show how it was
// spread. 0: never.
double least_reduction(Filter f) {
  return f == Filter::linear ? 1 : f == Filter::cubic || f == Filter::lanczos ? 2 : 0;
}

// An axis of the full-size picture as seen by a plane whose pixels are `step` wide.
Axis on_plane(Axis a, double step, int size) {
  a.start /= step;
  a.scale /= step;
  a.low = static_cast<int>(a.low / step);
  a.high = std::min(size, std::max(a.low + 1, static_cast<int>((a.high + step - 1) / step)));
  a.resized = true;
  return a;
}

// How wide the filter must be on a plane to blur as much as decoding to full size, then resizing would. In
// plane pixels, as squares of half widths of triangles (six times their variance): enlarging chroma to full
// size adds that of one coded pixel; reducing while decoding has already averaged over one plane pixel.
double widening(const Axis& full, double step, double coded_step) {
  const double filter = std::max(full.scale, 1.0) / step, coded = coded_step / step;
  return std::sqrt(
      std::max(1.0, filter * filter + (coded_step > 1 ? coded * coded : 0) - (coded < 1 ? 0.5 : 0)));
}

PlaneView view_of(const Tensor& pixels, int x0, int y0) {
  const auto& d = pixels.dims();
  return {pixels.as<uint8_t>(),
          d[1] * d[2],
          static_cast<int>(d[1]),
          static_cast<int>(d[0]),
          static_cast<int>(d[2]),
          x0,
          y0};
}

// Whether two planes have samples at the same places of the picture.
bool same_grid(const JpegPlane& a, const JpegPlane& b) {
  return a.x0 == b.x0 && a.y0 == b.y0 && a.width == b.width && a.height == b.height && a.step_x == b.step_x &&
         a.step_y == b.step_y;
}

}  // namespace

void LazyImage::decode_region(const Rect& region, Tensor& pixels, Rect& rect) {
  Bytes b(bytes_.as<uint8_t>(), static_cast<size_t>(bytes_.count()));
  if (info_.format == ImageFormat::jpeg) {
    pixels = to_colour(jpeg_decode_region(b, region, decode_, where_, &rect), decode_.colour);
  } else {
    pixels = decode_image(b, decode_, where_);
    rect = {0, 0, source_width_, source_height_};
  }
}

void LazyImage::exact_resize(int w, int h, Filter filter, bool antialias) {
  // The libraries round to 8 bits after every step and resize what they see, so all before is made first;
  // a crop alone may stay pending, since it only selects pixels.
  const bool only_crop = !geometry_.resized() && !geometry_.padded() && !geometry_.swap &&
                         !geometry_.x.flip && !geometry_.y.flip && !warp_ && !colour_;
  if (!only_crop) settle();
  fetch();
  geometry_.resize(w, h);
  const Axis &x = geometry_.x, &y = geometry_.y;
  Rect rect{0, 0, source_width_, source_height_};
  Tensor source = pixels_;
  if (encoded()) decode_region({x.low, y.low, x.high, y.high}, source, rect);
  const auto resize = ir::exact_resize(match_, x, y, filter, antialias, channels_);
  Tensor out(DType::u8, {y.n, x.n, channels_});
  std::vector<double> scratch(static_cast<size_t>(resize->scratch_bytes() / 8 + 1));
  resize->run(view_of(source, rect.x0, rect.y0), out.as_mutable<uint8_t>(), scratch.data());
  replace(std::move(out));
}

void LazyImage::finish(const PixelFormat& f, void* out) {
  fetch();
  if (warp_) return gather(f, out);
  if (!try_planes(f, out)) sample(f, out);
}

// Straight from the component planes of a JPEG, when the picture is reduced anyway.
bool LazyImage::try_planes(const PixelFormat& f, void* out) {
  if (!encoded() || info_.format != ImageFormat::jpeg || match_ != Match::none || !geometry_.resized())
    return false;
  const double least = least_reduction(geometry_.filter);
  if (least == 0 || std::min(geometry_.x.scale, geometry_.y.scale) < least) return false;
  Bytes b(bytes_.as<uint8_t>(), static_cast<size_t>(bytes_.count()));
  JpegInfo jpeg = jpeg_info(b, where_);
  if (!jpeg.ycc && jpeg.components != 1) return false;
  const Axis &x = geometry_.x, &y = geometry_.y;
  FilterTable full_y = filter_table(y, geometry_.filter, geometry_.antialias);
  int reduce = 1;
  if (geometry_.antialias)
    while (reduce < 8 && std::min(x.scale, y.scale) / (2 * reduce) >= kRestOfReduction) reduce *= 2;
  const int margin = 2 * reduce * 4;  // chroma rows reach past the luma ones
  Rect region{x.low, std::max(0, full_y.low() - margin), x.high,
              std::min(source_height_, full_y.high() + margin)};
  Scratch& s = scratch();
  jpeg_decode_planes(b, region, reduce, channels_ == 1, decode_, where_, s.planes);

  const size_t count = s.planes.planes.size(), plane_floats = static_cast<size_t>(x.n) * kTileRows;
  struct Tables {
    FilterTable x, y;
  };
  std::vector<Tables> tables;
  tables.reserve(count);
  std::vector<size_t> of_plane, places;  // its tables, and where its scratch begins
  size_t floats = 0;
  for (size_t c = 0; c < count; ++c) {
    const JpegPlane& p = s.planes.planes[c];
    if (c < 2 || !same_grid(p, s.planes.planes[1]) || jpeg.h[c] != jpeg.h[1] || jpeg.v[c] != jpeg.v[1]) {
      const double coded_x = static_cast<double>(*std::ranges::max_element(jpeg.h)) / jpeg.h[c],
                   coded_y = static_cast<double>(*std::ranges::max_element(jpeg.v)) / jpeg.v[c];
      const bool wide = geometry_.antialias;
      tables.push_back({filter_table(on_plane(x, p.step_x, p.width), geometry_.filter,
                                     wide ? widening(x, p.step_x, coded_x) : 1.0),
                        filter_table(on_plane(y, p.step_y, p.y0 + p.height), geometry_.filter,
                                     wide ? widening(y, p.step_y, coded_y) : 1.0)});
    }
    of_plane.push_back(tables.size() - 1);
    places.push_back(floats);
    floats += (PlaneResampler::scratch_floats(tables.back().x, 1) + kTileRows - 1) / kTileRows * kTileRows;
  }
  float* const work = room(s.resample, floats);
  std::vector<PlaneResampler> resamplers;
  resamplers.reserve(count);
  for (size_t c = 0; c < count; ++c) {
    const JpegPlane& p = s.planes.planes[c];
    const Tables& t = tables[of_plane[c]];
    resamplers.emplace_back(PlaneView{p.data, p.pitch, p.width, p.height, 1, p.x0, p.y0}, t.x, t.y,
                            work + places[c]);
  }
  TileWriter writer(f, geometry_, channels_, out);
  writer.set_matrix(colour_ ? &*colour_ : nullptr, count == 3, false);
  if (geometry_.padded()) writer.fill(fill_);
  float* const tile = room(s.tile, plane_floats * static_cast<size_t>(channels_));
  for (int row = 0; row < y.n; row += kTileRows) {
    const int rows = std::min(kTileRows, y.n - row);
    for (size_t p = 0; p < count; ++p) resamplers[p].tile(row, rows, tile + p * plane_floats);
    for (size_t p = count; p < static_cast<size_t>(channels_); ++p)
      std::copy_n(tile, plane_floats, tile + p * plane_floats);
    writer.write(tile, row, rows);
  }
  return true;
}

void LazyImage::sample(const PixelFormat& f, void* out) {
  const Axis &x = geometry_.x, &y = geometry_.y;
  FilterTable tx = filter_table(x, geometry_.filter, geometry_.antialias),
              ty = filter_table(y, geometry_.filter, geometry_.antialias);
  TileWriter writer(f, geometry_, channels_, out);
  writer.set_matrix(colour_ ? &*colour_ : nullptr, false, false);
  if (geometry_.padded()) writer.fill(fill_);
  if (x.n == 0 || y.n == 0) return;
  Tensor source = pixels_;
  Rect rect{0, 0, source_width_, source_height_};
  if (encoded()) decode_region({tx.low(), ty.low(), tx.high(), ty.high()}, source, rect);
  PlaneResampler resampler(view_of(source, rect.x0, rect.y0), tx, ty);
  Scratch& s = scratch();
  float* const tile = room(s.tile, resampler.tile_floats());
  for (int row = 0; row < y.n; row += kTileRows) {
    const int rows = std::min(kTileRows, y.n - row);
    resampler.tile(row, rows, tile);
    writer.write(tile, row, rows);
  }
}

void LazyImage::gather(const PixelFormat& f, void* out) {
  Warp w = *warp_;
  std::optional<ColourMatrix> colour = colour_;
  warp_.reset();
  colour_.reset();
  // Where the result is smaller than what it shows, the picture is first reduced (with antialiasing) to the
  // result's own density; the gather then reads at unit scale.
  if (match_ == Match::none && w.filter != Filter::nearest && !geometry_.padded()) {
    const double rx = std::hypot(w.matrix[0], w.matrix[1]), ry = std::hypot(w.matrix[3], w.matrix[4]);
    const int small_w = rx > 1 ? std::max(1, static_cast<int>(width() / rx + 0.5)) : width();
    const int small_h = ry > 1 ? std::max(1, static_cast<int>(height() / ry + 0.5)) : height();
    if (small_w != width() || small_h != height()) {
      w.matrix = multiply({static_cast<double>(small_w) / width(), 0, 0, 0,
                           static_cast<double>(small_h) / height(), 0, 0, 0, 1},
                          w.matrix);
      resize(small_w, small_h, Filter::linear);
    }
  }
  settle();
  Tensor warped = gather_pixels(pixels_, w, fill_);
  replace(std::move(warped));
  colour_ = colour;
  sample(f, out);
}

}  // namespace pelton::data
