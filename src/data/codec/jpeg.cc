// SPDX-License-Identifier: Apache-2.0
#include "data/codec/jpeg.h"

#if PELTON_HAVE_JPEG
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jerror.h>
#include <jpeglib.h>

namespace pelton::data {
namespace {

// One decompressor with a memory source. libjpeg reports errors by longjmp: functions that call it between
// setjmp and return hold only trivially destructible locals.
class Reader {
 public:
  Reader(Bytes bytes, const std::string& where) : where_(where) {
    cinfo.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = [](j_common_ptr c) { longjmp(reinterpret_cast<Errors*>(c->err)->jump, 1); };
    errors_.base.output_message = [](j_common_ptr) {};
    errors_.base.emit_message = [](j_common_ptr c, int level) {
      auto* e = reinterpret_cast<Errors*>(c->err);
      if (level < 0) ++e->base.num_warnings;
    };
    if (setjmp(errors_.jump)) raise();
    jpeg_create_decompress(&cinfo);
    cinfo.mem->max_memory_to_use = 1L << 30;
    source_.base.next_input_byte = bytes.data();
    source_.base.bytes_in_buffer = bytes.size();
    source_.base.init_source = [](j_decompress_ptr) {};
    source_.base.term_source = [](j_decompress_ptr) {};
    source_.base.resync_to_restart = jpeg_resync_to_restart;
    source_.base.fill_input_buffer = [](j_decompress_ptr c) -> boolean {
      static const JOCTET end[2] = {0xff, JPEG_EOI};
      reinterpret_cast<Source*>(c->src)->exhausted = true;
      c->src->next_input_byte = end;
      c->src->bytes_in_buffer = 2;
      return TRUE;
    };
    source_.base.skip_input_data = [](j_decompress_ptr c, long n) {
      if (n <= 0) return;
      if (static_cast<size_t>(n) > c->src->bytes_in_buffer) {
        c->src->fill_input_buffer(c);
      } else {
        c->src->next_input_byte += n;
        c->src->bytes_in_buffer -= static_cast<size_t>(n);
      }
    };
    cinfo.src = &source_.base;
  }
  ~Reader() { jpeg_destroy_decompress(&cinfo); }
  Reader(const Reader&) = delete;

  [[noreturn]] void raise() {
    char text[JMSG_LENGTH_MAX];
    errors_.base.format_message(reinterpret_cast<j_common_ptr>(&cinfo), text);
    std::string message = text;
    jpeg_destroy_decompress(&cinfo);
    fail(ErrorCode::bad_format, cat("damaged JPEG: ", message), where_);
  }
  void check_complete(bool fill) const {
    if (source_.exhausted && !fill)
      fail(ErrorCode::bad_format, "the JPEG data is cut short", where_,
           "restore the file, or set truncated = \"fill\"");
  }
  jmp_buf& jump() { return errors_.jump; }

  jpeg_decompress_struct cinfo{};

 private:
  struct Errors {
    jpeg_error_mgr base;
    jmp_buf jump;
  } errors_{};
  struct Source {
    jpeg_source_mgr base;
    bool exhausted;
  } source_{};
  const std::string& where_;
};

// Progressive files can hold thousands of scans over few bytes; each costs a pass over the whole image.
constexpr int kMaxScans = 500;

void limit_scans(Reader& r) {
  static jpeg_progress_mgr progress = [] {
    jpeg_progress_mgr p{};
    p.progress_monitor = [](j_common_ptr c) {
      if (c->is_decompressor && reinterpret_cast<j_decompress_ptr>(c)->input_scan_number > kMaxScans)
        ERREXIT(c, JERR_BAD_PROGRESSION);
    };
    return p;
  }();
  r.cinfo.progress = &progress;
}

bool read_header(Reader& r) {
  if (setjmp(r.jump())) return false;
  jpeg_read_header(&r.cinfo, TRUE);
  return true;
}

// Starts with the colour space set; false after a libjpeg error.
bool start(Reader& r) {
  if (setjmp(r.jump())) return false;
  jpeg_start_decompress(&r.cinfo);
  return true;
}

bool read_rows(Reader& r, JDIMENSION skip, JDIMENSION* x, JDIMENSION* width, JDIMENSION rows, uint8_t* out,
               size_t* pitch) {
  if (setjmp(r.jump())) return false;
  if (*width < r.cinfo.output_width) jpeg_crop_scanline(&r.cinfo, x, width);
  *pitch = size_t{*width} * static_cast<size_t>(r.cinfo.output_components);
  if (skip) jpeg_skip_scanlines(&r.cinfo, skip);
  for (JDIMENSION done = 0; done < rows;) {
    JSAMPROW lines[8];
    JDIMENSION want = std::min<JDIMENSION>(8, rows - done);
    for (JDIMENSION i = 0; i < want; ++i) lines[i] = out + (done + i) * *pitch;
    done += jpeg_read_scanlines(&r.cinfo, lines, want);
  }
  return true;
}

// 4-channel samples to RGB in place of a new tensor. Adobe files store the inverse.
Tensor cmyk_to_rgb(const Tensor& in, bool inverted) {
  Tensor out(DType::u8, {in.dims()[0], in.dims()[1], 3});
  const uint8_t* s = in.as<uint8_t>();
  uint8_t* d = out.as_mutable<uint8_t>();
  const int64_t pixels = in.dims()[0] * in.dims()[1];
  for (int64_t i = 0; i < pixels; ++i, s += 4, d += 3) {
    const int flip = inverted ? 0 : 255, k = s[3] ^ flip;  // k: 255 is no black
    for (int c = 0; c < 3; ++c) {
      int t = (255 - (s[c] ^ flip)) * k + 128;  // rounded ink * k / 255
      int v = k - ((t + (t >> 8)) >> 8);
      d[c] = static_cast<uint8_t>(v < 0 ? 0 : v);
    }
  }
  return out;
}

}  // namespace

Tensor jpeg_decode(Bytes bytes, const DecodeOptions& options, const std::string& where) {
  JpegInfo info = jpeg_info(bytes, where);
  return jpeg_decode_region(bytes, {0, 0, info.image.width, info.image.height}, options, where, nullptr);
}

Tensor jpeg_decode_region(Bytes bytes, Rect region, const DecodeOptions& options, const std::string& where,
                          Rect* decoded) {
  Reader r(bytes, where);
  limit_scans(r);
  if (!read_header(r)) r.raise();
  auto& c = r.cinfo;
  check_size(c.image_width, c.image_height, options.max_pixels, where);
  const bool ink = c.num_components == 4;
  c.out_color_space = ink ? JCS_CMYK : c.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  if (!start(r)) r.raise();
  // A margin of one MCU on each side keeps chroma interpolation exact inside the region.
  const int mcu_w = c.max_h_samp_factor * 8, mcu_h = c.max_v_samp_factor * 8;
  const int image_w = static_cast<int>(c.output_width), image_h = static_cast<int>(c.output_height);
  // Cropping columns is not possible together with buffered (progressive) decoding on every libjpeg-turbo.
  const bool columns = !c.progressive_mode && region.width() < image_w;
  JDIMENSION x = columns ? static_cast<JDIMENSION>(std::max(0, region.x0 - mcu_w)) : 0;
  JDIMENSION width =
      static_cast<JDIMENSION>(columns ? std::min(image_w, region.x1 + mcu_w) - static_cast<int>(x) : image_w);
  JDIMENSION y = c.progressive_mode ? 0 : static_cast<JDIMENSION>(std::max(0, region.y0 - mcu_h));
  JDIMENSION rows = static_cast<JDIMENSION>(std::min(image_h, region.y1)) - y;
  size_t pitch = 0;
  // Allocated for the widest case: cropping rounds the width up to whole MCUs.
  Tensor pixels(DType::u8,
                {rows, std::min<int64_t>(image_w, int64_t{width} + 2 * mcu_w), c.output_components});
  if (!read_rows(r, y, &x, &width, rows, pixels.as_mutable<uint8_t>(), &pitch)) r.raise();
  r.check_complete(options.fill_truncated);
  if (static_cast<int64_t>(width) != pixels.dims()[1])
    pixels = Tensor::borrow(DType::u8, {rows, width, c.output_components}, pixels.data(),
                            std::make_shared<Tensor>(pixels));
  if (ink) pixels = cmyk_to_rgb(pixels, c.saw_Adobe_marker);
  if (decoded)
    *decoded = {static_cast<int>(x), static_cast<int>(y), static_cast<int>(x + width),
                static_cast<int>(y + rows)};
  return pixels;
}

namespace {

// Decodes whole MCU rows of the components. Rows above the region are entropy-decoded only: a component
// that is "not needed" costs no inverse transform.
bool read_planes(Reader& r, int first_row, int last_row, JpegPlane* planes, int count) {
  if (setjmp(r.jump())) return false;
  auto& c = r.cinfo;
  jpeg_start_decompress(&c);
  const int unit = c.max_v_samp_factor * c.min_DCT_scaled_size;  // output rows of one call
  JSAMPROW rows[3][32];
  JSAMPARRAY arrays[3] = {rows[0], rows[1], rows[2]};
  const bool skip = !c.progressive_mode;
  for (int y = 0; y < last_row; y += unit) {
    const bool wanted = y + unit > first_row;
    for (int p = 0; p < c.num_components; ++p) {
      jpeg_component_info& comp = c.comp_info[p];
      comp.component_needed = p < count && (wanted || !skip);
      const int lines = comp.v_samp_factor * comp.DCT_scaled_size;
      JpegPlane& plane = planes[p < count ? p : 0];
      const int at = wanted ? y / unit * lines - plane.y0 : 0;  // unwanted rows land on the first ones
      for (int i = 0; i < lines; ++i)
        rows[p][i] =
            plane.data + static_cast<size_t>(p < count ? at + i : 0) * static_cast<size_t>(plane.pitch);
    }
    jpeg_read_raw_data(&c, arrays, static_cast<JDIMENSION>(unit));
  }
  return true;
}

}  // namespace

void jpeg_decode_planes(Bytes bytes, Rect region, int reduce, bool luma_only, const DecodeOptions& options,
                        const std::string& where, JpegPlanes& out) {
  Reader r(bytes, where);
  limit_scans(r);
  if (!read_header(r)) r.raise();
  auto& c = r.cinfo;
  check_size(c.image_width, c.image_height, options.max_pixels, where);
  PELTON_CHECK(c.num_components == 1 || (c.num_components == 3 && c.jpeg_color_space == JCS_YCbCr),
               "planes of ", c.num_components);
  c.raw_data_out = TRUE;
  c.out_color_space = c.jpeg_color_space;
  c.scale_num = 1;
  c.scale_denom = static_cast<unsigned>(reduce);
  {
    // jpeg_calc_output_dimensions sets each component's scaled size without starting the decoder.
    if (setjmp(r.jump())) r.raise();
    jpeg_calc_output_dimensions(&c);
  }
  const int count = luma_only ? 1 : c.num_components;
  const int unit = c.max_v_samp_factor * c.min_DCT_scaled_size,
            unit_x = c.max_h_samp_factor * c.min_DCT_scaled_size;
  const int first = region.y0 / reduce / unit * unit;
  const int last = std::min(static_cast<int>(c.output_height), (region.y1 + reduce - 1) / reduce);
  const int mcu_rows = (last - first + unit - 1) / unit;
  const int mcu_columns = (static_cast<int>(c.output_width) + unit_x - 1) / unit_x;
  out.planes.assign(static_cast<size_t>(count), {});
  size_t total = 0, offsets[3] = {};
  for (int p = 0; p < count; ++p) {
    jpeg_component_info& comp = c.comp_info[p];
    JpegPlane& plane = out.planes[static_cast<size_t>(p)];
    const int lines = comp.v_samp_factor * comp.DCT_scaled_size;
    // The last row group may be followed by a dummy block; width_in_blocks rounds up the same way.
    const int blocks =
        std::max<int>(static_cast<int>(comp.width_in_blocks), mcu_columns * comp.h_samp_factor);
    plane.pitch = (blocks * comp.DCT_scaled_size + 63) / 64 * 64;
    plane.y0 = first / unit * lines;
    plane.width = static_cast<int>(comp.downsampled_width);
    plane.height = std::min(mcu_rows * lines, static_cast<int>(comp.downsampled_height) - plane.y0);
    plane.step_x = static_cast<double>(reduce) * unit_x / (comp.h_samp_factor * comp.DCT_scaled_size);
    plane.step_y = static_cast<double>(reduce) * unit / lines;
    offsets[p] = total;
    total += static_cast<size_t>(plane.pitch) * static_cast<size_t>(mcu_rows * lines);
  }
  if (out.storage.size() < total) out.storage.resize(total);
  for (int p = 0; p < count; ++p) out.planes[static_cast<size_t>(p)].data = out.storage.data() + offsets[p];
  if (!read_planes(r, first, last, out.planes.data(), count)) r.raise();
  r.check_complete(options.fill_truncated);
}

std::vector<uint8_t> jpeg_encode(const Tensor& image, int quality) {
  jpeg_compress_struct c{};
  jpeg_error_mgr errors{};
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &bytes, &size);
  c.image_height = static_cast<JDIMENSION>(image.dims()[0]);
  c.image_width = static_cast<JDIMENSION>(image.dims()[1]);
  c.input_components = static_cast<int>(image.dims()[2]);
  c.in_color_space = c.input_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&c);
  jpeg_set_quality(&c, quality, TRUE);
  jpeg_start_compress(&c, TRUE);
  auto* row = const_cast<uint8_t*>(image.as<uint8_t>());  // libjpeg's prototype lacks const
  const size_t pitch = size_t{c.image_width} * static_cast<size_t>(c.input_components);
  while (c.next_scanline < c.image_height) {
    JSAMPROW line = row + c.next_scanline * pitch;
    jpeg_write_scanlines(&c, &line, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  std::vector<uint8_t> out(bytes, bytes + size);
  std::free(bytes);
  return out;
}

}  // namespace pelton::data

#else
#include "data/codec/codec_impl.h"

namespace pelton::data {
Tensor jpeg_decode(Bytes, const DecodeOptions&, const std::string& where) {
  refuse_format("JPEG", where);
}
Tensor jpeg_decode_region(Bytes, Rect, const DecodeOptions&, const std::string& where, Rect*) {
  refuse_format("JPEG", where);
}
void jpeg_decode_planes(Bytes, Rect, int, bool, const DecodeOptions&, const std::string& where, JpegPlanes&) {
  refuse_format("JPEG", where);
}
std::vector<uint8_t> jpeg_encode(const Tensor&, int) {
  refuse_format("JPEG", "encode");
}
}  // namespace pelton::data
#endif
