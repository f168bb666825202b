// SPDX-License-Identifier: Apache-2.0
#include "compiler/tactics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/cat.h"
#include "base/error.h"
#include "base/file.h"
#include "runtime/version.h"

namespace pelton::compiler {
namespace {

constexpr std::string_view kFirstLine = "pelton tactics 1";
constexpr double kLeastGain = 0.03;

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> out;
  for (size_t at = 0;;) {
    const size_t end = std::min(text.find(by, at), text.size());
    out.push_back(text.substr(at, end - at));
    if (end == text.size()) return out;
    at = end + 1;
  }
}

bool number(std::string_view text, double& value) {
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  return r.ec == std::errc() && r.ptr == text.data() + text.size() && value >= 0;
}

}  // namespace

Tactic decide(std::vector<Candidate> candidates) {
  Tactic t;
  if (candidates.empty()) return t;
  // As the file keeps them, so that a choice does not depend on where its figures come from.
  for (Candidate& c : candidates) {
    c.ms = std::round(c.ms * 1e5) / 1e5;
    c.noise = std::round(c.noise * 1e3) / 1e3;
  }
  const Candidate* best = &candidates[0];
  const Candidate& first = candidates[0];
  for (const Candidate& c : candidates) {
    const double noise_ms = first.noise * first.ms + c.noise * c.ms;
    if (c.ms < best->ms && first.ms - c.ms > std::max(kLeastGain * first.ms, noise_ms)) best = &c;
  }
  t.choice = best->name;
  t.candidates = std::move(candidates);
  return t;
}

std::string machine_name(const device::Target& target) {
  std::string product = target.product;
  for (char& c : product)
    if (c == '\t' || c == '\n') c = ' ';
  return cat(target.name, ", ", product, ", threads ", target.threads, ", pelton ", version());
}

Tactics Tactics::load(const std::string& path) {
  if (!file_exists(path)) return {};
  return parse(read_file(path, uint64_t{64} << 20), path);
}

void Tactics::save(const std::string& path) const {
  write_file(path, str());
}

// machine, key, choice, then name=ms~noise of each candidate, tabs between.
Tactics Tactics::parse(const std::string& text, const std::string& where) {
  Tactics out;
  size_t line_number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++line_number;
    auto refuse = [&](std::string_view why) {
      fail(ErrorCode::bad_format, cat("line ", line_number, " ", why), where,
           "delete the file; it is made anew");
    };
    if (line_number == 1) {
      if (line != kFirstLine) refuse(cat("should read '", kFirstLine, "'"));
      continue;
    }
    if (line.empty() || line[0] == '#') continue;
    const auto fields = split(line, '\t');
    if (fields.size() < 4) refuse("has fewer than four fields");
    Tactic t;
    t.choice = fields[2];
    bool known = false;
    for (size_t i = 3; i < fields.size(); ++i) {
      const size_t equals = fields[i].rfind('='), wave = fields[i].rfind('~');
      Candidate c;
      if (equals == std::string_view::npos || wave == std::string_view::npos || wave < equals ||
          !number(fields[i].substr(equals + 1, wave - equals - 1), c.ms) ||
          !number(fields[i].substr(wave + 1), c.noise))
        refuse(cat("has a candidate '", fields[i], "' that is not name=ms~noise"));
      c.name = fields[i].substr(0, equals);
      known |= c.name == t.choice;
      t.candidates.push_back(std::move(c));
    }
    if (!known) refuse(cat("chooses '", t.choice, "', which it does not list"));
    out.entries_[{std::string(fields[0]), std::string(fields[1])}] = std::move(t);
  }
  return out;
}

std::string Tactics::str() const {
  std::string out = cat(kFirstLine, "\n# machine, what was timed, choice, candidates as name=ms~noise\n");
  for (const auto& [key, t] : entries_) {
    append(out, cat(key.first, "\t", key.second, "\t", t.choice));
    for (const Candidate& c : t.candidates) {
      char figures[64];
      std::snprintf(figures, sizeof figures, "=%.5f~%.3f", c.ms, c.noise);
      append(out, cat("\t", c.name, figures));
    }
    out += '\n';
  }
  return out;
}

const Tactic* Tactics::find(const std::string& machine, const std::string& key) const {
  const auto it = entries_.find({machine, key});
  return it == entries_.end() ? nullptr : &it->second;
}

void Tactics::merge(const Tactics& newer) {
  for (const auto& [key, tactic] : newer.entries_) entries_[key] = tactic;
  changed_ = true;
}

void Tactics::set(const std::string& machine, const std::string& key, Tactic tactic) {
  entries_[{machine, key}] = std::move(tactic);
  changed_ = true;
}

}  // namespace pelton::compiler
