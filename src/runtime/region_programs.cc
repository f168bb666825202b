// SPDX-License-Identifier: Apache-2.0
// The programs of a region: which are kept for which sizes, and what they take.
#include <algorithm>
#include <set>

#include "runtime/region.h"

namespace pelton::runtime {

std::shared_ptr<const Program> Region::program(size_t segment, const SymbolValues& symbols) const {
  Key key;
  key.reserve(segments_[segment].symbols.size());
  for (const std::string& s : segments_[segment].symbols) {
    auto it = symbols.find(s);
    if (it == symbols.end())
      fail(ErrorCode::bad_shape, cat("the size of symbol '", s, "' is not known"),
           cat("graph '", graph_.name, "'"));
    key.push_back(it->second);
  }
  std::list<Cached>& kept = programs_[segment];
  {
    std::lock_guard lock(mutex_);
    for (auto it = kept.begin(); it != kept.end(); ++it)
      if (it->key == key) {
        kept.splice(kept.begin(), kept, it);
        return it->program;
      }
  }
  // Two threads may build the same program at once; the first to finish is kept.
  std::shared_ptr<const Program> built = build(segment, symbols);
  std::lock_guard lock(mutex_);
  for (const Cached& c : kept)
    if (c.key == key) return c.program;
  kept.push_front({std::move(key), built});
  while (kept.size() > static_cast<size_t>(std::max(1, options_.max_programs))) kept.pop_back();
  return built;
}

void Region::plain_reads(std::set<const void*>& into) const {
  std::vector<std::shared_ptr<const Program>> programs;
  {
    std::lock_guard lock(mutex_);
    for (const std::list<Cached>& kept : programs_)
      for (const Cached& c : kept) programs.push_back(c.program);
  }
  for (const auto& p : programs)
    for (const Step& step : p->steps)
      for (uint32_t i = 0; i < step.in_count; ++i)
        if (const Ref& ref = p->refs[step.first_in + i];
            ref.place == Place::constant && (!step.kernel || step.kernel->reads(i)))
          into.insert(constants_[ref.index].data());
  for (const auto& [graph, body] : bodies_)
    for (const Tensor& t : body->constants_) into.insert(t.data());
}

void Region::prepare_as(const Region& other) const {
  std::vector<std::pair<size_t, SymbolValues>> wanted;
  {
    std::lock_guard lock(other.mutex_);
    for (size_t s = 0; s < other.programs_.size(); ++s)
      for (auto c = other.programs_[s].rbegin(); c != other.programs_[s].rend(); ++c) {
        SymbolValues sizes;
        for (size_t i = 0; i < c->key.size(); ++i) sizes[other.segments_[s].symbols[i]] = c->key[i];
        wanted.emplace_back(s, std::move(sizes));
      }
  }
  for (const auto& [segment, sizes] : wanted) program(segment, sizes);
}

void Region::forget_programs() const {
  {
    std::lock_guard lock(mutex_);
    for (std::list<Cached>& kept : programs_) kept.clear();
  }
  for (const auto& [graph, body] : bodies_) body->forget_programs();
}

int64_t Region::packed_bytes() const {
  std::set<const backend::Kernel*> kernels;  // programs share them
  int64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    for (const auto& kept : programs_)
      for (const Cached& c : kept)
        for (const auto& k : c.program->kernels)
          if (k) kernels.insert(k.get());
    for (const backend::Kernel* k : kernels) bytes += k->packed_bytes();
  }
  for (const auto& [graph, body] : bodies_) bytes += body->packed_bytes();
  return bytes;
}

int64_t Region::arena_bytes() const {
  int64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    for (const auto& kept : programs_)
      for (const Cached& c : kept) bytes = std::max(bytes, c.program->arena_bytes);
  }
  for (const auto& [graph, body] : bodies_) bytes += body->arena_bytes();
  return bytes;
}

int64_t Region::scratch_bytes() const {
  int64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    for (const auto& kept : programs_)
      for (const Cached& c : kept) bytes = std::max(bytes, c.program->scratch_bytes);
  }
  for (const auto& [graph, body] : bodies_) bytes = std::max(bytes, body->scratch_bytes());
  return bytes;
}

}  // namespace pelton::runtime
