// SPDX-License-Identifier: Apache-2.0
// What a source or a stage accepts. One table row an option: the TOML reader, the C++ API, --schema and the
// documentation all read it, so they cannot disagree.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/draw.h"
#include "data/param.h"

namespace pelton::data {

inline constexpr double kAny = -std::numeric_limits<double>::infinity();  // no lower bound
inline constexpr double kNone = std::numeric_limits<double>::infinity();  // no upper bound

enum class OptionType : uint8_t { number, integer, boolean, text, numbers, texts };

struct OptionSpec {
  std::string name;
  OptionType type = OptionType::number;
  Param fallback;  // kind none: the option must be given, unless `optional`
  std::string doc;
  double min = kAny;
  double max = kNone;
  std::vector<std::string> choices;  // text: the only values accepted, when not empty
  bool random = false;               // takes a distribution
  bool optional = false;
};

struct Schema {
  std::string name, doc;
  std::vector<OptionSpec> options;
};

// Options checked against a schema, defaults filled in. Throws usage errors that name the option and `where`.
class Args {
 public:
  Args(const Schema& schema, const Options& options, std::string where);

  bool has(std::string_view name) const;  // given, or has a default
  double number(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  bool boolean(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const std::vector<double>& numbers(std::string_view name) const;
  const std::vector<std::string>& texts(std::string_view name) const;
  const Param& param(std::string_view name) const;
  const OptionSpec& spec(std::string_view name) const;
  uint32_t slot(std::string_view name) const;  // the option's draw slot: its row number
  const std::string& where() const { return where_; }

 private:
  size_t row(std::string_view name) const;
  const Schema* schema_;
  std::vector<Param> values_;  // by row
  std::string where_;
};

// A number option that may be random, ready to be drawn. What a normal distribution gives is cut to the
// option's limits.
struct Drawn {
  Drawn(const Args& args, std::string_view name);
  Drawn(Param p, uint32_t at, double min = kAny, double max = kNone)
      : param(std::move(p)), slot(at), low(min), high(max) {}
  double operator()(const Draw& draw) const;
  bool flag(const Draw& draw) const { return (*this)(draw) != 0; }
  Param param;
  uint32_t slot;
  double low, high;
};

// The candidate nearest to `text` in edit distance, or "" when none is near.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace pelton::data
