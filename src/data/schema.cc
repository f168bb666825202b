// SPDX-License-Identifier: Apache-2.0
#include "data/schema.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/nearest.h"

namespace pelton::data {
namespace {

constexpr double kWholeLimit = 0x1p53;  // whole numbers below it are exact

std::string_view type_name(OptionType t) {
  static constexpr std::string_view names[] = {"a number", "an integer",        "true or false",
                                               "a text",   "a list of numbers", "a list of texts"};
  return names[static_cast<size_t>(t)];
}

bool type_fits(OptionType type, const Param& p) {
  using Kind = Param::Kind;
  switch (type) {
    case OptionType::number:
    case OptionType::integer:
      return p.kind == Kind::number;
    case OptionType::boolean:
      return p.kind == Kind::boolean;
    case OptionType::text:
      return p.kind == Kind::text;
    case OptionType::numbers:
      return p.kind == Kind::numbers;
    case OptionType::texts:
      return p.kind == Kind::texts;
  }
  return false;
}

void check_number(const OptionSpec& spec, double v, const std::string& where) {
  if (!std::isfinite(v))
    fail(ErrorCode::usage, cat("'", spec.name, "' is ", v, ", not a finite number"), where);
  if (!(v >= spec.min && v <= spec.max))
    fail(ErrorCode::usage, cat("'", spec.name, "' is ", v, ", outside ", spec.min, " .. ", spec.max), where);
  if (spec.type == OptionType::integer && (v != std::floor(v) || std::fabs(v) > kWholeLimit))
    fail(ErrorCode::usage, cat("'", spec.name, "' is ", v, ", but takes an integer"), where);
}

Param checked(const OptionSpec& spec, Param p, const std::string& where) {
  if (p.is_random()) {
    if (!spec.random)
      fail(ErrorCode::usage, cat("'", spec.name, "' takes ", type_name(spec.type), ", not a distribution"),
           where);
    if (p.kind == Param::Kind::uniform && p.numbers[0] > p.numbers[1])
      fail(ErrorCode::usage, cat("'", spec.name, "' = ", p.str(), ": the low end is above the high end"),
           where);
    if (p.kind == Param::Kind::coin && !(p.numbers[0] >= 0 && p.numbers[0] <= 1))
      fail(ErrorCode::usage, cat("'", spec.name, "' = ", p.str(), ": a probability lies in 0 .. 1"), where);
    std::vector<double> values = p.numbers;  // that may come out; a normal one is cut to the limits
    if (p.kind == Param::Kind::coin) values = {0, 1};
    if (p.kind == Param::Kind::normal) values.pop_back();
    if (spec.type != OptionType::boolean)
      for (double v : values) check_number(spec, v, where);
    if (p.kind == Param::Kind::normal && !(p.numbers[1] >= 0 && std::isfinite(p.numbers[1])))
      fail(ErrorCode::usage, cat("'", spec.name, "' = ", p.str(), ": a deviation is at least 0"), where);
    return p;
  }
  // A single value stands for a list of one.
  if (spec.type == OptionType::numbers && p.kind == Param::Kind::number) p.kind = Param::Kind::numbers;
  if (spec.type == OptionType::texts && p.kind == Param::Kind::text) p.kind = Param::Kind::texts;
  if (!type_fits(spec.type, p))
    fail(ErrorCode::usage, cat("'", spec.name, "' = ", p.str(), " is not ", type_name(spec.type)), where);
  if (spec.type != OptionType::boolean)
    for (double v : p.numbers) check_number(spec, v, where);
  if (spec.type == OptionType::text && !spec.choices.empty() &&
      std::ranges::find(spec.choices, p.texts[0]) == spec.choices.end()) {
    std::string near = nearest(p.texts[0], spec.choices), all;
    for (const auto& c : spec.choices) append(all, cat(all.empty() ? "" : ", ", c));
    fail(ErrorCode::usage, cat("'", spec.name, "' = \"", p.texts[0], "\" is not one of: ", all), where,
         near.empty() ? "" : cat("did you mean \"", near, "\"?"));
  }
  return p;
}

}  // namespace

std::string nearest(std::string_view text, const std::vector<std::string>& candidates) {
  return pelton::nearest(text, candidates);
}

Args::Args(const Schema& schema, const Options& options, std::string where)
    : schema_(&schema), values_(schema.options.size()), where_(std::move(where)) {
  for (const auto& [key, value] : options) {
    auto at = std::ranges::find(schema.options, key, &OptionSpec::name);
    if (at == schema.options.end()) {
      std::vector<std::string> names;
      for (const auto& o : schema.options) names.push_back(o.name);
      std::string near = nearest(key, names);
      fail(ErrorCode::usage, cat("'", schema.name, "' has no option '", key, "'"), where_,
           near.empty() ? cat("see --schema") : cat("did you mean '", near, "'?"));
    }
    values_[static_cast<size_t>(at - schema.options.begin())] = checked(*at, value, where_);
  }
  for (size_t i = 0; i < values_.size(); ++i) {
    const OptionSpec& spec = schema.options[i];
    if (values_[i].kind != Param::Kind::none) continue;
    if (spec.fallback.kind == Param::Kind::none && !spec.optional)
      fail(ErrorCode::usage, cat("'", schema.name, "' needs the option '", spec.name, "' (", spec.doc, ")"),
           where_);
    values_[i] = spec.fallback;
  }
}

size_t Args::row(std::string_view name) const {
  auto at = std::ranges::find(schema_->options, name, &OptionSpec::name);
  PELTON_CHECK(at != schema_->options.end(), schema_->name, " reads the undeclared option ", name);
  return static_cast<size_t>(at - schema_->options.begin());
}

bool Args::has(std::string_view name) const {
  return values_[row(name)].kind != Param::Kind::none;
}
const Param& Args::param(std::string_view name) const {
  return values_[row(name)];
}
const OptionSpec& Args::spec(std::string_view name) const {
  return schema_->options[row(name)];
}
uint32_t Args::slot(std::string_view name) const {
  return static_cast<uint32_t>(row(name));
}
double Args::number(std::string_view name) const {
  return param(name).numbers.at(0);
}
int64_t Args::integer(std::string_view name) const {
  return static_cast<int64_t>(number(name));
}
bool Args::boolean(std::string_view name) const {
  return number(name) != 0;
}
const std::string& Args::text(std::string_view name) const {
  return param(name).texts.at(0);
}
const std::vector<double>& Args::numbers(std::string_view name) const {
  return param(name).numbers;
}
const std::vector<std::string>& Args::texts(std::string_view name) const {
  return param(name).texts;
}

Drawn::Drawn(const Args& args, std::string_view name)
    : param(args.param(name)), slot(args.slot(name)), low(args.spec(name).min), high(args.spec(name).max) {
  if (args.spec(name).type != OptionType::integer) return;
  low = std::max(low, -kWholeLimit);
  high = std::min(high, kWholeLimit);
}

double Drawn::operator()(const Draw& draw) const {
  switch (param.kind) {
    case Param::Kind::uniform:
      return draw.uniform(slot, param.numbers[0], param.numbers[1]);
    case Param::Kind::normal:
      return std::clamp(param.numbers[0] + param.numbers[1] * draw.normal(slot), low, high);
    case Param::Kind::choice:
      return param.numbers[static_cast<size_t>(draw.below(slot, static_cast<int64_t>(param.numbers.size())))];
    case Param::Kind::coin:
      return draw.coin(slot, param.numbers[0]) ? 1 : 0;
    default:
      return param.numbers.empty() ? 0 : param.numbers[0];
  }
}

}  // namespace pelton::data
