// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "serve/core/model.h"
#include "tensor/tensor.h"

namespace pelton::serve {

TensorValue classify(const TensorValue& scores, int64_t classes, bool batched,
                     const std::vector<std::string>& labels) {
  if (scores.dtype == DType::string || wire_name(scores.dtype).empty())
    fail(ErrorCode::bad_type,
         cat("output '", scores.name, "' of type ", wire_name(scores.dtype), " cannot be classified"));
  const Tensor values = Tensor::borrow(scores.dtype, scores.dims, scores.data.data, scores.data.owner);
  const int64_t rows = batched && !scores.dims.empty() ? scores.dims[0] : 1;
  const int64_t width = rows ? values.count() / rows : 0;
  const int64_t top = std::min(classes, width);
  std::string out;
  std::vector<double> row(static_cast<size_t>(width));
  std::vector<size_t> order(row.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) row[static_cast<size_t>(i)] = values.get_double(r * width + i);
    std::iota(order.begin(), order.end(), size_t{0});
    // Ties go to the lower index; a NaN sorts behind every number.
    std::partial_sort(order.begin(), order.begin() + top, order.end(), [&](size_t a, size_t b) {
      const bool nan_a = row[a] != row[a], nan_b = row[b] != row[b];
      if (nan_a != nan_b) return nan_b;
      if (!nan_a && row[a] != row[b]) return row[a] > row[b];
      return a < b;
    });
    for (int64_t k = 0; k < top; ++k) {
      const size_t index = order[static_cast<size_t>(k)];
      char score[64];
      std::snprintf(score, sizeof score, is_float(scores.dtype) ? "%f" : "%.0f", row[index]);
      append_bytes_element(
          out, index < labels.size() ? cat(score, ":", index, ":", labels[index]) : cat(score, ":", index));
    }
  }
  TensorValue t{scores.name, DType::string, batched ? Dims{rows, top} : Dims{top},
                Blob::from(std::move(out))};
  return t;
}

}  // namespace pelton::serve
