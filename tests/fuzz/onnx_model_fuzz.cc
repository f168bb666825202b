// SPDX-License-Identifier: Apache-2.0
// The importer of ONNX models, from the wire format to the verified graph.
#include <cstring>
#include <string>

#include "base/log.h"
#include "fuzz/fuzz.h"
#include "fuzz/mutate.h"
#include "onnx/import/import.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Warnings about a model are no news here.
  static const bool quiet = (pelton::set_log_level(pelton::LogLevel::off), true);
  (void)quiet;
  return pelton::fuzz::feed(data, size,
                            [](std::string_view file) { pelton::onnx::import_bytes(file, nullptr, ""); });
}

// Most mutations keep the file a message, so that they reach the importer.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed) {
  pelton::fuzz::Mutator mutator(seed);
  if (mutator.below(8) == 0) return LLVMFuzzerMutate(data, size, most);
  std::string bytes(reinterpret_cast<const char*>(data), size);
  mutator.message(bytes);
  if (bytes.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
