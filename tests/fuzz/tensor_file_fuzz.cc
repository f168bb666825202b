// SPDX-License-Identifier: Apache-2.0
// Tensor files. The first byte chooses the format, the rest is the file. What loads must save, and load again
// to the same bytes.
#include "fuzz/fuzz.h"
#include "tensor/npy.h"
#include "tensor/safetensors.h"
#include "tensor/tensor_pb.h"

namespace {

using namespace pelton;

void npy(std::string_view bytes, std::optional<DType> as) {
  const std::string once = format_npy(parse_npy(bytes, nullptr, as));
  PELTON_CHECK(format_npy(parse_npy(once, nullptr, as)) == once, ".npy does not round-trip");
}

void pb(std::string_view bytes, PbValue::Kind kind) {
  const PbValue value = parse_pb_value(bytes, kind, {});
  if (kind != PbValue::Kind::tensor) return;
  const std::string once = write_tensor_proto(value.tensor, "t");
  PELTON_CHECK(write_tensor_proto(parse_pb_value(once, kind, {}).tensor, "t") == once,
               "a TensorProto does not round-trip");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr DType kAs[] = {DType::f8e4m3fn, DType::i4, DType::u2, DType::f4e2m1};
  if (size == 0) return 0;
  return fuzz::feed(data + 1, size - 1, [&](std::string_view bytes) {
    switch (data[0] % 8) {
      case 0:
        return npy(bytes, {});
      case 1:
        parse_npz(bytes);
        return;
      case 2:
        return pb(bytes, PbValue::Kind::tensor);
      case 3:
        return pb(bytes, PbValue::Kind::sequence);
      case 4:
        parse_safetensors(bytes);
        return;
      case 5:
        return pb(bytes, PbValue::Kind::optional);
      case 6:
        return pb(bytes, PbValue::Kind::map);
      default:
        return npy(bytes, kAs[data[0] / 8 % 4]);
    }
  });
}
