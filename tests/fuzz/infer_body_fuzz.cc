// SPDX-License-Identifier: Apache-2.0
// An inference body of any bytes is a request or an Error, and every tensor of a request lies inside the
// body's memory or its own. The first byte says where the JSON ends.
#include <cstring>

#include "fuzz/fuzz.h"
#include "serve/http/compress.h"
#include "serve/http/infer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::serve;
  if (size < 2) return 0;
  const size_t json = data[0] == 255 ? size - 1 : (size - 1) * data[0] / 254;
  auto memory = allocate_bytes(size - 1 + kBodyPadding);
  std::memset(memory.get(), 0, size - 1 + kBodyPadding);
  std::memcpy(memory.get(), data + 1, size - 1);
  const Blob body{memory.get(), size - 1, memory};
  pelton::fuzz::feed(data, size, [&](std::string_view) {
    Request request;
    bool binary = false;
    MemoryGate gate(1 << 20);
    read_infer_request(request, body, json, binary, SharedMemory(false, gate));
    unsigned sum = 0;
    for (const TensorValue& t : request.inputs)
      for (size_t i = 0; i < t.data.size; ++i) sum += static_cast<unsigned char>(t.data.data[i]);
    Response response;
    response.outputs = request.inputs;
    write_infer_response(response, request.outputs, sum % 2 == 0);
  });
  return pelton::fuzz::feed(data, size, [&](std::string_view) {
    decompress(body, data[0] % 2 ? Coding::gzip : Coding::deflate, 1 << 20, kBodyPadding);
  });
}
