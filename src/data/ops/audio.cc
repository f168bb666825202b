// SPDX-License-Identifier: Apache-2.0
#include "data/ops/stage.h"

namespace pelton::data {
std::vector<StageKind> audio_stage_kinds() {
  return {};
}
}  // namespace pelton::data
