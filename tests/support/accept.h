// SPDX-License-Identifier: Apache-2.0
// Checks of a back end's or a pass's results by the acceptance rule (interp/accept.h).
#pragma once

#include <doctest/doctest.h>

#include "interp/accept.h"

namespace pelton::test {

// `results` in the order of the graph's outputs, for these inputs.
inline void check_accepted(const ir::Graph& graph, const std::vector<ir::HostValue>& inputs,
                           const std::vector<Tensor>& results, const interp::Options& options = {}) {
  std::vector<interp::Reference> references = interp::references(graph, inputs, options);
  REQUIRE(references.size() == results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(i);
    CHECK(interp::judge(references[i], results[i]).reason == "");
  }
}

}  // namespace pelton::test
