// SPDX-License-Identifier: Apache-2.0
#include "backend/conv_window.h"

#include "ir/op.h"

namespace pelton::backend {
namespace {

ConvWindow window_of(const ir::Node& node, const Instance& instance, size_t spatial) {
  ConvWindow w;
  auto ints = [&](std::string_view name, int64_t otherwise) {
    Dims v = node.op->find_attr(name) ? node.get_ints(name) : Dims();
    return v.empty() ? Dims(spatial, otherwise) : v;
  };
  auto dims = [&](std::string_view name) {
    Dims v = pelton::eval(node.get_dims(name), instance.symbols);
    return v.empty() ? Dims(spatial, 0) : v;
  };
  w.strides = ints("strides", 1);
  w.dilations = ints("dilations", 1);
  w.output_padding = ints("output_padding", 0);
  w.low = dims("low");
  w.high = dims("high");
  return w;
}

}  // namespace

ConvWindow conv_window(const ir::Node& node, const Instance& instance, const Dims& weights) {
  ConvWindow w = window_of(node, instance, weights.size() - 2);
  w.kernel.assign(weights.begin() + 2, weights.end());
  return w;
}
ConvWindow pool_window(const ir::Node& node, const Instance& instance, size_t spatial) {
  ConvWindow w = window_of(node, instance, spatial);
  w.kernel = node.get_ints("kernel");
  return w;
}

}  // namespace pelton::backend
