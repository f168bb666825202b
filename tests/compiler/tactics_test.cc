// SPDX-License-Identifier: Apache-2.0
// Timings: their file, the decision, and that a compilation follows the file.
#include "compiler/tactics.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "compiler/measured.h"
#include "ir/text.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::compiler;
using pelton::test::expect_error;

namespace {

// Copies its operand; the slow one takes its time.
template <int kMilliseconds>
class Copy final : public backend::Kernel {
 public:
  explicit Copy(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {}
  void run(const backend::RunArgs& args) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(kMilliseconds));
    std::memcpy(args.out[0], args.in[0], bytes_);
  }

 private:
  size_t bytes_;
};
template <int kMilliseconds>
backend::Implementation copier(const char* name, bool timed) {
  return {name,
          {"relu"},
          [](const ir::Graph&, ir::NodeId, const device::Target&) { return std::string(); },
          [](const backend::Instance& i, const device::Target&) -> std::unique_ptr<backend::Kernel> {
            return std::make_unique<Copy<kMilliseconds>>(i.outputs[0].bytes());
          },
          timed};
}
backend::Registry two_ways() {
  backend::Registry r;
  r.add(copier<3>("test.slow", true));
  r.add(copier<0>("test.fast", false));
  r.add(copier<0>("test.untimed", false));
  return r;
}
std::string relu_runs_on(const runtime::Plan& plan) {
  for (size_t i = 0; i < plan.choices.size(); ++i)
    if (plan.graph[plan.graph.order()[i]].is("relu")) return plan.choices[i].implementation;
  return "";
}
runtime::Plan compile_relu(const backend::Registry& registry, Tactics* tactics, double seconds) {
  compiler::Measured measured;
  measured.tactics = tactics;
  measured.time_budget_seconds = seconds;
  device::Target target;
  target.name = "cpu-scalar";
  return compile(ir::parse_graph("graph \"g\"(%x: f32[4]) { %y = relu(%x) : f32[4] return %y }"), target, {},
                 registry, measured);
}

}  // namespace

TEST_CASE("the first way is kept unless another gains more than noise") {
  CHECK(decide({{"a", 10, 0.01}, {"b", 9.8, 0.01}}).choice == "a");  // less than 3%
  CHECK(decide({{"a", 10, 0.01}, {"b", 9.5, 0.01}}).choice == "b");
  CHECK(decide({{"a", 10, 0.2}, {"b", 9, 0.01}}).choice == "a");  // the first is that noisy
  CHECK(decide({{"a", 10, 0.01}, {"b", 9, 0.2}}).choice == "a");
  CHECK(decide({{"a", 10, 0}, {"b", 9, 0}, {"c", 8, 0}}).choice == "c");
}

TEST_CASE("tactics are text that reads back; damage is named by line") {
  Tactics t;
  CHECK_FALSE(t.changed());
  t.set("cpu-avx2, X, threads 2", "relu f32[4] -> f32[4] #0",
        decide({{"test.a", 1.5, 0.01}, {"test.b", 1, 0}}));
  t.set("cpu-avx2, X, threads 2", "plan g #1 N=8", decide({{"nhwc", 2, 0}}));
  CHECK(t.changed());
  const std::string text = t.str();
  const Tactics back = Tactics::parse(text, "file");
  CHECK(back.str() == text);
  const Tactic* found = back.find("cpu-avx2, X, threads 2", "relu f32[4] -> f32[4] #0");
  REQUIRE(found);
  CHECK(found->choice == "test.b");
  CHECK(found->candidates[0].ms == 1.5);
  CHECK_FALSE(back.find("cpu-avx2, X, threads 1", "plan g #1 N=8"));
  expect_error(ErrorCode::bad_format, {"line 1", "pelton tactics 1", "t.txt"},
               [] { Tactics::parse("x\n", "t.txt"); });
  expect_error(ErrorCode::bad_format, {"line 2", "four fields"},
               [] { Tactics::parse("pelton tactics 1\na\tb\tc\n", "t.txt"); });
  expect_error(ErrorCode::bad_format, {"line 2", "'c=-1~0'", "name=ms~noise"},
               [] { Tactics::parse("pelton tactics 1\na\tb\tc\tc=-1~0\n", "t.txt"); });
  expect_error(ErrorCode::bad_format, {"line 2", "chooses 'd'"},
               [] { Tactics::parse("pelton tactics 1\na\tb\td\tc=1~0\n", "t.txt"); });
}

TEST_CASE("what is timed is chosen, kept in the tactics and not timed again") {
  const backend::Registry registry = two_ways();
  CHECK(relu_runs_on(compile_relu(registry, nullptr, 0)) == "test.slow");
  Tactics tactics;
  CHECK(relu_runs_on(compile_relu(registry, &tactics, 0)) == "test.slow");  // no time, nothing known
  CHECK_FALSE(tactics.changed());
  const runtime::Plan timed = compile_relu(registry, &tactics, 10);
  CHECK(relu_runs_on(timed) == "test.fast");
  CHECK(tactics.str().find("test.untimed") == std::string::npos);  // behind the first that is not timed
  Tactics known = Tactics::parse(tactics.str(), "file");
  const runtime::Plan again = compile_relu(registry, &known, 0);
  CHECK(relu_runs_on(again) == "test.fast");
  CHECK_FALSE(known.changed());
  CHECK(again.choices.back().seconds == timed.choices.back().seconds);
  // A file is followed whatever its figures say.
  std::string other = tactics.str();
  const size_t at = other.find("\ttest.fast\t");
  REQUIRE(at != std::string::npos);
  other.replace(at, 11, "\ttest.slow\t");
  Tactics slow = Tactics::parse(other, "file");
  CHECK(relu_runs_on(compile_relu(registry, &slow, 10)) == "test.slow");
}

namespace {

// A product that yields zeros; how long it takes, and what else it yields, depends on the type and the rows.
class TimedProduct final : public backend::Kernel {
 public:
  TimedProduct(const backend::TensorSpec& out, int milliseconds, bool infinite)
      : out_(out), milliseconds_(milliseconds), infinite_(infinite) {}
  void run(const backend::RunArgs& args) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds_));
    std::memset(args.out[0], 0, static_cast<size_t>(out_.bytes()));
    // The largest exponent and no digit behind it: infinity in bf16.
    if (infinite_) static_cast<uint16_t*>(args.out[0])[0] = 0x7F80;
  }

 private:
  backend::TensorSpec out_;
  int milliseconds_;
  bool infinite_;
};
int slow_bf16_columns = 0;  // products of this many columns are slow in bf16
int slow_f32 = 0;           // milliseconds of any in f32
bool infinite_bf16 = false;
backend::Registry products() {
  backend::Registry r;
  r.add({"test.product",
         {"matmul"},
         [](const ir::Graph&, ir::NodeId, const device::Target&) { return std::string(); },
         [](const backend::Instance& i, const device::Target&) -> std::unique_ptr<backend::Kernel> {
           const bool low = i.inputs[0].dtype == DType::bf16;
           const int ms = low ? (i.outputs[0].dims[1] == slow_bf16_columns ? 20 : 0) : slow_f32;
           return std::make_unique<TimedProduct>(i.outputs[0], ms, low && infinite_bf16);
         }});
  return r;
}
std::string chain_of_products(int count, const char* odd) {
  std::string text = "graph \"g\"(%x: f32[4,8], %w: f32[8,8], %v: f32[8,16], %u: f32[16,8]) {\n";
  std::string at = "%x";
  for (int i = 0; i < count; ++i) {
    text += cat("  %a", i, " = matmul(", at, ", %w) : f32[4,8]\n");
    at = cat("%a", i);
  }
  if (*odd) {
    text += cat("  %b = matmul(", at, ", %v) : f32[4,16]\n  %c = matmul(%b, %u) : f32[4,8]\n");
    at = "%c";
  }
  return text + "  return " + at + "\n}";
}
runtime::Plan compile_products(const std::string& text, const std::string& precision,
                               const backend::Registry& registry, Tactics* tactics) {
  compiler::Measured measured;
  measured.tactics = tactics;
  measured.time_budget_seconds = 20;
  compiler::Options options;
  options.precision = precision;
  options.disabled = {"siblings", "product_shape", "fusion"};
  return compile(ir::parse_graph(text), device::detect_cpu(1), options, registry, measured);
}
std::string notes_of(const runtime::Plan& plan, std::string_view pass) {
  std::string out;
  for (const runtime::PassReport& p : plan.passes)
    if (p.name == pass)
      for (const std::string& note : p.notes) out += note + "\n";
  return out;
}

}  // namespace

TEST_CASE("the fastest of several precisions, and the choice is kept") {
  const backend::Registry r = products();
  Tactics tactics;
  slow_f32 = 4;
  CHECK(compile_products(chain_of_products(2, ""), "fp32,bf16", r, &tactics).precision == "bf16");
  CHECK(tactics.changed());
  slow_f32 = 0;
  slow_bf16_columns = 8;
  Tactics later = Tactics::parse(tactics.str(), "");
  CHECK(compile_products(chain_of_products(2, ""), "fp32,bf16", r, &later).precision == "bf16");
  Tactics none;
  CHECK(compile_products(chain_of_products(2, ""), "best", r, &none).precision == "fp32");
  slow_bf16_columns = 0;
}

TEST_CASE("a precision whose results are not finite is left out, and says so") {
  const backend::Registry r = products();
  Tactics tactics;
  slow_f32 = 4;
  infinite_bf16 = true;
  const runtime::Plan plan = compile_products(chain_of_products(2, ""), "fp32,bf16", r, &tactics);
  infinite_bf16 = false;
  slow_f32 = 0;
  CHECK(plan.precision == "fp32");
  CHECK(notes_of(plan, "best").find("bf16 is left out: its results are not finite") != std::string::npos);
}

TEST_CASE("a segment that is slower in the lower precision stays in f32") {
  const backend::Registry r = products();
  Tactics tactics;
  slow_f32 = 4;  // f32 is slow too, but less so than bf16 is for 16 columns
  slow_bf16_columns = 16;
  const runtime::Plan plan = compile_products(chain_of_products(6, "odd"), "fp32,bf16", r, &tactics);
  slow_f32 = slow_bf16_columns = 0;
  int low = 0, wide_in_f32 = 0;
  for (ir::NodeId id : plan.graph.order()) {
    if (!plan.graph[id].is("matmul")) continue;
    const ir::Type& t = plan.graph.type(plan.graph[id].inputs[0]);
    low += t.dtype == DType::bf16;
    wide_in_f32 += t.dtype == DType::f32;
  }
  CAPTURE(notes_of(plan, "best"));
  CHECK(plan.precision == "bf16");
  CHECK(low == 6);
  CHECK(wide_in_f32 == 2);
}

TEST_CASE("layers whose values fp16 cannot hold stay in f32, and the report names them") {
  const char* text = R"(graph "g"(%x: f32[2,4]) {
  %w = constant() {value = tensor<f32[4,4]>{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}} : f32[4,4]
  %s = constant() {value = tensor<f32[4,4]>{1000, 0, 0, 0, 0, 1000, 0, 0, 0, 0, 1000, 0, 0, 0, 0, 1000}} : f32[4,4]
  %a = matmul(%x, %w) : f32[2,4]
  %b = matmul(%a, %s) : f32[2,4]
  return %b
})";
  backend::Registry none;
  compiler::Measured measured;
  measured.quantize.samples = {{from_doubles(DType::f32, {2, 4}, {1, 2, 3, 4, 5, 6, 7, 90})}};
  compiler::Options options;
  options.precision = "fp16";
  const runtime::Plan plan = compile(ir::parse_graph(text), device::detect_cpu(1), options, none, measured);
  const std::string notes = notes_of(plan, "precision");
  CAPTURE(notes);
  CHECK(notes.find("stays in f32: its values reach 90000") != std::string::npos);
  const Tensor y = run_samples(plan, measured.quantize.samples, none, "a test")[0][0];
  CHECK(y.get_double(7) == 90000);
}
