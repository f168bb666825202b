// SPDX-License-Identifier: Apache-2.0
#include "data/source/datum.h"

#include <array>
#include <cstring>

#include "data/source/source.h"
#include "tensor/proto_wire.h"

namespace pelton::data {
namespace {

using wire::FieldSpec;
using wire::Kind;
constexpr FieldSpec kFields[] = {
    {"Datum", 1, "channels", Kind::int32, false, ""}, {"Datum", 2, "height", Kind::int32, false, ""},
    {"Datum", 3, "width", Kind::int32, false, ""},    {"Datum", 4, "data", Kind::bytes, false, ""},
    {"Datum", 5, "label", Kind::int32, false, ""},    {"Datum", 6, "float_data", Kind::f32, true, ""},
    {"Datum", 7, "encoded", Kind::int32, false, ""}};

}  // namespace

void read_datum(std::string_view message, Sample& s) {
  static const wire::MessageSpec spec = wire::find_message(kFields, std::size(kFields), "Datum");
  int64_t size[3] = {0, 0, 0}, label = 0;  // channels, height, width
  bool encoded = false;
  std::string_view data;
  std::vector<float> floats;
  for (wire::Reader r(wire::whole(message), spec); uint32_t n = r.next();) {
    if (n <= 3)
      size[n - 1] = r.integer();
    else if (n == 4)
      data = r.text();
    else if (n == 5)
      label = static_cast<int32_t>(r.integer());
    else if (n == 6)
      r.append_to(floats);
    else
      encoded = r.integer() != 0;
  }
  s.set("label", label_tensor(label));
  if (encoded) {
    Tensor t(DType::u8, {static_cast<int64_t>(data.size())});
    if (!data.empty()) std::memcpy(t.mutable_data(), data.data(), data.size());
    return s.set("image", std::move(t));
  }
  constexpr int64_t kLargest = 1 << 20;
  for (int64_t d : size)
    if (d < 1 || d > kLargest)
      fail(ErrorCode::bad_format, cat("a Datum of ", size[0], "x", size[1], "x", size[2], " values"));
  const int64_t c = size[0], pixels = size[1] * size[2], count = element_count(Dims{c, size[1], size[2]});
  if (!floats.empty() || data.empty()) {
    if (static_cast<int64_t>(floats.size()) != count)
      fail(ErrorCode::bad_format,
           cat("a Datum of ", size[0], "x", size[1], "x", size[2], " has ", floats.size(), " numbers"));
    return s.set("data", Tensor::from<float>({c, size[1], size[2]}, floats));
  }
  if (static_cast<int64_t>(data.size()) != count)
    fail(ErrorCode::bad_format,
         cat("a Datum of ", size[0], "x", size[1], "x", size[2], " has ", data.size(), " bytes"));
  Tensor t(DType::u8, {size[1], size[2], c});
  auto* to = t.as_mutable<uint8_t>();
  const auto* from = reinterpret_cast<const uint8_t*>(data.data());
  for (int64_t p = 0; p < pixels; ++p)
    for (int64_t k = 0; k < c; ++k) *to++ = from[(c == 3 ? 2 - k : k) * pixels + p];
  s.set("image", std::move(t));
}

}  // namespace pelton::data
