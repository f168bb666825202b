// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/toml.h"
#include "data/schema.h"
#include "data/spec.h"

namespace pelton::data {
namespace {

class Parser {
 public:
  Parser(std::string name, std::string folder) : name_(std::move(name)), folder_(std::move(folder)) {}

  PipelineSpec pipeline(const toml::table& t) {
    check_keys(t, {"version", "seed", "match", "source", "stage", "bad_samples", "bad_limit", "bucket"},
               "a pipeline");
    PipelineSpec p;
    p.name = name_;
    p.folder = folder_;
    const auto version = t["version"].value<int64_t>();
    if (!version) fail(ErrorCode::bad_format, "the file has no version", name_, "start it with: version = 1");
    if (*version != 1)
      fail(ErrorCode::unsupported_version, cat("pipeline version ", *version, " is not known"), name_,
           "this release reads version 1");
    if (auto* n = t.get("seed")) p.seed = static_cast<uint64_t>(whole_number(*n, "seed"));
    p.match = choice(t, "match", "none", {"none", "pillow", "torchvision", "opencv"});
    p.bad_samples = choice(t, "bad_samples", "replace", {"skip", "replace", "raise", "mark"});
    if (auto* n = t.get("bad_limit")) {
      auto v = n->value<double>();
      if (!v || !(*v >= 0 && *v <= 1))
        fail(ErrorCode::usage, "'bad_limit' is not a fraction in 0 .. 1", place(*n));
      p.bad_limit = *v;
    }
    if (auto* n = t.get("bucket")) p.bucket = whole_number(*n, "bucket");
    const auto* source = t["source"].as_table();
    if (!source)
      fail(ErrorCode::usage, "the pipeline has no source", name_,
           "add: source = { kind = \"folder\", path = \"images\" }");
    p.source = source_spec(*source);
    if (auto* n = t.get("stage")) {
      const auto* list = n->as_array();
      if (!list)
        fail(ErrorCode::usage, "'stage' is not a list of tables", place(*n), "write each as [[stage]]");
      for (const auto& s : *list) {
        const auto* table = s.as_table();
        if (!table) fail(ErrorCode::usage, "a stage is not a table", place(s), "write each as [[stage]]");
        p.stages.push_back(stage_spec(*table));
      }
    }
    return p;
  }

 private:
  std::string place(const toml::node& n) const { return cat(name_, " line ", n.source().begin.line); }

  int64_t whole_number(const toml::node& n, const char* key) const {
    const auto v = n.value_exact<int64_t>();
    if (!v || *v < 0)
      fail(ErrorCode::usage, cat("'", key, "' is not a whole number of at least 0"), place(n));
    return *v;
  }

  void check_keys(const toml::table& t, const std::vector<std::string>& known, std::string_view what) const {
    for (const auto& [key, value] : t) {
      if (std::ranges::find(known, key.str()) != known.end()) continue;
      std::string near = nearest(key.str(), known);
      fail(ErrorCode::usage, cat(what, " has no key '", key.str(), "'"), place(value),
           near.empty() ? "see --schema" : cat("did you mean '", near, "'?"));
    }
  }

  std::string choice(const toml::table& t, const char* key, std::string fallback,
                     const std::vector<std::string>& values) const {
    const auto* n = t.get(key);
    if (!n) return fallback;
    const std::string v = n->value_or(std::string());
    if (std::ranges::find(values, v) != values.end()) return v;
    std::string all, near = nearest(v, values);
    for (const auto& c : values) append(all, cat(all.empty() ? "" : ", ", c));
    fail(ErrorCode::usage, cat("'", key, "' = \"", v, "\" is not one of: ", all), place(*n),
         near.empty() ? "" : cat("did you mean \"", near, "\"?"));
  }

  SourceSpec source_spec(const toml::table& t) const {
    SourceSpec s;
    for (const auto& [key, value] : t) {
      if (key == "kind") {
        s.kind = value.value_or(std::string());
      } else if (key == "shuffle") {
        auto v = value.value_exact<bool>();
        if (!v) fail(ErrorCode::usage, "'shuffle' is not true or false", place(value));
        s.shuffle = *v;
      } else if (key == "shuffle_window") {
        s.shuffle_window = whole_number(value, "shuffle_window");
      } else if (key == "sources") {
        const auto* list = value.as_array();
        if (!list) fail(ErrorCode::usage, "'sources' is not a list of tables", place(value));
        for (const auto& part : *list) {
          if (!part.as_table()) fail(ErrorCode::usage, "a source is not a table", place(part));
          s.parts.push_back(source_spec(*part.as_table()));
          if (s.parts.back().shuffle)
            fail(ErrorCode::usage, "'shuffle' belongs to the outermost source", place(part));
        }
      } else {
        s.options[std::string(key.str())] = param(value, key.str());
      }
    }
    if (s.kind.empty()) fail(ErrorCode::usage, "the source has no kind", place(t), "add: kind = \"folder\"");
    return s;
  }

  StageSpec stage_spec(const toml::table& t) const {
    StageSpec s;
    s.where = place(t);
    for (const auto& [key, value] : t) {
      if (key == "op")
        s.op = value.value_or(std::string());
      else
        s.options[std::string(key.str())] = param(value, key.str());
    }
    if (s.op.empty()) fail(ErrorCode::usage, "the stage has no op", s.where, "add: op = \"decode\"");
    return s;
  }

  Param param(const toml::node& n, std::string_view key) const {
    if (auto v = n.value_exact<bool>()) return *v;
    if (auto v = n.value_exact<std::string>()) return *v;
    if (n.is_number()) return *n.value<double>();
    if (const auto* list = n.as_array()) return param_list(*list, n, key);
    if (const auto* table = n.as_table()) return distribution(*table, n, key);
    fail(ErrorCode::usage, cat("'", key, "' has a value of a kind that no option takes"), place(n));
  }

  Param param_list(const toml::array& list, const toml::node& n, std::string_view key) const {
    std::vector<double> numbers;
    std::vector<std::string> texts;
    for (const auto& v : list) {
      if (v.is_number())
        numbers.push_back(*v.value<double>());
      else if (v.is_string())
        texts.push_back(*v.value<std::string>());
      else
        fail(ErrorCode::usage, cat("'", key, "' holds something that is neither number nor text"), place(n));
    }
    if (!numbers.empty() && !texts.empty())
      fail(ErrorCode::usage, cat("'", key, "' mixes numbers and texts"), place(n));
    if (!texts.empty()) return texts;
    return numbers;
  }

  Param distribution(const toml::table& t, const toml::node& n, std::string_view key) const {
    const std::vector<std::string> names = {"uniform", "normal", "choice", "coin"};
    if (t.size() != 1)
      fail(ErrorCode::usage, cat("'", key, "' is a table, but no distribution"), place(n),
           "write for example { uniform = [-10, 10] }");
    const std::string name(t.begin()->first.str());
    if (std::ranges::find(names, name) == names.end()) {
      std::string near = nearest(name, names);
      fail(ErrorCode::usage, cat("'", key, "': there is no distribution '", name, "'"), place(n),
           near.empty() ? "uniform, normal, choice or coin" : cat("did you mean '", near, "'?"));
    }
    Param p = param(t.begin()->second, key);
    const size_t wanted = name == "coin" ? 1 : 2;
    if (p.is_random() || p.kind == Param::Kind::boolean || p.kind == Param::Kind::text || !p.texts.empty() ||
        (name != "choice" && p.numbers.size() != wanted) || p.numbers.empty())
      fail(ErrorCode::usage,
           cat("'", key, "': ", name, " takes ",
               name == "coin"     ? "one probability"
               : name == "choice" ? "a list of numbers"
                                  : "two numbers"),
           place(n));
    p.kind = name == "uniform"  ? Param::Kind::uniform
             : name == "normal" ? Param::Kind::normal
             : name == "choice" ? Param::Kind::choice
                                : Param::Kind::coin;
    return p;
  }

  std::string name_, folder_;
};

}  // namespace

PipelineSpec parse_pipeline(const std::string& text, const std::string& name, const std::string& folder) {
  return Parser(name, folder).pipeline(parse_toml(text, name));
}

PipelineSpec load_pipeline(const std::string& path) {
  const std::filesystem::path p(path);
  return parse_pipeline(read_file(path, 1 << 20), p.filename().string(), p.parent_path().string());
}

}  // namespace pelton::data
