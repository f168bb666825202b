// SPDX-License-Identifier: Apache-2.0
// What was timed on which machine, and what was chosen: a text file (docs/formats.md, "Tactics"). Given the
// same file, a compilation makes the same choices.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device/target.h"

namespace pelton::compiler {

struct Candidate {
  std::string name;
  double ms = 0;     // median of the runs
  double noise = 0;  // half the distance between the quartiles, over the median
};

struct Tactic {
  std::string choice;
  std::vector<Candidate> candidates;  // in order of preference
};

// The first candidate unless another gains more than 3% and more than the noise of both together.
Tactic decide(std::vector<Candidate> candidates);

// Target, processor, threads and version: timings hold for one of these.
std::string machine_name(const device::Target& target);

class Tactics {
 public:
  // The entries of a file; a missing one is empty, a damaged one bad_format naming the line.
  static Tactics load(const std::string& path);
  void save(const std::string& path) const;
  static Tactics parse(const std::string& text, const std::string& where);
  std::string str() const;  // sorted, so equal contents give equal files

  const Tactic* find(const std::string& machine, const std::string& key) const;
  void set(const std::string& machine, const std::string& key, Tactic tactic);
  void merge(const Tactics& newer);
  bool changed() const { return changed_; }

 private:
  std::map<std::pair<std::string, std::string>, Tactic> entries_;
  bool changed_ = false;
};

}  // namespace pelton::compiler
