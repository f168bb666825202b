// SPDX-License-Identifier: Apache-2.0
// safetensors files: an u64 size, a JSON header of that size, then the tensors' bytes without gaps.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace pelton {

struct Safetensors {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

inline constexpr uint64_t kSafetensorsHeaderLimitBytes = 100 << 20;

// Every size is checked against the file before it is used; tensors must cover the data exactly. With `owner`
// the tensors borrow from `bytes`, else they are copies.
Safetensors parse_safetensors(std::string_view bytes, std::shared_ptr<const void> owner = {});
// Maps the file; the tensors keep it mapped.
Safetensors load_safetensors(const std::string& path);

// Tensors in order of name; string tensors and types without a safetensors name are refused (bad_type).
void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace pelton
