// SPDX-License-Identifier: Apache-2.0
#include "onnx/proto/external_data.h"

#include <charconv>

namespace pelton::onnx {
namespace {

uint64_t parse_number(std::string_view key, std::string_view text) {
  uint64_t v = 0;
  auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size())
    fail(ErrorCode::bad_format, cat("external data has ", key, " \"", text, "\", which is not a size"));
  return v;
}

}  // namespace

std::shared_ptr<const MappedFile> ExternalFiles::map(std::string_view location) {
  auto& file = files_[std::string(location)];
  if (!file) file = std::make_shared<MappedFile>(path_inside(folder_, location));
  return file;
}

ExternalBytes ExternalFiles::open(const TensorView& tensor) {
  std::string_view location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
  for (auto [key, value] : tensor.external_data) {
    if (key == "location") location = value;
    if (key == "offset") offset = parse_number(key, value);
    if (key == "length") length = parse_number(key, value);
  }
  if (location.empty()) fail(ErrorCode::bad_format, "external data without a location");
  auto file = map(location);
  uint64_t size = file->bytes().size();
  if (offset > size || (length && *length > size - offset))
    fail(ErrorCode::bad_format, cat("external data at offset ", offset, ", length ", length.value_or(0),
                                    " lies outside '", location, "' of ", size, " bytes"));
  const char* start = reinterpret_cast<const char*>(file->bytes().data()) + offset;
  return {{start, length.value_or(size - offset)}, file};
}

}  // namespace pelton::onnx
