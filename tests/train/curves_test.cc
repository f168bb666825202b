// SPDX-License-Identifier: Apache-2.0
// 200 updates follow PyTorch's losses from the same weights and batches (expect/make_curves.py).
#include <doctest/doctest.h>

#include <cmath>

#include "base/file.h"
#include "train/formula_step.h"

using namespace pelton;
using Json = nlohmann::json;

namespace {

constexpr size_t kBatches = 8;  // taken in turn

std::vector<double> losses(const Json& c, size_t updates, const std::vector<int64_t>& order = {},
                           const std::string& precision = "fp32") {
  test::FormulaStep step(c, c["optimizer"], precision);
  std::vector<double> out;
  for (size_t u = 0; u < updates; ++u) out.push_back(step.update(u % kBatches, order));
  return out;
}

// Root mean square of the distance from the exact curve, over the updates of `got`.
double distance(const std::vector<double>& got, const Json& c) {
  double square = 0;
  for (size_t u = 0; u < got.size(); ++u) square += std::pow(got[u] - c["loss"]["f64"][u].get<double>(), 2);
  return std::sqrt(square / static_cast<double>(got.size()));
}

// Rounding decides in early updates of ResNet-18 on which side of zero some activations lie, and the curve
// goes one of several ways from there, each decision a step of its distance from the exact one. With the
// samples of each batch in eight orders, which change nothing but the order of sums, PyTorch's curves are
// 0.0003, 0.001, 0.003 or 0.013 to 0.02 from it, and curves in f64 from weights that f32 does not tell apart
// up to 0.001. One curve says little, then. Of ours one order has to come nearer than twice PyTorch's
// nearest, in that of its two layouts where that is further (0.0011; 0.0003 in the other), and none may be
// further than twice its furthest: lost digits would take all of them away. Each gradient is compared by
// itself in gradients_test.cc.
void check_orders(const Json& c, std::vector<double> first) {
  const Json& draws = c["draws"];
  double nearest = 0, furthest = 0;
  for (const char* form : {"f32", "f32_channels_last"}) {
    const auto distances = draws[form].get<std::vector<double>>();
    nearest = std::max(nearest, *std::min_element(distances.begin(), distances.end()));
    furthest = std::max(furthest, *std::max_element(distances.begin(), distances.end()));
  }
  first.resize(draws["updates"]);
  double ours = distance(first, c);
  CHECK(ours < 2 * furthest);
  size_t taken = 1;
  for (; taken < draws["orders"].size() && ours >= 2 * nearest; ++taken) {
    std::vector<int64_t> order;
    for (char row : draws["orders"][taken].get<std::string>()) order.push_back(row - '0');
    const double d = distance(losses(c, draws["updates"], order), c);
    CHECK(d < 2 * furthest);
    ours = std::min(ours, d);
  }
  MESSAGE("nearest of ", taken, " orders ", ours, ", PyTorch's from ", nearest, " to ", furthest);
  CHECK(ours < 2 * nearest);
}

void check_curve(const Json& c) {
  const std::string name = c["model"];
  CAPTURE(name);
  const std::vector<double> got = losses(c, c["loss"]["f64"].size());
  CHECK(std::abs(got[0] - c["loss"]["f64"][0].get<double>()) < 2e-5);
  CHECK(got.back() < 0.9 * got.front());
  double theirs = 0;
  for (const char* form : {"f32", "f32_channels_last"})
    if (c["loss"].contains(form))
      theirs = std::max(theirs, distance(c["loss"][form].get<std::vector<double>>(), c));
  const double ours = distance(got, c);
  MESSAGE(name, ": distance from the f64 curve (root mean square) ", ours, ", PyTorch's f32 ", theirs);
  if (c.contains("draws"))
    check_orders(c, got);
  else
    CHECK(ours < 3 * theirs + 1e-5);
}

Json cases() {
  return Json::parse(read_file("tests/train/expect/curves.json"))["cases"];
}

}  // namespace

// Training amplifies rounding, least in the MLP and most in MobileNetV2, whose gradients grow through 52
// batch norms.
TEST_CASE("training: 200 updates of dense models follow PyTorch's loss curve") {
  for (const Json& c : cases())
    if (c["model"] == "mlp" || c["model"] == "gpt2") check_curve(c);
}

TEST_CASE("training: 200 updates of convolutional models follow PyTorch's loss curve") {
  for (const Json& c : cases())
    if (c["model"] == "resnet18" || c["model"] == "mobilenet_v2") check_curve(c);
}

// Of every case whose curves PyTorch also has in them ("mixed": by autocast, in fp16 with a scaled loss).
TEST_CASE("training: 200 updates in bf16 and fp16 are as near to the exact curve as PyTorch's") {
  size_t compared = 0;
  for (const Json& c : cases()) {
    const Json mixed = c.value("mixed", Json::object());
    for (const auto& [precision, theirs] : mixed.items()) {
      CAPTURE(precision);
      const std::string name = c["model"];
      CAPTURE(name);
      const std::vector<double> got = losses(c, c["loss"]["f64"].size(), {}, precision);
      const double ours = distance(got, c);
      MESSAGE(name, " in ", precision, ": distance from the f64 curve ", ours, ", PyTorch's ", theirs);
      CHECK(ours < 2 * theirs.get<double>());
      CHECK(got.back() < 0.9 * got.front());
      ++compared;
    }
  }
  CHECK(compared == 5);
}
