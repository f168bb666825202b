// SPDX-License-Identifier: Apache-2.0
#include "data/audio/audio.h"

#if PELTON_HAVE_SNDFILE
#include <algorithm>
#include <cstdio>
#include <cstring>

#include <sndfile.h>

namespace pelton::data {
namespace {

struct Source {
  Bytes bytes;
  sf_count_t at = 0;
};

sf_count_t length(void* user) {
  return static_cast<sf_count_t>(static_cast<Source*>(user)->bytes.size());
}
sf_count_t seek(sf_count_t offset, int whence, void* user) {
  auto* s = static_cast<Source*>(user);
  const sf_count_t to = whence == SEEK_SET   ? offset
                        : whence == SEEK_CUR ? s->at + offset
                                             : length(user) + offset;
  if (to < 0 || to > length(user)) return -1;
  return s->at = to;
}
sf_count_t read(void* out, sf_count_t n, void* user) {
  auto* s = static_cast<Source*>(user);
  n = std::min(n, length(user) - s->at);
  std::memcpy(out, s->bytes.data() + s->at, static_cast<size_t>(n));
  s->at += n;
  return n;
}
sf_count_t write(const void*, sf_count_t, void*) {
  return 0;
}
sf_count_t tell(void* user) {
  return static_cast<Source*>(user)->at;
}

}  // namespace

Sound decode_sound(Bytes bytes, int64_t max_samples, const std::string& where) {
  if (bytes.empty()) fail(ErrorCode::bad_format, "the file is empty", where);
  Source source{bytes};
  SF_VIRTUAL_IO io{length, seek, read, write, tell};
  SF_INFO info{};
  std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(sf_open_virtual(&io, SFM_READ, &info, &source), sf_close);
  if (!file) {
    std::string reason = sf_strerror(nullptr);
    while (!reason.empty() && (reason.back() == '\n' || reason.back() == '.')) reason.pop_back();
    fail(ErrorCode::bad_format, cat("not a sound file that can be read: ", reason), where,
         "WAV, FLAC and Ogg are read");
  }
  if (info.channels < 1 || info.samplerate < 1 || info.frames < 0)
    fail(ErrorCode::bad_format, "the sound header is damaged", where);
  if (info.frames > max_samples / info.channels)
    fail(ErrorCode::limit,
         cat("the header says ", info.frames, " samples of ", info.channels, " channels, above the limit of ",
             max_samples),
         where, "raise max_samples if the file is to be trusted");
  // As much memory as there are samples, whatever the header says; a header may also say nothing (0).
  std::vector<float> mixed;
  const sf_count_t most = max_samples / info.channels;
  sf_count_t got = 0;
  for (constexpr sf_count_t kChunk = 1 << 16;;) {
    mixed.resize(static_cast<size_t>(got + kChunk) * static_cast<size_t>(info.channels));
    const sf_count_t n = sf_readf_float(file.get(), mixed.data() + got * info.channels, kChunk);
    got += std::max<sf_count_t>(n, 0);
    if (n < kChunk) break;
    if (got > most) fail(ErrorCode::limit, cat("more than ", max_samples, " samples"), where);
  }
  if (got < info.frames)
    fail(ErrorCode::bad_format, cat("the sound is cut short: ", got, " of ", info.frames, " samples"), where);
  Sound s{Tensor(DType::f32, {info.channels, got}), info.samplerate};
  float* out = s.samples.as_mutable<float>();
  for (int c = 0; c < info.channels; ++c)
    for (sf_count_t i = 0; i < got; ++i) *out++ = mixed[static_cast<size_t>(i * info.channels + c)];
  return s;
}

}  // namespace pelton::data
#else
namespace pelton::data {
Sound decode_sound(Bytes, int64_t, const std::string& where) {
  fail(ErrorCode::unsupported_op, "this build cannot decode sound", where, "install libsndfile and rebuild");
}
}  // namespace pelton::data
#endif
