// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: the kernel's text, run on the host as blocks that wait for each other, and on the device;
// both against the interpreter.
#include <doctest/doctest.h>

#include <cstring>

#include "backend/cuda/emulated_device.h"
#include "backend/cuda/harness.h"
#include "ir/text.h"
#include "support/skip.h"
// After the emulation.
#include "backend/cuda/own/recurrence.cuh"

using namespace pelton;
using namespace pelton::backend::cuda;
using pelton::test::GpuCase;

namespace {

struct Layer {
  const char* op;
  int steps, batch, inputs, hidden;
  DType type = DType::f32;
  const char* attrs = "";
  std::vector<int64_t> lengths = {};
  bool states = true, bias = true, peepholes = false;
  DType length_type = DType::i32;
  bool infinite = false;  // one of the cells
  bool both() const { return std::strstr(attrs, "bidirectional"); }
};

struct Values {
  std::string text;
  std::vector<Tensor> inputs;  // present ones, in order
  std::vector<Tensor> by_place = std::vector<Tensor>(8);
};

Values values_of(const Layer& l) {
  const bool lstm = std::string_view(l.op) == "lstm";
  const int64_t d = l.both() ? 2 : 1, g = lstm ? 4 : std::string_view(l.op) == "gru" ? 3 : 1;
  const int64_t n = l.batch, h = l.hidden;
  const double s = 1.5 / std::sqrt(static_cast<double>(h));
  Values v;
  auto give = [&](size_t place, Dims dims, double size) {
    v.by_place[place] = test::random(l.type, std::move(dims), place + 1, -size, size);
  };
  give(0, {l.steps, n, l.inputs}, 1);
  give(1, {d, g * h, l.inputs}, 1);
  give(2, {d, g * h, h}, s);
  if (l.bias) give(3, {d, 2 * g * h}, 0.5);
  if (!l.lengths.empty()) {
    v.by_place[4] = Tensor(l.length_type, {n});
    for (int64_t i = 0; i < n; ++i)
      v.by_place[4].set_int(i, l.lengths[static_cast<size_t>(i) % l.lengths.size()]);
  }
  if (l.states) give(5, {d, n, h}, 1);
  if (l.states && lstm) give(6, {d, n, h}, 1);
  if (l.infinite) v.by_place[6].set_double(1, INFINITY);
  if (l.peepholes) give(7, {d, 3 * h}, 0.5);
  std::string head, operands;
  size_t last = 0;
  for (size_t i = 0; i < 8; ++i)
    if (v.by_place[i].defined()) last = i;
  for (size_t i = 0; i <= last; ++i) {
    const Tensor& t = v.by_place[i];
    operands += cat(i ? ", " : "", t.defined() ? cat("%", i) : "_");
    if (!t.defined()) continue;
    head += cat(i ? ", " : "", "%", i, ": ", name(t.dtype()), t.dims());
    v.inputs.push_back(t);
  }
  const std::string type(name(l.type)), last_state = cat(type, cat(Dims{d, n, h}));
  v.text = cat("graph \"g\"(", head, ") {\n  %y, %h", lstm ? ", %c" : "", " = ", l.op, "(", operands,
               ") {hidden = ", h, l.attrs, "} : ", type, cat(Dims{l.steps, d, n, h}), ", ", last_state,
               lstm ? cat(", ", last_state) : "", "\n  return %y, %h", lstm ? ", %c" : "", "\n}\n");
  return v;
}

// The problem as the back end would state it, for functions that are the defaults.
template <class T>
void emulate(const Layer& l, int multiprocessors, bool kept = true, bool tf32 = false, int splits = 1) {
  CAPTURE(l.op);
  CAPTURE(l.hidden);
  CAPTURE(l.attrs);
  CAPTURE(multiprocessors);
  const Values v = values_of(l);
  const ir::Graph graph = ir::parse_graph(v.text);
  const auto references =
      interp::references(graph, std::vector<ir::HostValue>(v.inputs.begin(), v.inputs.end()));
  Recurrence p;
  const std::string_view op = l.op, attrs = l.attrs;
  p.cell = op == "lstm" ? Recurrence::lstm : op == "gru" ? Recurrence::gru : Recurrence::rnn;
  p.type = l.type == DType::f32 ? Elem::f32 : l.type == DType::f16 ? Elem::f16 : Elem::bf16;
  p.reverse = attrs.find("\"reverse\"") != attrs.npos;
  p.linear_before_reset = attrs.find("linear_before_reset") != attrs.npos;
  p.input_forget = attrs.find("input_forget") != attrs.npos;
  p.clip = attrs.find("clip = 0.5") != attrs.npos ? 0.5f : 0;
  p.steps = l.steps;
  p.batch = l.batch;
  p.hidden = l.hidden;
  p.directions = l.both() ? 2 : 1;
  for (auto& f : p.functions)
    for (size_t i = 0; i < 3; ++i)
      f[i].code = i == 0 && p.cell != Recurrence::rnn ? CellFunction::sigmoid : CellFunction::tanh;
  p.multiprocessors = multiprocessors;
  p.tf32 = tf32;
  const int64_t columns = int64_t{1} * p.directions * p.gates() * p.hidden;
  std::vector<float> projected(static_cast<size_t>(int64_t{1} * l.steps * l.batch * columns));
  for (int64_t row = 0; row < int64_t{1} * l.steps * l.batch; ++row)
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < l.inputs; ++k)
        sum += v.by_place[0].get_double(row * l.inputs + k) * v.by_place[1].get_double(c * l.inputs + k);
      projected[static_cast<size_t>(row * columns + c)] = static_cast<float>(sum);
    }
  p.projected = projected.data();
  auto data = [&](size_t i) { return v.by_place[i].defined() ? v.by_place[i].data() : nullptr; };
  p.r = data(2);
  p.b = data(3);
  p.lengths = data(4);
  p.length_bytes = bits(l.length_type) / 8;
  uint32_t fault = 0;
  p.fault = &fault;
  p.h0 = data(5);
  p.c0 = data(6);
  p.peepholes = data(7);
  std::vector<Tensor> results;
  for (ir::ValueId out : graph.outputs) {
    results.emplace_back(l.type, *as_dims(graph.type(out).shape));
    for (int64_t i = 0; i < results.back().count(); ++i) results.back().set_double(i, NAN);
  }
  p.y = results[0].mutable_data();
  p.last_h = results[1].mutable_data();
  if (results.size() > 2) p.last_c = results[2].mutable_data();
  std::vector<Tagged> scratch(static_cast<size_t>(recurrence_scratch_bytes(p) / 8 + 1), {NAN, kNoTag});
  p.scratch = scratch.data();
  RecurrenceShares s = recurrence_shares(p);
  REQUIRE(s.shared_bytes > 0);
  CHECK(s.groups * s.blocks * p.directions <= std::max(multiprocessors, p.directions));
  using Way = RecurrenceWay;
  if (!kept) {
    s.way = s.way == Way::one_kept ? Way::one_read : Way::eight_read;
    s.splits = 1;
    s.shared_bytes = static_cast<int>(RecurrenceLayout(p, s).bytes);
  }
  CHECK(s.splits >= splits);
  CHECK((s.way == Way::tensor) == ((sizeof(T) == 2 || tf32) && s.entries > 1 && kept));
  auto kernel = s.way == Way::one_kept     ? &recurrence_kernel<T, Way::one_kept>
                : s.way == Way::tensor     ? &recurrence_kernel<T, Way::tensor>
                : s.way == Way::one_read   ? &recurrence_kernel<T, Way::one_read>
                : s.way == Way::eight_read ? &recurrence_kernel<T, Way::eight_read>
                                           : &recurrence_kernel < T,
       sizeof(T) == 2 ? Way::tensor : Way::eight_kept > ;
  Emulation::current() = Emulation();
  Emulation::current().allow(projected.data(), projected.size() * sizeof(float));
  for (int group = 0; group < s.groups * p.directions; ++group)
    Emulation::current().run(
        kRecurrenceThreads, {group, 0}, [&] { kernel(p, s); }, s.blocks, static_cast<size_t>(s.shared_bytes));
  CHECK(Emulation::current().outside() == 0);
  CHECK(Emulation::current().stuck() == 0);
  CHECK(fault == 0);
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(i);
    if (!tf32) CHECK(interp::judge(references[i], results[i]).reason == "");
    // A few roundings of states of about 1 to 11 bits.
    if (tf32)
      for (int64_t k = 0; k < results[i].count(); ++k)
        CHECK(std::abs(results[i].get_double(k) - references[i].truth.get_double(k)) < 4e-3);
  }
}

const Layer kLayers[] = {
    {"lstm", 5, 1, 3, 10},
    {"lstm", 4, 3, 5, 7, DType::f32, ", direction = \"bidirectional\"", {4, 0, 2}},
    {"lstm",
     3,
     2,
     4,
     6,
     DType::f32,
     ", direction = \"reverse\", input_forget = true, clip = 0.5",
     {},
     false,
     false},
    {"lstm", 3, 9, 2, 12, DType::f32, "", {3, 1, 0, 2}, true, true, true},
    {"gru", 5, 2, 3, 9},
    {"gru", 4, 3, 3, 8, DType::f32, ", direction = \"bidirectional\", linear_before_reset = true", {2, 4, 0}},
    {"gru", 4, 9, 3, 8, DType::f32, ", direction = \"bidirectional\", clip = 0.5", {4, 0, 3}},
    {"rnn", 6, 4, 3, 5, DType::f32, ", direction = \"reverse\"", {6, 1, 3, 0}},
    {"lstm", 0, 2, 3, 5},
    {"lstm", 3, 2, 0, 5},  // no inputs
    {"gru", 3, 4, 3, 5, DType::f32, "", {2, 0, 3}, true, true, false, DType::i64},
};

const char* const kBoth = ", direction = \"bidirectional\"";
const Layer kLarge[] = {
    {"lstm", 40, 1, 33, 257, DType::f32, kBoth},
    {"lstm", 12, 33, 16, 130, DType::f16, kBoth, {12, 3, 0, 7}},
    {"gru", 12, 20, 16, 200, DType::f32, kBoth, {12, 3, 0, 7}},
    {"gru", 12, 5, 16, 200, DType::bf16, ", linear_before_reset = true"},
    {"rnn", 30, 17, 8, 300, DType::f32},
    {"lstm", 4, 3, 8, 1800, DType::f32},  // R is not kept
    {"lstm", 3, 300, 8, 64, DType::f32},
    {"rnn", 5, 2, 8, 64, DType::f32, ", activations = texts[\"Elu\"], alpha = reals[0.7]"},
    {"gru", 5, 2, 8, 64, DType::f32,
     ", activations = texts[\"HardSigmoid\", \"Softsign\"], alpha = reals[0.3], beta = reals[0.4]"},
    {"lstm", 5, 2, 8, 64, DType::f32,
     ", activations = texts[\"Sigmoid\", \"ScaledTanh\", \"Relu\"], alpha = reals[0.8], beta = reals[1.2]"},
};

}  // namespace

TEST_CASE("recurrent layers: the kernel's text, by blocks that hand the state to each other") {
  for (const Layer& l : kLayers)
    for (int multiprocessors : {1, 4, 7}) emulate<float>(l, multiprocessors);
  emulate<float>(kLayers[1], 4, false);
  emulate<float>(kLayers[0], 2, false);
  const char* const both = ", direction = \"bidirectional\"";
  for (int multiprocessors : {2, 5, 12}) {
    emulate<__half>({"lstm", 3, 1, 4, 8, DType::f16}, multiprocessors);
    emulate<__half>({"lstm", 3, 11, 4, 37, DType::f16, both, {3, 0, 2}}, multiprocessors);
    emulate<__nv_bfloat16>({"gru", 3, 9, 4, 22, DType::bf16, both}, multiprocessors);
    emulate<__nv_bfloat16>({"lstm", 3, 70, 4, 20, DType::bf16}, multiprocessors);
  }
  emulate<__half>({"gru", 3, 3, 4, 21, DType::f16}, 2, false);
  // More warps than rows: they share out the sums.
  for (const char* op : {"lstm", "gru"}) emulate<__half>({op, 2, 3, 4, 70, DType::f16}, 12, true, false, 2);
  for (const Layer& l : {kLayers[1], kLayers[3], kLayers[6], Layer{"lstm", 3, 11, 4, 37}})
    for (int multiprocessors : {2, 5}) emulate<float>(l, multiprocessors, true, true);
}

TEST_CASE("recurrent layers: an infinite cell stays one where no peepholes are given") {
  Layer l{"lstm", 3, 2, 3, 5};
  l.infinite = true;
  emulate<float>(l, 4);
}

TEST_CASE("recurrent layers: a length below 0 or beyond the steps is reported") {
  constexpr int kSteps = 2, kBatch = 3, kHidden = 4;
  const std::vector<float> projected(kSteps * kBatch * kHidden, 0), r(kHidden * kHidden, 0);
  auto fault_of = [&](std::vector<int64_t> lengths) {
    Recurrence p;
    p.cell = Recurrence::rnn;
    p.steps = kSteps;
    p.batch = kBatch;
    p.hidden = kHidden;
    p.multiprocessors = 4;
    p.projected = projected.data();
    p.r = r.data();
    p.lengths = lengths.data();
    p.length_bytes = 8;
    uint32_t fault = 0;
    p.fault = &fault;
    std::vector<Tagged> scratch(static_cast<size_t>(recurrence_scratch_bytes(p) / 8 + 1), {NAN, kNoTag});
    p.scratch = scratch.data();
    RecurrenceShares s = recurrence_shares(p);
    s.way = RecurrenceWay::one_kept;
    s.shared_bytes = static_cast<int>(RecurrenceLayout(p, s).bytes);
    Emulation::current() = Emulation();
    Emulation::current().allow(projected.data(), projected.size() * sizeof(float));
    for (int group = 0; group < s.groups; ++group)
      Emulation::current().run(
          kRecurrenceThreads, {group, 0}, [&] { recurrence_kernel<float, RecurrenceWay::one_kept>(p, s); },
          s.blocks, static_cast<size_t>(s.shared_bytes));
    return fault;
  };
  CHECK(fault_of({0, 2, 1}) == 0);
  CHECK(fault_of({0, 3, 1}) == 1);
  CHECK(fault_of({0, 2, -1}) == 1);
  CHECK(fault_of({int64_t{1} << 32, 2, 0}) == 1);
}

TEST_CASE("recurrent layers: shares of a GPU") {
  Recurrence p;
  p.steps = 128;
  p.hidden = 512;
  for (int batch : {1, 3, 32, 128, 4096})
    for (int hidden : {1, 63, 512, 1024, 2048, 5000})
      for (Elem type : {Elem::f32, Elem::f16})
        for (int directions : {1, 2}) {
          p.batch = batch;
          p.hidden = hidden;
          p.type = type;
          p.directions = directions;
          CAPTURE(batch);
          CAPTURE(hidden);
          const RecurrenceShares s = recurrence_shares(p);
          CHECK(s.shared_bytes > 0);
          CHECK(s.shared_bytes <= 227 * 1024);
          CHECK(s.groups * s.blocks * directions <= 132);
          CHECK(s.entries * s.groups >= batch);
          CHECK(s.entries * (s.groups - 1) < batch);
          CHECK(s.units * s.blocks >= hidden);
          CHECK(s.units * (s.blocks - 1) < hidden);
          CHECK(s.tile % entries_at_once(s.way) == 0);
          CHECK(s.splits >= 1);
        }
  p.batch = 1;
  p.hidden = 512;
  p.type = Elem::f32;
  p.directions = 1;
  CHECK(recurrence_shares(p).way == RecurrenceWay::one_kept);
  p.batch = 32;
  CHECK(recurrence_shares(p).way == RecurrenceWay::eight_kept);
  p.tf32 = true;
  CHECK(recurrence_shares(p).way == RecurrenceWay::tensor);
  p.tf32 = false;
  CHECK(recurrence_shares(p).groups > 1);  // a block needs the states of some entries alone
  p.type = Elem::f16;
  CHECK(recurrence_shares(p).way == RecurrenceWay::tensor);
  p.hidden = 5000;
  CHECK(!keeps_rows(recurrence_shares(p).way));
}

TEST_CASE("recurrent layers are taken in all forms but f64") {
  for (Layer l : kLayers) {
    const Values v = values_of(l);
    CHECK(GpuCase(v.text, v.inputs).refusal("cuda.recurrent") == "");
  }
  for (const Layer& l : kLarge) {
    const ir::Graph graph = ir::parse_graph(values_of(l).text);
    CHECK(test::cuda_registry()
              .find("cuda.recurrent")
              ->refuse(graph, graph.order().front(), device::cuda_target(90)) == "");
  }
  auto refusal_of = [](std::string_view hidden) {
    const ir::Graph graph =
        ir::parse_graph(cat("graph \"g\"(%x: f16[4,2,3], %w: f16[2,", hidden, ",3], %r: f16[2,", hidden, ",",
                            hidden, "]) {\n  %y, %h = rnn(%x, %w, %r) {hidden = ", hidden,
                            ", direction = \"bidirectional\"} : f16[4,2,2,", hidden, "], f16[2,2,", hidden,
                            "]\n  return %y\n}\n"));
    return test::cuda_registry()
        .find("cuda.recurrent")
        ->refuse(graph, graph.order().front(), device::cuda_target(90));
  };
  CHECK(refusal_of("4096") == "");
  CHECK(refusal_of("12000") ==
        "keeps a state of 12000 values on a multiprocessor, which not every GPU has room for");
  const Values v = values_of({"lstm", 2, 1, 2, 3, DType::f64});
  CHECK(GpuCase(v.text, v.inputs).refusal("cuda.recurrent") == "needs f32, f16 or bf16, got f64");
}

TEST_CASE("recurrent layers of few sizes on the device") {
  PELTON_NEEDS_GPU();
  for (const Layer& l : {kLayers[1], kLayers[5], Layer{"lstm", 3, 11, 4, 37, DType::f16}}) {
    const Values v = values_of(l);
    GpuCase(v.text, v.inputs).check("cuda.recurrent");
  }
}

TEST_CASE("recurrent layers on the device") {
  PELTON_NEEDS_GPU();
  for (Layer l : kLayers)
    for (DType type : {DType::f32, DType::f16, DType::bf16}) {
      l.type = type;
      const Values v = values_of(l);
      CAPTURE(v.text);
      GpuCase(v.text, v.inputs).check("cuda.recurrent");
    }
  for (const Layer& l : kLarge) {
    const Values v = values_of(l);
    CAPTURE(v.text);
    GpuCase(v.text, v.inputs).check("cuda.recurrent");
  }
}
