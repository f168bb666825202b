// SPDX-License-Identifier: Apache-2.0
// Pooling and changes of layout.
#include <doctest/doctest.h>

#include "backend/cpu/harness.h"
#include "base/cat.h"

using namespace pelton;
using namespace pelton::test;

TEST_CASE("pooling in every layout") {
  struct Case {
    const char* op;
    Dims y;
    const char* attrs;
  };
  const Case cases[] = {
      {"max_pool", {2, 16, 4, 5}, "kernel = [3,3], strides = [2,2], low = dims[1,1], high = dims[1,1]"},
      {"max_pool", {2, 16, 4, 5}, "kernel = [2,2], strides = [2,2], ceil = true"},
      {"avg_pool", {2, 16, 7, 9}, "kernel = [3,3], low = dims[1,1], high = dims[1,1]"},
      {"avg_pool", {2, 16, 7, 9}, "kernel = [3,3], low = dims[1,1], high = dims[1,1], count_padding = true"},
      {"avg_pool", {2, 16, 1, 1}, "kernel = [7,9]"},
  };
  for (const Case& c : cases)
    for (const char* type : {"f32", "bf16"})
      for (const char* layout : {"", "{nhwc}", "{c16}", "{c8}"}) {
        const DType t = *dtype_from_name(type);
        const std::string text = cat("graph \"g\"(%x: ", type, "[2,16,7,9]", layout, ") { %y = ", c.op,
                                     "(%x) {", c.attrs, "} : ", type, c.y, layout, " return %y }");
        if (device::detect_cpu().isa < device::CpuIsa::avx2) continue;
        if (t == DType::bf16 && device::detect_cpu().isa < device::CpuIsa::avx512) continue;
        check_node(text, {random(t, {2, 16, 7, 9}, 1)}, {}, Measure::absolute);
      }
}

TEST_CASE("layouts change and come back, with channels that do not fill a block") {
  if (device::detect_cpu().isa < device::CpuIsa::avx2) return;
  for (const char* type : {"f32", "bf16", "u8"})
    for (int64_t channels : {1, 3, 16, 19})
      for (const char* from : {"", "{nhwc}", "{c16}"})
        for (const char* to : {"plain", "nhwc", "c8", "c16"}) {
          const std::string result = std::string(to) == "plain" ? "" : cat("{", to, "}");
          if (result == from) continue;
          const DType t = *dtype_from_name(type);
          const Dims d = {2, channels, 5, 3};
          check_node(cat("graph \"g\"(%x: ", type, d, from, ") { %y = layout(%x) {to = \"", to,
                         "\"} : ", type, d, result, " return %y }"),
                     {random(t, d, 1, 0, 100)});
        }
}

TEST_CASE("resample: every mode, plain and channels last") {
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* type : {"f32", "bf16"})
      for (const char* layout : {"", "{nhwc}"})
        for (const Dims& to : {Dims{2, 3, 10, 14}, Dims{2, 3, 3, 5}, Dims{2, 3, 5, 7}, Dims{2, 3, 5, 20}}) {
          const DType t = *dtype_from_name(type);
          check_node(cat("graph \"g\"(%x: ", type, "[2,3,5,7]", layout,
                         ") { %y = resample(%x) {axes = [2,3], dims = dims", to, ", mode = \"", mode,
                         "\", coordinates = \"half_pixel\"} : ", type, to, layout, " return %y }"),
                     {random(t, {2, 3, 5, 7}, 1)}, {}, Measure::absolute);
        }
}
