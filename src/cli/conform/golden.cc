// SPDX-License-Identifier: Apache-2.0
#include "cli/conform/golden.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_number.h"

namespace pelton::cli {
namespace {

using nlohmann::json;

DType numpy_dtype(const std::string& name) {
  static const std::pair<const char*, DType> names[] = {
      {"float32", DType::f32}, {"float64", DType::f64}, {"float16", DType::f16}, {"int64", DType::i64},
      {"int32", DType::i32},   {"int16", DType::i16},   {"int8", DType::i8},     {"uint8", DType::u8},
      {"uint16", DType::u16},  {"uint32", DType::u32},  {"uint64", DType::u64},  {"bool", DType::boolean}};
  for (auto [text, dtype] : names)
    if (name == text) return dtype;
  fail(ErrorCode::bad_type, cat("element type \"", name, "\" is not known"));
}

// The recipes of the files: a 32-bit linear congruence, a constant, a count along the last axis, stripes.
Tensor generate(const json& input) {
  DType dtype = numpy_dtype(input.at("dtype"));
  Tensor t = Tensor::zeros(dtype, json_integers(input.at("shape")));
  const json& gen = input.at("gen");
  auto number = [&](const char* key) { return gen.at(key).get<double>(); };
  int64_t width = t.rank() ? t.dims().back() : 1, height = t.rank() > 1 ? t.dims()[t.dims().size() - 2] : 1;
  uint32_t state = gen.contains("lcg_seed") ? static_cast<uint32_t>(json_unsigned(gen["lcg_seed"])) : 0;
  for (int64_t i = 0; i < t.count(); ++i) {
    if (gen.contains("const")) {
      t.set_double(i, number("const"));
    } else if (gen.contains("arange_last_axis_from")) {
      t.set_double(i, number("arange_last_axis_from") + static_cast<double>(i % width));
    } else if (gen.contains("stripes_w")) {
      auto stripe = [&](const char* key) { return std::max<int64_t>(1, json_integer(gen.at(key))); };
      int64_t x = i % width / stripe("stripes_w"), y = i / width % height / stripe("stripes_h");
      t.set_double(i, x % 2 == 0 && y % 2 == 0 ? number("lo") : number("hi"));
    } else {
      state = 1664525u * state + 1013904223u;
      double u = static_cast<double>(state >> 8) / 16777216.0;
      if (gen.contains("int_lo"))
        t.set_double(i, number("int_lo") + std::floor(u * (number("int_hi") - number("int_lo") + 1)));
      else
        t.set_double(i, number("lo") + (number("hi") - number("lo")) * u);
    }
  }
  return t;
}

double as_number(const json& v) {
  if (v.is_number()) return v.get<double>();
  std::string text = v.get<std::string>();
  if (text.find("nan") != text.npos || text.find("NaN") != text.npos)
    return std::numeric_limits<double>::quiet_NaN();
  return text.starts_with("-") ? -INFINITY : INFINITY;
}

std::string compare(const GoldenOutput& want, const ir::HostValue& got) {
  const Tensor& t = got.tensor;
  if (!t.defined() || t.dims() != want.dims)
    return cat("output '", want.name, "' is ", t.str(), " where ", want.dims, " is expected");
  double worst = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    double a = t.get_double(static_cast<int64_t>(i) * want.stride), b = want.values[i];
    if ((std::isnan(a) && std::isnan(b)) || a == b) continue;
    double d = std::fabs(a - b);
    if (!(d <= worst)) worst = d;
  }
  if (worst <= want.tolerance) return {};
  return cat("output '", want.name, "' differs by ", worst, ", allowed is ", want.tolerance);
}

}  // namespace

std::vector<GoldenRun> read_golden(const std::string& path) {
  return with_place(path, [&] {
    json file = json::parse(read_file(path), nullptr, false);
    if (file.is_discarded()) fail(ErrorCode::bad_format, "not JSON");
    std::vector<GoldenRun> runs;
    try {
      for (const json& r : file.at("runs")) {
        GoldenRun& run = runs.emplace_back();
        for (const json& i : r.at("inputs")) run.inputs.emplace_back(i.at("name"), generate(i));
        for (const json& o : r.at("outputs")) {
          GoldenOutput out{o.at("name"),
                           json_integers(o.at("shape")),
                           o.contains("stride") ? json_integer(o["stride"]) : 1,
                           {},
                           0};
          for (const json& v : o.at("values")) out.values.push_back(as_number(v));
          // Ten times how far another runtime's own optimiser strays, or 1e-4 of the largest value.
          out.tolerance = std::max(10 * o.value("optimised_vs_plain_max_abs_diff", 0.0),
                                   1e-4 * as_number(o.at("abs_max")));
          run.outputs.push_back(std::move(out));
        }
      }
    } catch (const json::exception& e) {
      fail(ErrorCode::bad_format, e.what());
    }
    return runs;
  });
}

std::string run_golden(const std::string& model_path, const std::string& golden_path, const RunGraph& run) {
  try {
    onnx::Imported model = onnx::import_file(model_path);
    for (const GoldenRun& golden : read_golden(golden_path)) {
      std::vector<ir::HostValue> inputs;
      for (ir::ValueId id : model.graph.inputs) {
        const std::string& name = model.graph[id].name;
        auto it = std::find_if(golden.inputs.begin(), golden.inputs.end(),
                               [&](const auto& i) { return i.first == name; });
        if (it == golden.inputs.end()) return cat("no data for input '", name, "'");
        inputs.emplace_back(it->second);
      }
      auto results = run(model.graph, inputs);
      for (const GoldenOutput& want : golden.outputs) {
        size_t i = 0;
        while (i < results.size() && model.graph.output_name(i) != want.name) ++i;
        if (i == results.size()) return cat("there is no output '", want.name, "'");
        if (std::string d = compare(want, results[i]); !d.empty()) return d;
      }
    }
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace pelton::cli
