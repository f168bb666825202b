// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/windows.h"

#include "onnx/import/shape_math.h"

namespace pelton::onnx {

Ints kernel_of(NodeContext& c, ValueId w) {
  Ints kernel = c.get_ints("kernel_shape");
  const Shape& shape = c.b.shape(w);
  Ints sizes;
  for (size_t i = 2; i < shape.size(); ++i) sizes.push_back(c.need_const(shape[i], "a filter size"));
  if (!kernel.empty() && kernel != sizes)
    c.refuse(ErrorCode::bad_shape,
             cat("kernel_shape ", kernel, " does not fit the filter ", c.b.type(w).str()));
  return sizes;
}

Windows windows_of(NodeContext& c, ValueId x, Ints kernel) {
  const Shape& shape = c.b.shape(x);
  size_t n = kernel.size();
  if (shape.size() != n + 2)
    c.refuse(ErrorCode::bad_shape,
             cat("has windows ", kernel, " over ", n, " dimensions of input ", c.b.type(x).str()));
  auto list = [&](std::string_view name) {
    Ints v = c.get_ints(name);
    if (v.empty()) v.assign(n, 1);
    if (v.size() != n)
      c.refuse(ErrorCode::bad_shape, cat(name, " ", v, " has not one entry for each of ", n, " dimensions"));
    for (int64_t e : v)
      if (e < 1) c.refuse(ErrorCode::bad_shape, cat(name, " ", v, " has an entry below 1"));
    return v;
  };
  Windows w{std::move(kernel), list("strides"), list("dilations"), Shape(n, Dim(0)), Shape(n, Dim(0))};
  for (int64_t k : w.kernel)
    if (k < 1) c.refuse(ErrorCode::bad_shape, cat("kernel ", w.kernel, " has an entry below 1"));
  std::string mode = c.get_text("auto_pad", "NOTSET");
  if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    for (size_t i = 0; i < n; ++i) {
      PadPair p = same_pads(shape[i + 2], w.kernel[i], w.strides[i], w.dilations[i], mode == "SAME_UPPER",
                            c.ranges());
      w.low[i] = p.low;
      w.high[i] = p.high;
    }
  } else if (mode == "NOTSET") {
    Ints pads = c.get_ints("pads");
    if (!pads.empty() && pads.size() != 2 * n)
      c.refuse(ErrorCode::bad_shape,
               cat("pads ", pads, " have not two entries for each of ", n, " dimensions"));
    for (size_t i = 0; i < n && !pads.empty(); ++i) {
      w.low[i] = pads[i];
      w.high[i] = pads[n + i];
    }
  } else if (mode != "VALID") {
    c.refuse(ErrorCode::bad_format, cat("auto_pad \"", mode, "\" is not known"));
  }
  return w;
}

ValueId channels_first(NodeContext& c, ValueId x) {
  Ints order{0, c.b.rank(x) - 1};
  for (int64_t i = 1; i + 1 < c.b.rank(x); ++i) order.push_back(i);
  return c.b.transpose(x, order);
}
ValueId channels_last(NodeContext& c, ValueId x) {
  Ints order{0};
  for (int64_t i = 2; i < c.b.rank(x); ++i) order.push_back(i);
  order.push_back(1);
  return c.b.transpose(x, order);
}

}  // namespace pelton::onnx
