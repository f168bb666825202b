// SPDX-License-Identifier: Apache-2.0
#include "serve/http/compress.h"

#include <strings.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace pelton::serve {
namespace {

constexpr int kGzipWindow = 15 + 16, kZlibWindow = 15;
constexpr size_t kStep = size_t{1} << 30;  // zlib counts in 32 bits

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

bool same_name(std::string_view a, std::string_view b) {  // names of codings, in any case
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

struct Inflater {
  z_stream z{};
  explicit Inflater(Coding c) {
    if (inflateInit2(&z, c == Coding::gzip ? kGzipWindow : kZlibWindow) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&z); }
};
struct Deflater {
  z_stream z{};
  explicit Deflater(Coding c) {
    if (deflateInit2(&z, 1, Z_DEFLATED, c == Coding::gzip ? kGzipWindow : kZlibWindow, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  ~Deflater() { deflateEnd(&z); }
};

}  // namespace

Coding coding_of(std::string_view encoding) {
  encoding = trim(encoding);
  if (encoding.empty() || same_name(encoding, "identity")) return Coding::identity;
  if (same_name(encoding, "gzip") || same_name(encoding, "x-gzip")) return Coding::gzip;
  if (same_name(encoding, "deflate")) return Coding::deflate;
  fail(ErrorCode::bad_format, cat("Content-Encoding '", encoding, "' is not supported"), "",
       "use gzip, deflate or none");
}

Coding accepted_coding(std::string_view accept) {
  Coding best = Coding::identity;
  while (!accept.empty()) {
    const size_t comma = std::min(accept.find(','), accept.size());
    std::string_view item = trim(accept.substr(0, comma));
    accept.remove_prefix(std::min(comma + 1, accept.size()));
    const size_t semicolon = item.find(';');
    if (semicolon != item.npos) {
      const std::string_view q = trim(item.substr(semicolon + 1));
      if (q == "q=0" || q == "q=0.0" || q == "q=0.00" || q == "q=0.000") continue;
      item = trim(item.substr(0, semicolon));
    }
    if (same_name(item, "gzip")) return Coding::gzip;
    if (same_name(item, "deflate")) best = Coding::deflate;
  }
  return best;
}

Blob decompress(const Blob& body, Coding coding, size_t max_bytes, size_t padding) {
  Inflater in(coding);
  std::string out;
  size_t at = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    if (in.z.avail_in == 0 && at < body.size) {
      const size_t n = std::min(body.size - at, kStep);
      in.z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data + at));
      in.z.avail_in = static_cast<uInt>(n);
      at += n;
    }
    char chunk[32768];
    in.z.next_out = reinterpret_cast<Bytef*>(chunk);
    in.z.avail_out = sizeof chunk;
    status = inflate(&in.z, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END)
      fail(ErrorCode::bad_format, "the compressed body is damaged or cut short");
    const size_t n = sizeof chunk - in.z.avail_out;
    if (out.size() + n > max_bytes)
      fail(ErrorCode::limit, cat("the body is larger than ", max_bytes, " bytes when decompressed"));
    out.append(chunk, n);
  }
  if (in.z.avail_in || at < body.size) fail(ErrorCode::bad_format, "bytes follow the compressed body");
  const size_t size = out.size();
  out.append(padding, '\0');
  Blob b = Blob::from(std::move(out));
  b.size = size;
  return b;
}

Blob compress(const std::vector<Blob>& parts, Coding coding) {
  Deflater d(coding);
  std::string out;
  auto pump = [&](int flush) {
    for (;;) {
      char chunk[32768];
      d.z.next_out = reinterpret_cast<Bytef*>(chunk);
      d.z.avail_out = sizeof chunk;
      const int status = deflate(&d.z, flush);
      PELTON_CHECK(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, "deflate returned ",
                   status);
      out.append(chunk, sizeof chunk - d.z.avail_out);
      if (flush == Z_FINISH ? status == Z_STREAM_END : d.z.avail_out != 0) return;
    }
  };
  for (const Blob& b : parts)
    for (size_t at = 0; at < b.size; at += kStep) {
      d.z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(b.data + at));
      d.z.avail_in = static_cast<uInt>(std::min(b.size - at, kStep));
      pump(Z_NO_FLUSH);
    }
  pump(Z_FINISH);
  return Blob::from(std::move(out));
}

}  // namespace pelton::serve
