// SPDX-License-Identifier: Apache-2.0
// What is there and in which state.
#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "serve/core/repository.h"

namespace pelton::serve {

std::string_view to_string(ModelState s) {
  static constexpr std::string_view kNames[] = {"UNAVAILABLE", "LOADING", "READY", "UNLOADING"};
  return kNames[static_cast<size_t>(s)];
}

std::shared_ptr<const Model> Repository::find(std::string_view name, std::string_view version) const {
  std::shared_lock lock(mutex_);
  auto it = entries_.find(name);
  if (it == entries_.end())
    fail(ErrorCode::not_found, cat("request for unknown model: '", name, "' is not found"));
  const Entry& e = *it->second;
  const auto& versions = e.versions;
  const bool coming = e.under_way || (e.wanted && versions.empty());
  if (version.empty()) {
    for (auto v = versions.rbegin(); v != versions.rend(); ++v)
      if (v->second.model) return v->second.model;
    if (coming) fail(ErrorCode::busy, cat("model '", name, "' is not ready: it is being loaded"));
    fail(ErrorCode::not_found, cat("request for unknown model: '", name, "' has no available versions",
                                   e.failure ? cat(": ", e.failure->what()) : ""));
  }
  int64_t wanted = 0;
  auto r = std::from_chars(version.data(), version.data() + version.size(), wanted);
  if (r.ec != std::errc() || r.ptr != version.data() + version.size())
    fail(ErrorCode::bad_name, cat("version '", version, "' of model '", name, "' is not a number"));
  auto v = versions.find(wanted);
  const bool known = v != versions.end();
  if (known && v->second.model) return v->second.model;
  if (coming && (known || versions.empty()))
    fail(ErrorCode::busy, cat("model '", name, "' version ", wanted, " is not ready: it is being loaded"));
  fail(ErrorCode::not_found,
       cat("request for unknown model: '", name, "' version ", wanted, " is not ",
           known ? "available" : "found", known && !v->second.reason.empty() ? ": " : "",
           known ? std::string_view(v->second.reason) : std::string_view()));
}

bool Repository::ready(std::string_view name, std::string_view version) const {
  try {
    return find(name, version) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> Repository::served_versions(std::string_view name) const {
  std::shared_lock lock(mutex_);
  std::vector<std::string> out;
  if (auto it = entries_.find(name); it != entries_.end())
    for (const auto& [v, info] : it->second->versions)
      if (info.model) out.push_back(cat(v));
  return out;
}

std::vector<std::string> Repository::names() const {
  std::shared_lock lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [name, e] : entries_) out.push_back(name);
  return out;
}

std::vector<IndexEntry> Repository::index(bool ready_only) const {
  std::vector<IndexEntry> out;
  std::set<std::string> on_disk;
  if (!ready_only)
    for (const auto& [name, path] : scan()) on_disk.insert(name);
  std::shared_lock lock(mutex_);
  for (const auto& [name, e] : entries_) {
    on_disk.erase(name);
    if (!ready_only && e->versions.empty()) out.push_back({name, "", std::nullopt, ""});
    for (const auto& [v, info] : e->versions)
      if (!ready_only || info.state == ModelState::ready)
        out.push_back({name, cat(v), info.state, info.reason});
  }
  for (const std::string& name : on_disk) out.push_back({name, "", std::nullopt, ""});
  std::sort(out.begin(), out.end(), [](const IndexEntry& a, const IndexEntry& b) { return a.name < b.name; });
  return out;
}

bool Repository::all_ready() const {
  std::shared_lock lock(mutex_);
  for (const auto& [name, e] : entries_) {
    if (!e->wanted) continue;
    if (e->failure) return false;
    if (std::none_of(e->versions.begin(), e->versions.end(),
                     [](const auto& v) { return v.second.model != nullptr; }))
      return false;
  }
  return true;
}

}  // namespace pelton::serve
