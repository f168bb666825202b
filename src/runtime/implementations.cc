// SPDX-License-Identifier: Apache-2.0
#include "runtime/implementations.h"

#include "backend/ran_by.h"
#include "runtime/frame.h"

namespace pelton::runtime {

using namespace ir;

std::vector<std::string> implementations_at(const Executable& executable, const backend::Registry& registry,
                                            const std::vector<Dims>& input_dims) {
  std::vector<std::string> out;
  for (const Choice& c : executable.choices()) out.push_back(c.implementation);
  const Graph& g = executable.graph();
  if (executable.target().kind != device::Kind::cpu) return out;
  const Region region(g, executable.choices(), registry, executable.target(), {});
  Frame frame(region);
  for (size_t i = 0; i < input_dims.size(); ++i) {
    const Type& type = g.type(g.inputs[i]);
    if (type.is_tensor())
      frame.set_input(i, type.dtype == DType::string
                             ? Tensor(type.dtype, input_dims[i])
                             : Tensor::borrow(type.dtype, input_dims[i], nullptr, nullptr));
  }
  frame.find_sizes({});
  if (frame.breaks_a_guard()) return out;
  for (const Step& step : region.program(0, frame.symbols())->steps)
    if (step.kernel) out[step.position] = backend::ran_by(step.kernel, out[step.position]);
  return out;
}

}  // namespace pelton::runtime
