// SPDX-License-Identifier: Apache-2.0
// Values of pipeline options: a constant, a list, or a distribution that is drawn once for each sample.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::data {

struct Param {
  enum class Kind : uint8_t { none, number, boolean, text, numbers, texts, uniform, normal, choice, coin };

  Param() = default;
  Param(double v) : kind(Kind::number), numbers{v} {}
  Param(int v) : Param(static_cast<double>(v)) {}
  Param(int64_t v) : Param(static_cast<double>(v)) {}
  Param(bool v) : kind(Kind::boolean), numbers{v ? 1.0 : 0.0} {}
  Param(const char* v) : kind(Kind::text), texts{v} {}
  Param(std::string v) : kind(Kind::text), texts{std::move(v)} {}
  Param(std::vector<double> v) : kind(Kind::numbers), numbers(std::move(v)) {}
  Param(std::vector<std::string> v) : kind(Kind::texts), texts(std::move(v)) {}

  bool is_random() const { return kind >= Kind::uniform; }
  std::string str() const;  // as it would stand in a TOML file

  Kind kind = Kind::none;
  std::vector<double> numbers;     // number, boolean: 1; uniform: low, high; normal: mean, deviation; coin: p
  std::vector<std::string> texts;  // text: 1; choice between texts when not empty
};

Param uniform(double low, double high);
Param normal(double mean, double deviation);
Param coin(double probability);
Param choice(std::vector<double> values);

using Options = std::map<std::string, Param, std::less<>>;

}  // namespace pelton::data
