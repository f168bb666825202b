// SPDX-License-Identifier: Apache-2.0
// The decoders behind decode_image, one file each. A build without a format's library refuses it by name.
#pragma once

#include "data/codec/codec.h"

namespace pelton::data {

ImageInfo png_info(Bytes bytes, const std::string& where);
Tensor png_decode(Bytes bytes, const DecodeOptions& options, const std::string& where);
ImageInfo webp_info(Bytes bytes, const std::string& where);
Tensor webp_decode(Bytes bytes, const DecodeOptions& options, const std::string& where);
ImageInfo bmp_info(Bytes bytes, const std::string& where);
Tensor bmp_decode(Bytes bytes, const DecodeOptions& options, const std::string& where);
ImageInfo tiff_info(Bytes bytes, const std::string& where);
Tensor tiff_decode(Bytes bytes, const DecodeOptions& options, const std::string& where);
ImageInfo pnm_info(Bytes bytes, const std::string& where);
Tensor pnm_decode(Bytes bytes, const DecodeOptions& options, const std::string& where);

// Orientation tag of an EXIF block ("II*\0..." or "MM\0*..."); 1 when absent or damaged.
int exif_orientation(Bytes tiff_block);

[[noreturn]] inline void refuse_format(std::string_view format, const std::string& where) {
  fail(ErrorCode::unsupported_op, cat("this build cannot decode ", format, " images"), where,
       cat("install the ", format, " library and rebuild, or convert the file"));
}

}  // namespace pelton::data
