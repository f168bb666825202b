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
