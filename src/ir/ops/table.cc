// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <mutex>

#include "base/nearest.h"
#include "ir/ops/families.h"
#include "ir/ops/gradients.h"
#include "ir/ops/linalg.h"

namespace pelton::ir {
namespace {

struct Table {
  std::mutex mutex;
  OpRows rows;
  std::map<std::string_view, const OpDef*> by_name;

  Table() {
    add_pointwise(rows);
    add_cast(rows);
    add_shape(rows);
    add_layout(rows);
    add_reduce(rows);
    add_index(rows);
    add_select(rows);
    add_contract(rows);
    add_conv(rows);
    add_pool(rows);
    add_sort(rows);
    add_dynamic_shape(rows);
    add_einsum(rows);
    add_conv_taps(rows);
    add_region(rows);
    add_resample(rows);
    add_picture(rows);
    add_activation(rows);
    add_norm(rows);
    add_control(rows);
    add_quantize(rows);
    add_rnn(rows);
    add_linalg(rows);
    add_sequence(rows);
    add_random(rows);
    add_attention(rows);
    add_collective(rows);
    add_fft(rows);
    add_loss(rows);
    add_trees(rows);
    add_text(rows);
    add_norm_backward(rows);
    add_loss_backward(rows);
    add_attention_backward(rows);
    add_conv_backward(rows);
    add_pool_backward(rows);
    for (const OpDef& row : rows) index(row);
    fill_gradients(rows);
  }
  void index(const OpDef& row) {
    PELTON_CHECK(by_name.emplace(row.name, &row).second, "two rows named ", row.name);
    PELTON_CHECK(row.infer, "op ", row.name, " has no inference");
  }
};
Table& table() {
  static Table instance;
  return instance;
}

}  // namespace

std::string_view name(Family family) {
  static constexpr std::string_view names[] = {
      "pointwise", "reduction", "shape",     "indexing",   "contraction", "convolution",
      "pooling",   "sorting",   "random",    "collective", "quantize",    "control",
      "sequence",  "fft",       "composite", "text",       "custom"};
  return names[static_cast<size_t>(family)];
}

const AttrDef* OpDef::find_attr(std::string_view attr_name) const {
  for (const AttrDef& a : attrs)
    if (a.name == attr_name) return &a;
  return nullptr;
}

const OpDef* find_op(std::string_view op_name) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  auto it = t.by_name.find(op_name);
  return it == t.by_name.end() ? nullptr : it->second;
}

const OpDef& op(std::string_view op_name) {
  if (const OpDef* found = find_op(op_name)) return *found;
  const OpDef* nearest = nullptr;
  size_t best = SIZE_MAX;
  for (const OpDef* row : all_ops())
    if (size_t d = edit_distance(op_name.substr(0, 64), row->name); d < best) {
      best = d;
      nearest = row;
    }
  fail(ErrorCode::unsupported_op, cat("there is no op '", op_name, "'"), "",
       nearest ? cat("the nearest name is '", nearest->name, "'") : "");
}

std::vector<const OpDef*> all_ops() {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  std::vector<const OpDef*> out;
  for (const auto& [key, row] : t.by_name) out.push_back(row);
  return out;
}

void add_op(OpDef def) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  if (t.by_name.count(def.name)) fail(ErrorCode::bad_name, cat("op '", def.name, "' exists already"));
  t.rows.push_back(std::move(def));
  t.index(t.rows.back());
}

}  // namespace pelton::ir
