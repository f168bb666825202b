// SPDX-License-Identifier: Apache-2.0
// Which function imports which ONNX op. A function serves every version of its op and asks for c.opset where
// versions differ.
#pragma once

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/import/node_context.h"

namespace pelton::onnx {

using ImportFn = void (*)(NodeContext&);

class ImportTable {
 public:
  void add(std::string_view domain, std::string_view op, ImportFn fn);
  void add(std::string_view op, ImportFn fn) { add("", op, fn); }
  ImportFn find(std::string_view domain, std::string_view op) const;
  // The op of the domain whose name is nearest, for messages.
  std::string_view nearest(std::string_view domain, std::string_view op) const;
  std::vector<std::pair<std::string_view, std::string_view>> all() const;  // domain, op

 private:
  std::map<std::pair<std::string_view, std::string_view>, ImportFn> rows_;
};

const ImportTable& import_table();

inline constexpr std::string_view kMsDomain = "com.microsoft", kMlDomain = "ai.onnx.ml";

// One a file of this folder.
void add_pointwise(ImportTable& table);
void add_activation(ImportTable& table);
void add_reduce(ImportTable& table);
void add_shape(ImportTable& table);
void add_slice_pad(ImportTable& table);
void add_conv(ImportTable& table);
void add_pool(ImportTable& table);
void add_matmul(ImportTable& table);
void add_norm(ImportTable& table);
void add_index(ImportTable& table);
void add_rnn(ImportTable& table);
void add_control(ImportTable& table);
void add_quantize(ImportTable& table);
void add_resize(ImportTable& table);
void add_random(ImportTable& table);
void add_sequence(ImportTable& table);
void add_signal(ImportTable& table);
void add_loss(ImportTable& table);
void add_training(ImportTable& table);
void add_attention(ImportTable& table);
void add_ms_transformer(ImportTable& table);
void add_ms_attention(ImportTable& table);
void add_ms_quantize(ImportTable& table);
void add_ml_dense(ImportTable& table);
void add_ml_trees(ImportTable& table);
void add_text(ImportTable& table);

}  // namespace pelton::onnx
