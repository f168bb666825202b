// SPDX-License-Identifier: Apache-2.0
// Tensor files. The first byte chooses the format, the rest is the file. What loads must save, and load again
// to the same bytes.
#include "fuzz/fuzz.h"
#include "tensor/npy.h"
#include "tensor/safetensors.h"
#include "tensor/tensor_pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton;
  if (size == 0) return 0;
  return fuzz::feed(data + 1, size - 1, [&](std::string_view bytes) {
    switch (data[0] % 5) {
      case 0: {
        std::string once = format_npy(parse_npy(bytes));
        PELTON_CHECK(format_npy(parse_npy(once)) == once, ".npy does not round-trip");
        break;
      }
      case 1:
        parse_npz(bytes);
        break;
      case 2:
        parse_pb_value(bytes, PbValue::Kind::tensor, {});
        break;
      case 4:
        parse_safetensors(bytes);
        break;
      default:
        parse_pb_value(bytes, PbValue::Kind::sequence, {});
        break;
    }
  });
}
