// SPDX-License-Identifier: Apache-2.0
#include "device/artifacts.h"

namespace pelton::device {
namespace {

thread_local Artifacts* current = nullptr;
thread_local bool timing_allowed = true;

}  // namespace

std::optional<std::string> Artifacts::find(const std::string& kind, const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find({kind, key});
  if (it == entries_.end()) return std::nullopt;
  return it->second;
}

void Artifacts::add(const std::string& kind, const std::string& key, const std::string& content) {
  std::lock_guard lock(mutex_);
  entries_.insert_or_assign({kind, key}, content);
}

Artifacts::Entries Artifacts::entries() const {
  std::lock_guard lock(mutex_);
  return entries_;
}

Artifacts* current_artifacts() {
  return current;
}

bool may_choose_by_timing() {
  return timing_allowed;
}

ArtifactScope::ArtifactScope(Artifacts* artifacts, bool by_timing)
    : before_(std::exchange(current, artifacts)),
      by_timing_before_(std::exchange(timing_allowed, by_timing)) {}
ArtifactScope::~ArtifactScope() {
  current = before_;
  timing_allowed = by_timing_before_;
}

}  // namespace pelton::device
