// SPDX-License-Identifier: Apache-2.0
// A picture on its way through a pipeline: encoded bytes or pixels, plus what is still to be done to it, as
// one affine sampling (Geometry, then at most one Warp) and one affine colour change. Ops edit the
// description; pixels are made only when an op must see them, or at the end straight into the batch. Only the
// part of a file that the result needs is decoded.
#pragma once

#include <memory>
#include <optional>

#include "data/image/device_pixels.h"
#include "data/image/geometry.h"
#include "device/picture_decoder.h"

namespace pelton::data {

// Row-major 3x4 on (r, g, b, 1) in 0..255; on grey pictures the row sums act.
using ColourMatrix = std::array<float, 12>;
ColourMatrix multiply(const ColourMatrix& a, const ColourMatrix& b);  // a after b

// A general resample after the geometry: output position -> geometry output position.
struct Warp {
  Matrix matrix = identity_matrix();
  int width = 0, height = 0;
  Filter filter = Filter::linear;  // nearest, linear or cubic
};

// What finish() writes: value = (pixel - mean[c]) * scale[c].
struct PixelFormat {
  DType dtype = DType::f32;  // f32, f16 or u8
  bool channels_first = true;
  std::array<float, 4> mean{}, scale{1, 1, 1, 1};
  bool past_caches = false;  // the output is written past the caches: it is one of many before any is read
};

class LazyImage {
 public:
  LazyImage(Tensor encoded, const DecodeOptions& decode, Match match, std::string where);
  explicit LazyImage(Tensor pixels, Match match = Match::none);  // u8 [h, w, 1 or 3]

  int width() const { return warp_ ? warp_->width : geometry_.out_width; }
  int height() const { return warp_ ? warp_->height : geometry_.out_height; }
  int channels() const { return channels_; }
  Match match() const { return match_; }

  void crop(Rect r);  // parts outside the picture become fill
  void resize(int width, int height, Filter filter, bool antialias = true);
  void mirror_x();
  void mirror_y();
  void pad(int left, int top, int right, int bottom);
  void warp(const Matrix& out_to_in, int width, int height, Filter filter);
  void recolour(const ColourMatrix& m);
  void set_fill(std::array<uint8_t, 3> fill);  // what later ops put outside the picture
  void to_grey();                              // one channel

  const Tensor& pixels();       // u8 [height, width, channels] with everything done
  void replace(Tensor pixels);  // new u8 pixels, nothing pending
  Dims dims(const PixelFormat& f) const;
  void finish(const PixelFormat& f, void* out);  // dims(f), dense

  // The same as a job for a device's decoder, without `out`: for a JPEG whose pixels nobody has asked for
  // yet, of a decode stage that names the GPU, and for pixels that are left to the device. None where only
  // the host can do it: other formats and codings, warps. The job's file or pixels lie in this picture.
  std::optional<device::PictureJob> device_job() const;

  // From here on the picture is a device's: what is pending is made first, unless the device decodes the
  // file.
  void leave_to_device();
  bool left_to_device() const { return for_device_; }
  void decode();                 // the file whole; what is pending stays so
  int64_t source_bytes() const;  // of the pixels that a job reads, or that its file becomes
  // The picture with those in a device's memory, and the keeper that tells when they are there.
  LazyImage with_pixels(DevicePixels source) const;
  void keep_by(std::shared_ptr<PixelKeeper> keeper) { keeper_ = std::move(keeper); }
  void kept() const;  // a job has been carried out

 private:
  bool encoded() const { return bytes_.defined(); }
  void settle();  // makes pixels with nothing pending
  void fetch();   // pixels in a device's memory come to the host
  Bytes file_for_device() const;
  void decode_region(const Rect& region, Tensor& pixels, Rect& rect);
  bool try_planes(const PixelFormat& f, void* out);
  void sample(const PixelFormat& f, void* out);
  void gather(const PixelFormat& f, void* out);
  void exact_resize(int width, int height, Filter filter, bool antialias);

  Tensor bytes_, pixels_;  // exactly one of these
  DevicePixels there_;     // or this is defined
  bool for_device_ = false;
  std::shared_ptr<PixelKeeper> keeper_;
  DecodeOptions decode_;
  std::string where_;
  ImageInfo info_;
  int channels_ = 3, source_width_ = 0, source_height_ = 0;
  Match match_ = Match::none;
  Geometry geometry_;
  std::optional<Warp> warp_;
  std::optional<ColourMatrix> colour_;
  std::array<uint8_t, 3> fill_{};
};

}  // namespace pelton::data
