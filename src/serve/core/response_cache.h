// SPDX-License-Identifier: Apache-2.0
// Outputs of earlier requests, by a SHA-256 of the model, the inputs and what is asked for; the least
// recently used go first.
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "serve/core/request.h"

namespace pelton::serve {

class ResponseCache {
 public:
  explicit ResponseCache(size_t bytes) : limit_(bytes) {}

  // `load` tells apart the loads of one model version, whose contents may differ.
  static std::string key(const Request& request, uint64_t load);
  std::optional<std::vector<TensorValue>> find(const std::string& key);
  void insert(const std::string& key, const std::vector<TensorValue>& outputs);  // copies the data

 private:
  struct Entry {
    std::string key;
    std::vector<TensorValue> outputs;
    size_t bytes = 0;
  };
  const size_t limit_;
  std::mutex mutex_;
  size_t used_ = 0;
  std::list<Entry> order_;  // newest first
  std::unordered_map<std::string, std::list<Entry>::iterator> entries_;
};

}  // namespace pelton::serve
