// SPDX-License-Identifier: Apache-2.0
#include "data/param.h"

#include "base/cat.h"

namespace pelton::data {
namespace {

Param distribution(Param::Kind kind, std::vector<double> numbers) {
  Param p;
  p.kind = kind;
  p.numbers = std::move(numbers);
  return p;
}

std::string list(const std::vector<std::string>& items) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) append(out, cat(i ? ", " : "", '"', items[i], '"'));
  return out + "]";
}

std::string list(const std::vector<double>& items) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) append(out, cat(i ? ", " : "", items[i]));
  return out + "]";
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

std::string Param::str() const {
  switch (kind) {
    case Kind::none:
      return "";
    case Kind::number:
      return cat(numbers[0]);
    case Kind::boolean:
      return numbers[0] != 0 ? "true" : "false";
    case Kind::text:
      return quoted(texts[0]);
    case Kind::numbers:
      return list(numbers);
    case Kind::texts:
      return list(texts);
    case Kind::uniform:
      return cat("{ uniform = ", list(numbers), " }");
    case Kind::normal:
      return cat("{ normal = ", list(numbers), " }");
    case Kind::choice:
      return cat("{ choice = ", texts.empty() ? list(numbers) : list(texts), " }");
    case Kind::coin:
      return cat("{ coin = ", numbers[0], " }");
  }
  return "";
}

Param uniform(double low, double high) {
  return distribution(Param::Kind::uniform, {low, high});
}
Param normal(double mean, double deviation) {
  return distribution(Param::Kind::normal, {mean, deviation});
}
Param coin(double probability) {
  return distribution(Param::Kind::coin, {probability});
}
Param choice(std::vector<double> values) {
  return distribution(Param::Kind::choice, std::move(values));
}

}  // namespace pelton::data
