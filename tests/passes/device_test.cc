// SPDX-License-Identifier: Apache-2.0
// Passes that only devices have.
#include <doctest/doctest.h>

#include "interp/interpreter.h"
#include "ir/segments.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/fold.h"
#include "passes/fuse_updates.h"
#include "passes/low_copies.h"
#include "passes/merge_updates.h"
#include "passes/precision.h"
#include "passes/product_shape.h"
#include "passes/siblings.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

using Pass = bool (*)(Graph&, const passes::Context&);

// Ops after the pass in order, constants aside; values stay what they were within `tolerance`.
std::string after(const std::string& text, Pass pass, double tolerance = 0) {
  Graph g = parse_graph(text), before = g;
  passes::Context device;
  device.target = device::cuda_target(90);
  CHECK(pass(g, device));
  verify(g, "pass");
  CHECK_FALSE(pass(g, device));
  std::vector<HostValue> inputs;
  for (ValueId v : g.inputs) {
    Tensor t(g.type(v).dtype, *as_dims(g.type(v).shape));
    for (int64_t i = 0; i < t.count(); ++i)
      is_float(t.dtype()) ? t.set_double(i, static_cast<double>(i % 13) / 8 - 0.7) : t.set_int(i, i % 3);
    inputs.emplace_back(std::move(t));
  }
  auto a = interp::run(before, inputs).outputs, b = interp::run(g, inputs).outputs;
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].tensor.str() == b[i].tensor.str());
    for (int64_t k = 0; k < a[i].tensor.count(); ++k)
      CHECK(std::abs(a[i].tensor.get_double(k) - b[i].tensor.get_double(k)) <= tolerance);
  }
  std::string ops;
  for (NodeId id : g.order())
    if (!g[id].is("constant")) append(ops, cat(ops.empty() ? "" : " ", g[id].op->name));
  return ops;
}

}  // namespace

TEST_CASE("siblings: products of one value become one, sliced") {
  CHECK(after(R"(graph "g"(%x: f32[2,3]) {
  %w = constant() {value = tensor<f32[3,2]>{1, 2, 3, 4, 5, 6}} : f32[3,2]
  %v = constant() {value = tensor<f32[3,1]>{7, 8, 9}} : f32[3,1]
  %b = constant() {value = tensor<f32[2]>{1, 2}} : f32[2]
  %c = constant() {value = tensor<f32[1]>{3}} : f32[1]
  %0 = matmul(%x, %w) : f32[2,2]
  %1 = add(%0, %b) : f32[2,2]
  %2 = relu(%1) : f32[2,2]
  %3 = matmul(%x, %v) : f32[2,1]
  %4 = add(%3, %c) : f32[2,1]
  %5 = relu(%4) : f32[2,1]
  return %2, %5
})",
              passes::siblings) == "matmul add slice slice relu relu");
}

TEST_CASE("product shape: reshapes that merge and split rows go away from a product") {
  CHECK(after(R"(graph "g"(%x: f32[2,3,4], %r: f32[2,3,5], %w: f32[4,5], %b: f32[5]) {
  %0 = reshape(%x) {dims = dims[6,4]} : f32[6,4]
  %1 = matmul(%0, %w) : f32[6,5]
  %2 = add(%1, %b) : f32[6,5]
  %3 = reshape(%2) {dims = dims[2,3,5]} : f32[2,3,5]
  %4 = add(%3, %r) : f32[2,3,5]
  return %4
})",
              passes::product_shape) == "reshape reshape matmul add add");
}

TEST_CASE("precision: values between products are stored low, what leaves the range is not") {
  Pass fp16 = [](Graph& g, const passes::Context& c) {
    return passes::spread_precision(g, DType::f16, c) && passes::fold(g, c);  // the constant in f16
  };
  auto spread = [&](const char* constant) {
    return after(cat("graph \"g\"(%x: f16[2,4]) {\n  %c = constant() {value = tensor<f32[1]>{", constant,
                     "}} : f32[1]\n  %0 = cast(%x) {to = f32} : f32[2,4]\n  %1 = add(%0, %c) : f32[2,4]\n  "
                     "%2 = softmax(%1) "
                     "{axis = 1} : f32[2,4]\n  %3 = exp(%2) : f32[2,4]\n  return %3\n}"),
                 fp16, 1e-2);
  };
  CHECK(spread("0.5") == "add softmax cast exp");
}

TEST_CASE("precision: norms take and yield low data beside f32 statistics and scales, forward and backward") {
  Pass bf16 = [](Graph& g, const passes::Context& c) { return passes::spread_precision(g, DType::bf16, c); };
  const char* text = R"(graph "g"(%x: bf16[2,4], %g: bf16[2,4], %s: f32[4]) {
  %0 = cast(%x) {to = f32} : f32[2,4]
  %1, %2, %3 = layer_norm(%0, %s) : f32[2,4], f32[2,1], f32[2,1]
  %4 = cast(%g) {to = f32} : f32[2,4]
  %5, %6 = layer_norm_backward(%4, %0, %2, %3, %s) : f32[2,4], f32[4]
  return %1, %5, %6
})";
  CHECK(after(text, bf16, 0.05) == "layer_norm cast layer_norm_backward cast");
}

TEST_CASE("precision: parameters that meet low values are cast, and updates keep the lower form") {
  Graph g = parse_graph(R"(graph "g"(%x: f32[2,4], %i: i64[2]) {
  slot %w parameter "w" : f32[4,4] = tensor<f32[4,4]>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
  slot %b parameter "b" : f32[4]
  %0 = matmul(%x, %w) : f32[2,4]
  %1 = add(%0, %b) : f32[2,4]
  %2 = gather(%w, %i) {axis = 0} : f32[2,4]
  %3 = add(%1, %2) : f32[2,4]
  %4 = matmul(%3, %w) : f32[2,4]
  %c = constant() {value = tensor<f32[]>{0.5}} : f32[]
  %5 = mul(%w, %c) : f32[4,4]
  next %w = %5
  return %4
})");
  passes::Context device;
  device.target = device::cuda_target(90);
  CHECK(passes::precision(g, "bf16", device));
  CHECK(passes::keep_low_copies(g));
  verify(g, "pass");
  REQUIRE(g.slots.size() == 4);
  CHECK(g.slots[2].name == "low.w");
  CHECK(g.slots[3].name == "low.b");
  CHECK(g.slots[2].kind == SlotKind::cache);
  CHECK(g.slots[2].initial.get_double(15) == 16);
  CHECK(!g.slots[3].next);  // nothing changes b
  // w is read for its update alone.
  CHECK(g[g.slots[0].old_value].uses.size() == 1);
  for (NodeId id : g.order())
    if (g[id].is("add") || g[id].is("gather")) CHECK(g.type(g[id].outputs[0]).dtype == DType::bf16);
  std::vector<HostValue> in = {from_doubles(DType::f32, {2, 4}, std::vector<double>(8, 0.25)),
                               Tensor::from<int64_t>({2}, {1, 3})};
  auto result = interp::run(g, in);
  CHECK(result.next_state[2].tensor.get_double(15) == 8);
  CHECK(passes::keep_low_copies(g) == false);
}

TEST_CASE("precision: layers named by module path stay in f32, with what is below them") {
  Graph g = parse_graph(R"(graph "g"(%x: f32[2,4], %w: f32[4,4]) {
  %0 = matmul(%x, %w) : f32[2,4] @"h.0.mlp"
  %1 = matmul(%0, %w) : f32[2,4] @"h.0.mlp/grad"
  %2 = matmul(%1, %w) : f32[2,4] @"h.01"
  return %2
})");
  passes::Context device;
  device.target = device::cuda_target(90);
  CHECK(passes::precision(g, "bf16", device, {"h.0"}));
  std::string types;
  for (NodeId id : g.order())
    if (g[id].is("matmul")) append(types, cat(g.type(g[id].outputs[0]).dtype, " "));
  CHECK(types == "f32 f32 bf16 ");
}

TEST_CASE("updates: one group writes a parameter and its state, behind the last reader of the old values") {
  Graph g = parse_graph(R"(graph "g"(%x: f32[4,4]) {
  slot %w parameter "w" : f32[4,4]
  slot %m optimizer "optimizer.momentum.w" : f32[4,4]
  slot %n parameter "n" : f32[4,4]
  %c = constant() {value = tensor<f32[]>{0.5}} : f32[]
  %0 = mul(%m, %c) : f32[4,4]
  %1 = add(%0, %x) : f32[4,4]
  %2 = mul(%1, %c) : f32[4,4]
  %3 = sub(%w, %2) : f32[4,4]
  %4 = matmul(%x, %w) : f32[4,4]
  %5 = mul(%n, %4) : f32[4,4]
  %6 = reduce_sum(%5) {axes = [0, 1], keep_dims = true} : f32[1,1]
  %7 = sub(%n, %6) : f32[4,4]
  next %w = %3
  next %m = %1
  next %n = %7
  return %4
})");
  Graph before = g;
  passes::Context device;
  device.target = device::cuda_target(90);
  CHECK(passes::fuse_updates(g, device));
  CHECK(passes::order_updates(g));
  verify(g, "pass");
  CHECK_FALSE(passes::order_updates(g));
  std::string ops;
  for (NodeId id : g.order())
    if (!g[id].is("constant")) append(ops, cat(ops.empty() ? "" : " ", g[id].op->name));
  CHECK(ops == "matmul fused mul reduce_sum sub");
  std::vector<HostValue> state, in = {from_doubles(DType::f32, {4, 4}, std::vector<double>(16, 0.25))};
  for (int i = 0; i < 3; ++i)
    state.emplace_back(from_doubles(DType::f32, {4, 4}, std::vector<double>(16, i + 1)));
  auto a = interp::run(before, in, state).next_state, b = interp::run(g, in, state).next_state;
  for (size_t i = 0; i < 3; ++i) CHECK(a[i].tensor.same_bytes(b[i].tensor));
}

TEST_CASE(
    "merged updates: what is done alike to parameters and norms is one node each, rates read by segment") {
  // Three parameters with momentum, of which the last has a rate of its own, clipped by the norm of all
  // gradients.
  std::string slots, body;
  const char* shapes[] = {"4,4", "5", "2,3,2"};
  const char* axes[] = {"0, 1", "0", "0, 1, 2"};
  std::string inputs = "%r: f32[], %q: f32[]",
              chain = "  %t0 = add(%s0, %s1) : f32[]\n  %t = add(%t0, %s2) : f32[]\n";
  for (int i = 0; i < 3; ++i) {
    const std::string t = cat("f32[", shapes[i], "]");
    append(inputs, cat(", %g", i, ": ", t));
    append(slots, cat("  slot %w", i, " parameter \"w", i, "\" : ", t, "\n  slot %m", i,
                      " optimizer \"optimizer.momentum.w", i, "\" : ", t, "\n"));
    append(body, cat("  %a", i, " = square(%g", i, ") : ", t, "\n  %s", i, " = reduce_sum(%a", i,
                     ") {axes = [", axes[i], "]} : f32[]\n"));
  }
  append(body, chain);
  append(body, "  %f = rsqrt(%t) : f32[]\n");
  for (int i = 0; i < 3; ++i) {
    const std::string t = cat("f32[", shapes[i], "]");
    append(body,
           cat("  %b", i, " = mul(%g", i, ", %f) : ", t, "\n  %n", i, " = add(%m", i, ", %b", i, ") : ", t,
               "\n  %d", i, " = mul(%n", i, ", ", i == 2 ? "%q" : "%r", ") : ", t, "\n  %p", i, " = sub(%w",
               i, ", %d", i, ") : ", t, "\n  next %w", i, " = %p", i, "\n  next %m", i, " = %n", i, "\n"));
  }
  // Slots come first, their next values last.
  std::string nodes, nexts;
  for (size_t at = 0, end; at < body.size(); at = end + 1) {
    end = body.find('\n', at);
    const std::string line = body.substr(at, end - at + 1);
    append(line.starts_with("  next") ? nexts : nodes, line);
  }
  Graph g = parse_graph(cat("graph \"g\"(", inputs, ") {\n", slots, nodes, nexts, "  return %t\n}"));
  const Graph before = g;
  passes::Context device;
  device.target = device::cuda_target(90);
  passes::fuse_updates(g, device);
  CHECK(passes::merge_updates(g, device));
  verify(g, "pass");
  CHECK_FALSE(passes::merge_updates(g, device));
  std::map<std::string, int64_t> kinds;
  for (NodeId id : g.order())
    if (g[id].is("fused")) kinds[g[id].get_text("kind")] += g[id].get_int("segments");
  CHECK(kinds == std::map<std::string, int64_t>{{kSegments, 3}, {kSegmentSums, 3}});
  // The one that updates stands last, and reads both rates.
  const Node& last = g[g.order().back()];
  REQUIRE(last.is("fused"));
  CHECK(segments_of(last).size() == 3);
  CHECK(std::count(last.inputs.begin(), last.inputs.end(), g.inputs[0]) == 1);
  CHECK(std::count(last.inputs.begin(), last.inputs.end(), g.inputs[1]) == 1);

  std::vector<HostValue> in, state;
  for (ValueId v : g.inputs) {
    Tensor x(DType::f32, *as_dims(g.type(v).shape));
    for (int64_t i = 0; i < x.count(); ++i) x.set_double(i, 0.25 * static_cast<double>(i % 7 + 1));
    in.emplace_back(std::move(x));
  }
  for (const Slot& s : g.slots) {
    Tensor x(DType::f32, *as_dims(s.type.shape));
    for (int64_t i = 0; i < x.count(); ++i) x.set_double(i, 0.5 * static_cast<double>(i % 5) - 1);
    state.emplace_back(std::move(x));
  }
  const auto expected = interp::run(before, in, state), got = interp::run(g, in, state);
  for (size_t i = 0; i < state.size(); ++i)
    CHECK(got.next_state[i].tensor.same_bytes(expected.next_state[i].tensor));
  CHECK(got.outputs[0].tensor.same_bytes(expected.outputs[0].tensor));
}

TEST_CASE("merged updates: a parameter that another update reads stays apart") {
  Graph g = parse_graph(R"(graph "g"(%x: f32[4,4], %y: f32[4,4]) {
  slot %a parameter "a" : f32[4,4]
  slot %b parameter "b" : f32[4,4]
  slot %c parameter "c" : f32[4,4]
  %0 = sub(%a, %x) : f32[4,4]
  %1 = sub(%b, %a) : f32[4,4]
  %2 = sub(%c, %y) : f32[4,4]
  next %a = %0
  next %b = %1
  next %c = %2
  return %x
})");
  passes::Context device;
  device.target = device::cuda_target(90);
  CHECK(passes::merge_updates(g, device));
  verify(g, "pass");
  std::string ops;
  for (NodeId id : g.order())
    append(ops, cat(g[id].op->name, g[id].is("fused") ? cat(g[id].get_int("segments")) : "", " "));
  CHECK(ops == "sub fused2 ");
}

namespace {

struct TakesRecurrentLayers final : passes::KernelOracle {
  std::string refuse(const Graph& g, NodeId id) const override { return g[id].is("lstm") ? "" : "not here"; }
  std::string choice(const Graph&, NodeId) const override { return "some.kernel"; }
};

}  // namespace

TEST_CASE("precision: recurrent layers compute low where the device takes them as they are, and only there") {
  const std::string text = R"(graph "g"(%x: f32[3,2,4], %w: f32[1,12,4], %r: f32[1,12,3], %h: f32[1,2,3]) {
  %y, %a, %c = lstm(%x, %w, %r, _, _, %h) {hidden = 3} : f32[3,1,2,3], f32[1,2,3], f32[1,2,3]
  return %y, %c
})";
  const TakesRecurrentLayers oracle;
  passes::Context context;
  context.target = device::cuda_target(90);
  Graph split = parse_graph(text);
  CHECK_FALSE(passes::precision(split, "fp16", context, {}));  // what is split stays in f32
  context.oracle = &oracle;
  Graph low = parse_graph(text);
  CHECK(passes::precision(low, "fp16", context, {}));
  verify(low, "precision");
  int layers = 0;
  for (NodeId id : low.order()) {
    if (!low[id].is("lstm")) continue;
    ++layers;
    for (ValueId v : low[id].inputs)
      if (v) CHECK(low.type(v).dtype == DType::f16);
    for (ValueId v : low[id].outputs) CHECK(low.type(v).dtype == DType::f16);
  }
  CHECK(layers == 1);
  for (ValueId v : low.outputs) CHECK(low.type(v).dtype == DType::f32);
  context.target = device::detect_cpu();
  Graph host = parse_graph(text);
  CHECK_FALSE(passes::precision(host, "fp16", context, {}));
}
