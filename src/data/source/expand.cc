// SPDX-License-Identifier: Apache-2.0
// Files that are stored compressed.
#include <zlib.h>

#include "data/source/source.h"
#if PELTON_HAVE_ZSTD
#include <zstd.h>
#endif

namespace pelton::data {
namespace {

std::string gunzip(const std::string& in, const std::string& where, uint64_t limit) {
  z_stream z{};
  PELTON_CHECK(inflateInit2(&z, 15 + 32) == Z_OK, "zlib");
  std::unique_ptr<z_stream, int (*)(z_stream*)> end(&z, inflateEnd);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  size_t rest = in.size();  // behind what zlib has been given: it counts in 32 bits
  std::string out;
  std::vector<char> chunk(1 << 18);
  for (;;) {
    if (z.avail_in == 0) rest -= z.avail_in = static_cast<uInt>(std::min<size_t>(rest, 1u << 30));
    z.next_out = reinterpret_cast<Bytef*>(chunk.data());
    z.avail_out = static_cast<uInt>(chunk.size());
    const int status = inflate(&z, Z_NO_FLUSH);
    out.append(chunk.data(), chunk.size() - z.avail_out);
    if (out.size() > limit) fail(ErrorCode::limit, cat("expands to more than ", limit, " bytes"), where);
    if (status == Z_STREAM_END) {
      if (z.avail_in == 0 && rest == 0) return out;
      inflateReset(&z);  // another member follows
    } else if (status != Z_OK || (z.avail_in == 0 && rest == 0 && z.avail_out != 0)) {
      fail(ErrorCode::bad_format, "damaged or cut gzip data", where);
    }
  }
}

#if PELTON_HAVE_ZSTD
std::string unzstd(const std::string& in, const std::string& where, uint64_t limit) {
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> z(ZSTD_createDStream(), ZSTD_freeDStream);
  ZSTD_inBuffer input{in.data(), in.size(), 0};
  std::string out;
  std::vector<char> chunk(ZSTD_DStreamOutSize());
  for (size_t left = 1; input.pos < input.size || left;) {
    ZSTD_outBuffer output{chunk.data(), chunk.size(), 0};
    const size_t before = input.pos;
    left = ZSTD_decompressStream(z.get(), &output, &input);
    if (ZSTD_isError(left))
      fail(ErrorCode::bad_format, cat("damaged zstd data: ", ZSTD_getErrorName(left)), where);
    out.append(chunk.data(), output.pos);
    if (out.size() > limit) fail(ErrorCode::limit, cat("expands to more than ", limit, " bytes"), where);
    if (left && input.pos == before && output.pos == 0) fail(ErrorCode::bad_format, "cut zstd data", where);
  }
  return out;
}
#else
std::string unzstd(const std::string&, const std::string& where, uint64_t) {
  fail(ErrorCode::unsupported_op, "this build cannot expand zstd", where,
       "install libzstd and rebuild, or use gzip");
}
#endif

}  // namespace

std::string expanded(std::string bytes, const std::string& where, uint64_t limit) {
  if (bytes.starts_with("\x1f\x8b")) return gunzip(bytes, where, limit);
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return unzstd(bytes, where, limit);
  return bytes;
}

}  // namespace pelton::data
