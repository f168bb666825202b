// SPDX-License-Identifier: Apache-2.0
#include "serve/core/response_cache.h"

#include <set>
#include <span>

#include "base/hash.h"

namespace pelton::serve {

std::string ResponseCache::key(const Request& r, uint64_t load) {
  Sha256 hash;
  auto number = [&](uint64_t v) { hash.update(std::as_bytes(std::span(&v, 1))); };
  auto text = [&](std::string_view s) {
    number(s.size());
    hash.update(s);
  };
  number(load);
  text(r.model);
  text(r.version);
  std::map<std::string_view, const TensorValue*> sorted;  // the order of the inputs does not matter
  for (const TensorValue& t : r.inputs) sorted[t.name] = &t;
  for (const auto& [name, t] : sorted) {
    text(name);
    number(static_cast<uint64_t>(t->dtype));
    number(t->dims.size());
    for (int64_t d : t->dims) number(static_cast<uint64_t>(d));
    text({t->data.data, t->data.size});
  }
  number(r.parameters.size());
  for (const auto& [name, value] : r.parameters) {  // an engine may read them
    text(name);
    number(value.index());
    std::visit(
        [&](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>)
            text(v);
          else if constexpr (std::is_same_v<std::decay_t<decltype(v)>, double>)
            text(cat(v));
          else
            number(static_cast<uint64_t>(v));
        },
        value);
  }
  std::set<std::string_view> wanted;  // an engine may return these only
  for (const RequestedOutput& o : r.outputs) wanted.insert(o.name);
  number(wanted.size());
  for (const std::string_view name : wanted) text(name);
  const Digest digest = hash.finish();
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

std::optional<std::vector<TensorValue>> ResponseCache::find(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return std::nullopt;
  order_.splice(order_.begin(), order_, it->second);
  return it->second->outputs;
}

void ResponseCache::insert(const std::string& key, const std::vector<TensorValue>& outputs) {
  Entry e{key, {}, 256};
  for (const TensorValue& t : outputs) {
    e.bytes += t.data.size + t.name.size() + 128;
    if (e.bytes > limit_) return;
    TensorValue copy = t;  // the engine's buffer may be one of its own
    copy.data = Blob::from(std::string(t.data.data, t.data.size));
    e.outputs.push_back(std::move(copy));
  }
  std::lock_guard lock(mutex_);
  if (entries_.contains(key)) return;
  while (!order_.empty() && used_ + e.bytes > limit_) {
    used_ -= order_.back().bytes;
    entries_.erase(order_.back().key);
    order_.pop_back();
  }
  used_ += e.bytes;
  order_.push_front(std::move(e));
  entries_[key] = order_.begin();
}

}  // namespace pelton::serve
