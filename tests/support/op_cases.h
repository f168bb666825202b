// SPDX-License-Identifier: Apache-2.0
// The stored cases of the ops (format in tests/ops/README.md).
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "ir/eval.h"
#include "ir/text.h"

namespace pelton::test {

using ir::Graph;
using ir::HostValue;

// `code` is set for a refusal, whose message has `words`.
struct Case {
  std::string name, code, graph;
  std::vector<std::string> words;
  std::vector<HostValue> inputs;
  std::vector<Tensor> outputs;
  double rtol = -1, atol = 0, decomposed = 2e-5;  // rtol -1: by element type
};

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    size_t end = std::min(text.find(separator), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

inline std::string trimmed(const std::string& s) {
  size_t first = s.find_first_not_of(' ');
  return first == s.npos ? "" : s.substr(first, s.find_last_not_of(' ') + 1 - first);
}

inline Tensor read_tensor(const std::string& text) {
  size_t open = text.find('<'), close = text.find(">{");
  REQUIRE(close != text.npos);
  std::string type = text.substr(open + 1, close - open - 1);
  Graph g = ir::parse_graph(
      cat("graph \"v\"() {\n%0 = constant() {value = ", text, "} : ", type, "\nreturn %0\n}"));
  return *g.constant(g.outputs[0]);
}

inline void read_head(Case& c, const std::string& line) {
  std::vector<std::string> words = split(line, ' ');
  c.name = words.at(1);
  if (words[0] == "refuse") {
    c.code = words.at(2);
    size_t rest = line.find(c.code) + c.code.size();
    for (const std::string& w : split(std::string_view(line).substr(rest), '|'))
      c.words.push_back(trimmed(w));
    return;
  }
  for (size_t i = 2; i < words.size(); ++i) {
    size_t equals = words[i].find('=');
    std::string key = words[i].substr(0, equals);
    double value = std::strtod(words[i].c_str() + equals + 1, nullptr);
    REQUIRE((key == "rtol" || key == "atol" || key == "decomposed"));
    (key == "rtol" ? c.rtol : key == "atol" ? c.atol : c.decomposed) = value;
  }
}

inline std::vector<Case> read_cases(const std::string& path) {
  std::vector<Case> cases;
  for (const std::string& line : split(read_file(path), '\n')) {
    if (line.starts_with("//")) continue;
    if (line.starts_with("case ") || line.starts_with("refuse "))
      read_head(cases.emplace_back(), line);
    else if (line.starts_with("in "))
      cases.back().inputs.emplace_back(read_tensor(line.substr(3)));
    else if (line.starts_with("out "))
      cases.back().outputs.push_back(read_tensor(line.substr(4)));
    else if (!line.empty())
      append(cases.back().graph, cat(line, "\n"));
  }
  return cases;
}

inline std::vector<std::string> case_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/ops/cases"))
    if (entry.path().extension() == ".txt") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace pelton::test
