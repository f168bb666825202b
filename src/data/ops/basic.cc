// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "data/ops/stage.h"

namespace pelton::data {
namespace {

StageFn make_decode(const Args& a, Match match) {
  DecodeOptions o;
  o.colour = a.text("colour") == "gray" ? Colour::gray : Colour::rgb;
  o.orient = a.boolean("orient");
  o.fill_truncated = a.text("truncated") == "fill";
  o.max_pixels = a.integer("max_pixels");
  o.gpu = a.text("device") == "gpu";
  if (o.gpu && match != Match::none)
    fail(ErrorCode::usage, "device = \"gpu\" together with match: nvJPEG's pixels are not that library's",
         a.where(), "leave one of them out");
  return [given = o, match, field = a.text("field"), share = a.number("cpu_share")](Sample& s,
                                                                                    const Draw& draw) {
    DecodeOptions o = given;
    o.gpu = given.gpu && !draw.coin(0, share);
    Tensor t = s.at(field);
    if (t.dtype() != DType::u8)
      fail(ErrorCode::bad_type, cat("'", field, "' is ", t, ", not bytes or u8 pixels"));
    if (t.rank() == 1) {
      s.image.emplace(std::move(t), o, match, "");
    } else if (t.rank() == 3 && (t.dims()[2] == 1 || t.dims()[2] == 3)) {
      s.image.emplace(to_colour(std::move(t), o.colour), match);  // a source of pixels needs no decoding
    } else {
      fail(ErrorCode::bad_shape, cat("'", field, "' is ", t, ", not u8 [bytes] or u8 [h, w, 1 or 3]"));
    }
    s.erase(field);
  };
}

StageFn make_normalize(const Args& a, Match) {
  return [f = pixel_format(a)](Sample& s, const Draw&) {
    s.picture();
    s.format = f;
  };
}

}  // namespace

PixelFormat pixel_format(const Args& a) {
  PixelFormat f;
  f.dtype = a.text("dtype") == "f16" ? DType::f16 : DType::f32;
  f.channels_first = a.text("layout") == "chw";
  const auto &mean = a.numbers("mean"), &std = a.numbers("std");
  for (const auto* v : {&mean, &std})
    if (v->size() != 1 && v->size() != 3)
      fail(ErrorCode::usage, cat("'mean' and 'std' have ", v->size(), " numbers, not 1 or 3"), a.where());
  for (size_t c = 0; c < 3; ++c) {
    const double d = std[std.size() == 1 ? 0 : c];
    if (!(d > 0)) fail(ErrorCode::usage, cat("'std' holds ", d, ", not a positive number"), a.where());
    f.mean[c] = static_cast<float>(mean[mean.size() == 1 ? 0 : c] * 255);
    f.scale[c] = static_cast<float>(1 / (d * 255));
  }
  return f;
}

std::vector<StageKind> basic_stage_kinds() {
  using T = OptionType;
  return {
      {{"decode",
        "the field's bytes become the picture that later stages work on",
        {{"field", T::text, "image", "u8 [bytes] of an image file, or u8 [h, w, c] pixels"},
         {"colour", T::text, "rgb", "form of the pixels", kAny, kNone, {"rgb", "gray"}},
         {"orient", T::boolean, true, "apply the EXIF orientation"},
         {"truncated",
          T::text,
          "error",
          "what a cut file is: an error, or filled where data is missing",
          kAny,
          kNone,
          {"error", "fill"}},
         {"max_pixels", T::integer, 178956970, "larger pictures are refused", 1},
         {"device",
          T::text,
          "cpu",
          "gpu: JPEG by nvJPEG, on the GPU that takes the batches; the CPU does what that does not take",
          kAny,
          kNone,
          {"cpu", "gpu"}},
         {"cpu_share", T::number, 0.0,
          "with device = \"gpu\": the share of pictures, drawn, that the CPU decodes all the same; for cores "
          "that would be idle",
          0, 1}}},
       make_decode},
      {{"normalize",
        "(pixel / 255 - mean) / std, with the element type and layout of the batch",
        {{"mean", T::numbers, std::vector<double>{0.485, 0.456, 0.406}, "one number or one for each channel"},
         {"std", T::numbers, std::vector<double>{0.229, 0.224, 0.225}, "one number or one for each channel"},
         {"dtype", T::text, "f32", "element type", kAny, kNone, {"f32", "f16"}},
         {"layout", T::text, "chw", "order of the dimensions", kAny, kNone, {"chw", "hwc"}}}},
       make_normalize}};
}

}  // namespace pelton::data
