// SPDX-License-Identifier: Apache-2.0
// Attention and recurrent layers.
#include <doctest/doctest.h>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "ir/op.h"

using namespace pelton;
using namespace pelton::test;

TEST_CASE("attention with masks, causal, grouped heads, long keys") {
  if (!ir::find_op("attention")) return;
  struct Case {
    Dims q, k, v, mask;
    const char* attrs;
  };
  const Case cases[] = {{{1, 2, 5, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}, {}, ""},
                        {{2, 4, 70, 16}, {2, 2, 33, 16}, {2, 2, 33, 24}, {2, 1, 1, 33}, ""},
                        {{1, 12, 128, 64}, {1, 12, 128, 64}, {1, 12, 128, 64}, {1, 1, 128, 128}, ""},
                        {{1, 2, 7, 8}, {1, 1, 9, 8}, {1, 1, 9, 8}, {}, "causal = true, scale = 0.25"},
                        {{1, 1, 3, 8}, {1, 1, 2100, 8}, {1, 1, 2100, 8}, {}, "softcap = 5.0"},
                        {{1, 1, 1, 8}, {1, 1, 0, 8}, {1, 1, 0, 8}, {}, ""}};
  for (const Case& c : cases)
    for (const char* type : {"f32", "bf16"})
      for (bool boolean : {false, true}) {
        const DType t = *dtype_from_name(type), m = boolean ? DType::boolean : t;
        const bool masked = !c.mask.empty();
        if (boolean && !masked) continue;
        const Dims y = {c.q[0], c.q[1], c.q[2], c.v[3]};
        std::vector<Tensor> in = {random(t, c.q, 1), random(t, c.k, 2), random(t, c.v, 3)};
        if (masked) in.push_back(random(m, c.mask, 4, boolean ? 0 : -3, boolean ? 2 : 3));
        check_node(cat("graph \"g\"(%q: ", type, c.q, ", %k: ", type, c.k, ", %v: ", type, c.v,
                       masked ? cat(", %m: ", name(m), c.mask) : "", ") { %y = attention(%q, %k, %v",
                       masked ? ", %m" : "", ") {", c.attrs, "} : ", type, y, " return %y }"),
                   in, {}, Measure::absolute);
      }
}

TEST_CASE("lstm and gru in both directions, with lengths and initial states") {
  const int64_t steps = 6, batch = 3, inputs = 5, hidden = 20;
  for (const char* op : {"lstm", "gru"})
    for (const char* direction : {"forward", "reverse", "bidirectional"})
      for (bool full : {false, true})
        for (bool constant : {true, false}) {
          const bool lstm = std::string(op) == "lstm";
          const int64_t d = std::string(direction) == "bidirectional" ? 2 : 1, g = (lstm ? 4 : 3) * hidden;
          const Dims x = {steps, batch, inputs}, w = {d, g, inputs}, r = {d, g, hidden}, b = {d, 2 * g},
                     h = {d, batch, hidden}, y = {steps, d, batch, hidden};
          std::string head = cat("%x: f32", x, ", %w: f32", w, ", %r: f32", r), args = "%x, %w, %r";
          std::vector<Tensor> in = {random(DType::f32, x, 1), random(DType::f32, w, 2, -0.5, 0.5),
                                    random(DType::f32, r, 3, -0.5, 0.5)};
          if (full) {
            head += cat(", %b: f32", b, ", %l: i32[", batch, "], %h: f32", h);
            args += ", %b, %l, %h";
            in.push_back(random(DType::f32, b, 4));
            in.push_back(from_ints(DType::i32, {batch}, {6, 0, 3}));
            in.push_back(random(DType::f32, h, 5));
            if (lstm) {
              head += cat(", %c: f32", h);
              args += ", %c";
              in.push_back(random(DType::f32, h, 6));
            }
          }
          const std::string attrs = cat("hidden = ", hidden, ", direction = \"", direction, "\"",
                                        !lstm && full ? ", linear_before_reset = true" : "");
          // Tensors of integers stay as they are; f32 sums in the recurrence are short.
          check_node(cat("graph \"g\"(", head, ") { %y, %n", lstm ? ", %c1" : "", " = ", op, "(", args, ") {",
                         attrs, "} : f32", y, ", f32", h, lstm ? cat(", f32", h) : "", " return %y, %n",
                         lstm ? ", %c1" : "", " }"),
                     in, {"", {false, constant, constant}}, Measure::absolute);
        }
}
