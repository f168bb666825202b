// SPDX-License-Identifier: Apache-2.0
// Any text is a configuration or an Error; what is read prints, and reads back as the same.
#include "fuzz/fuzz.h"
#include "serve/core/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pelton::serve;
  return pelton::fuzz::feed(data, size, [](std::string_view text) {
    std::shared_ptr<const Node> tree = parse_config_text(text, "fuzz");
    const std::string printed = config_to_text(*tree);
    PELTON_CHECK(config_to_text(*parse_config_text(printed, "printed")) == printed,
                 "the text form does not round-trip");
    config_to_wire(*tree);
    read_model_config(tree);
  });
}
