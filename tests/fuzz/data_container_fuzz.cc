// SPDX-License-Identifier: Apache-2.0
// Headers of tar, TFRecord, RecordIO and LMDB files, Datum messages, pipeline descriptions and saved states.
// The first byte chooses.
#include <algorithm>
#include <cstring>
#include <string>

#include "data/pipeline.h"
#include "data/source/datum.h"
#include "data/source/lmdb_index.h"
#include "data/source/recordio.h"
#include "data/source/tar_index.h"
#include "data/source/tfrecord.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  using namespace pelton::data;
  if (size == 0) return 0;
  return fuzz::feed(data + 1, size - 1, [&](std::string_view bytes) {
    const int64_t n = static_cast<int64_t>(bytes.size());
    switch (data[0] % 7) {
      case 0:
        for (const TarMember& m : tar_members(
                 n,
                 [&](int64_t at, int64_t count) {
                   return std::string(bytes.substr(static_cast<size_t>(at), static_cast<size_t>(count)));
                 },
                 "fuzz"))
          PELTON_CHECK(m.offset >= 0 && m.size >= 0 && m.offset + m.size <= n,
                       "a member outside the archive");
        break;
      case 1:
        for (auto [offset, length] : tfrecord_index(
                 n,
                 [&](int64_t at, std::span<uint8_t> into) {
                   std::memcpy(into.data(), bytes.data() + at, into.size());
                 },
                 "fuzz"))
          PELTON_CHECK(offset >= 0 && length >= 0 && offset + length + 4 <= n, "a record outside the file");
        break;
      case 2:
        parse_pipeline(std::string(bytes), "fuzz.toml", "");
        break;
      case 4:
        for (const Record& r : recordio_index(
                 n,
                 [&](int64_t at, std::span<uint8_t> into) {
                   std::memcpy(into.data(), bytes.data() + at, into.size());
                 },
                 "fuzz"))
          for (const RecordPart& p : r)
            PELTON_CHECK(p.offset >= 0 && p.size >= 0 && p.offset + p.size <= n, "a record outside the file");
        break;
      case 5: {
        Sample datum, image;
        Tensor payload(DType::u8, {n});
        if (n) std::memcpy(payload.mutable_data(), bytes.data(), bytes.size());
        try {
          read_image_record(payload, image, "fuzz");
        } catch (const Error&) {
        }
        read_datum(bytes, datum);
        break;
      }
      case 6:
        for (const LmdbRecord& r : lmdb_index(
                 n,
                 [&](int64_t at, std::span<uint8_t> into) {
                   PELTON_CHECK(at >= 0 && at + std::ssize(into) <= n, "a read outside the file");
                   std::memcpy(into.data(), bytes.data() + at, into.size());
                 },
                 "fuzz"))
          PELTON_CHECK(r.offset >= 0 && r.size >= 0 && r.offset + r.size <= n, "a record outside the file");
        break;
      default:
        PipelineState::parse(std::string(bytes));
        break;
    }
  });
}
