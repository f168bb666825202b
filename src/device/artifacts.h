// SPDX-License-Identifier: Apache-2.0
// What a back end made while it prepared a plan's kernels and need not make again: compiled kernels, and
// choices found by timing. Plans carry them (docs/formats.md). A key says everything that an entry depends on
// (text, architecture, versions of compiler and library), so an entry of another machine or version is never
// found.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace pelton::device {

// Any thread.
class Artifacts {
 public:
  // Kind and key; entries are in their order, so equal content gives equal files.
  using Entries = std::map<std::pair<std::string, std::string>, std::string>;
  Artifacts() = default;
  explicit Artifacts(Entries entries) : entries_(std::move(entries)) {}
  std::optional<std::string> find(const std::string& kind, const std::string& key) const;
  void add(const std::string& kind, const std::string& key, const std::string& content);
  Entries entries() const;

 private:
  mutable std::mutex mutex_;
  Entries entries_;
};

// Of the plan whose kernels this thread prepares; null: nobody keeps them.
Artifacts* current_artifacts();
// Whether that plan lets kernels choose among ways to compute the same by timing them. A plan that must give
// the same bits in every process does not: ways round differently, and which is faster is chance.
bool may_choose_by_timing();

class ArtifactScope {
 public:
  explicit ArtifactScope(Artifacts* artifacts, bool by_timing = true);
  ~ArtifactScope();
  ArtifactScope(const ArtifactScope&) = delete;
  ArtifactScope& operator=(const ArtifactScope&) = delete;

 private:
  Artifacts* before_;
  bool by_timing_before_;
};

}  // namespace pelton::device
