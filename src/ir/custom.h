// SPDX-License-Identifier: Apache-2.0
// Ops of plug-ins. A `custom` node names one by domain, name and version; the plug-in that provides it
// registers inference and, if it has them, a reference function and a gradient.
#pragma once

#include <functional>
#include <string>

namespace pelton::ir {

class InferContext;
class EvalContext;
class GradientContext;

struct CustomOp {
  std::string domain, name;
  int64_t version = 1;
  std::function<void(InferContext&)> infer;
  std::function<void(EvalContext&)> eval;          // may be empty: then only kernels can run it
  std::function<void(GradientContext&)> gradient;  // may be empty: not differentiable
};

void add_custom_op(CustomOp op);  // a second one of the same domain, name and version is refused (bad_name)
// Null if nothing provides it; stays valid for the life of the process.
const CustomOp* find_custom_op(const std::string& domain, const std::string& name, int64_t version);

}  // namespace pelton::ir
