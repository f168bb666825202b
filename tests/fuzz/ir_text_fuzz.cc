// SPDX-License-Identifier: Apache-2.0
// The text form of graphs: what parses must print, and parse again to the same text.
#include "fuzz/fuzz.h"
#include "ir/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return pelton::fuzz::feed(data, size, [](std::string_view text) {
    std::string once = pelton::ir::print(pelton::ir::parse_graph(text));
    std::string twice = pelton::ir::print(pelton::ir::parse_graph(once));
    PELTON_CHECK(once == twice, "the text form does not round-trip");
  });
}
