// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/table.h"

#include <algorithm>

#include "base/nearest.h"

namespace pelton::onnx {

void ImportTable::add(std::string_view domain, std::string_view op, ImportFn fn) {
  PELTON_CHECK(rows_.emplace(std::pair{domain, op}, fn).second, "two import functions for ", op);
}

ImportFn ImportTable::find(std::string_view domain, std::string_view op) const {
  auto it = rows_.find({domain, op});
  return it == rows_.end() ? nullptr : it->second;
}

std::string_view ImportTable::nearest(std::string_view domain, std::string_view op) const {
  std::string_view best;
  size_t distance = op.size() / 2 + 1;
  for (const auto& [key, fn] : rows_)
    if (size_t d = key.first == domain ? edit_distance(op.substr(0, 64), key.second) : SIZE_MAX;
        d < distance) {
      distance = d;
      best = key.second;
    }
  return best;
}

std::vector<std::pair<std::string_view, std::string_view>> ImportTable::all() const {
  std::vector<std::pair<std::string_view, std::string_view>> out;
  for (const auto& [key, fn] : rows_) out.push_back(key);
  return out;
}

const ImportTable& import_table() {
  static const ImportTable table = [] {
    ImportTable t;
    add_pointwise(t);
    add_activation(t);
    add_reduce(t);
    add_shape(t);
    add_slice_pad(t);
    add_conv(t);
    add_pool(t);
    add_matmul(t);
    add_norm(t);
    add_index(t);
    add_rnn(t);
    add_control(t);
    add_quantize(t);
    add_resize(t);
    add_random(t);
    add_sequence(t);
    add_signal(t);
    add_loss(t);
    add_training(t);
    add_attention(t);
    add_ms_transformer(t);
    add_ms_attention(t);
    add_ms_quantize(t);
    add_ml_dense(t);
    add_ml_trees(t);
    add_text(t);
    return t;
  }();
  return table;
}

}  // namespace pelton::onnx
