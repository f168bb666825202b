// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan_file.h"

#include <doctest/doctest.h>

#include <cstring>

#include "base/file.h"
#include "base/philox.h"
#include "device/artifacts.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "runtime/executable.h"
#include "runtime/sections.h"
#include "runtime/test_kernels.h"
#include "runtime/weight_store.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace pelton;
using namespace pelton::runtime;
using pelton::test::expect_error;
using pelton::test::TempDir;

namespace {

backend::Registry& registry() {
  static auto* r = [] {
    auto* made = new backend::Registry;
    test::add_test_kernels(*made);
    return made;
  }();
  return *r;
}

// The same weights twice, a scalar, a guard with its variant, a reference node.
Plan sample() {
  std::string ramp;
  for (int i = 0; i < 40; ++i) append(ramp, cat(i ? ", " : "", i * 0.5));
  std::string text = cat(R"(graph "sample"(%x: f32[N,40] @"in:0") {
  symbol N in [1, 64]
  %w = constant() {value = tensor<f32[40]>{)",
                         ramp, R"(}} : f32[40]
  %same = constant() {value = tensor<f32[40]>{)",
                         ramp, R"(}} : f32[40]
  %two = constant() {value = tensor<f32[]>{2}} : f32[]
  %0 = add(%x, %w) : f32[N,40] @"first"
  %1 = mul(%0, %two) : f32[N,40]
  %2 = add(%1, %same) : f32[N,40]
  return %2 @"out"
})");
  Plan plan;
  plan.graph = ir::parse_graph(text);
  plan.target = device::detect_cpu(2);
  plan.target.name = "cpu-test";
  plan.choices = choose_all(plan.graph, registry(), plan.target);
  plan.source = "sample.onnx";
  plan.source_sha256 = std::string(64, 'a');
  plan.options = {{"precision", "fp32"}};
  plan.optimum = {{"N", 8}};
  plan.passes = {{"fusion", 3, 0.25, {"kept 3 groups"}}};
  auto other = std::make_shared<Plan>(plan);
  plan.graph.guards.push_back({ir::Fact::Relation::not_equal, Dim::symbol("N"), Dim(3), "test"});
  plan.unguarded = other;
  return plan;
}

std::string saved(const Plan& plan) {
  TempDir dir;
  save_plan(plan, dir / "a.pelton");
  return read_file(dir / "a.pelton");
}

std::shared_ptr<const Plan> load_bytes(const std::string& bytes, const LoadOptions& options = {}) {
  auto aligned = std::make_shared<Tensor>(DType::u8, Dims{static_cast<int64_t>(bytes.size())});
  std::memcpy(aligned->mutable_data(), bytes.data(), bytes.size());
  return parse_plan({static_cast<const char*>(aligned->data()), bytes.size()}, aligned, options);
}

Tensor input(int64_t n) {
  Tensor t(DType::f32, {n, 40});
  for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, static_cast<double>(i % 7));
  return t;
}

// Recomputes what the container says about itself, so that only the content is wrong.
std::string with_section(const std::string& bytes, const std::string& name, std::string content) {
  auto span = std::as_bytes(std::span(bytes.data(), bytes.size()));
  std::vector<SectionContent> sections;
  std::vector<std::string> kept;
  for (const Section& s : read_sections(span)) {
    kept.push_back(s.name == name ? content : bytes.substr(s.offset, s.size));
    sections.push_back({s.name, s.flags, kSectionAlignment, {}});
  }
  for (size_t i = 0; i < kept.size(); ++i)
    sections[i].parts = {std::as_bytes(std::span(kept[i].data(), kept[i].size()))};
  TempDir dir;
  write_sections(dir / "b.pelton", sections);
  return read_file(dir / "b.pelton");
}

std::string section_text(const std::string& bytes, const std::string& name) {
  for (const Section& s : read_sections(std::as_bytes(std::span(bytes.data(), bytes.size()))))
    if (s.name == name) return bytes.substr(s.offset, s.size);
  return "";
}

}  // namespace

TEST_CASE("plan file: what is saved is what is loaded") {
  Plan plan = sample();
  TempDir dir;
  save_plan(plan, dir / "a.pelton");
  auto back = load_plan(dir / "a.pelton");
  CHECK(ir::print(back->graph) == ir::print(plan.graph));
  CHECK(back->source == "sample.onnx");
  CHECK(back->source_sha256 == plan.source_sha256);
  CHECK(back->target.name == "cpu-test");
  CHECK(back->target.threads == 2);
  CHECK(back->options == plan.options);
  CHECK(back->optimum == plan.optimum);
  REQUIRE(back->passes.size() == 1);
  CHECK(back->passes[0].notes == plan.passes[0].notes);
  CHECK(back->passes[0].seconds == 0);  // times are never saved
  REQUIRE(back->choices.size() == plan.choices.size());
  for (size_t i = 0; i < plan.choices.size(); ++i)
    CHECK(back->choices[i].implementation == plan.choices[i].implementation);
  REQUIRE(back->unguarded);
  CHECK(back->unguarded->graph.guards.empty());
}

TEST_CASE("plan file: what back ends made travels with the plan") {
  Plan plan = sample();
  CHECK(section_text(saved(plan), "artifacts").empty());
  plan.artifacts = std::make_shared<device::Artifacts>();
  CHECK(section_text(saved(plan), "artifacts").empty());
  plan.artifacts->add("tactics", "machine\nproblem", "way 2");
  plan.artifacts->add("kernels", std::string("text\0of", 7),
                      std::string("\x7f"
                                  "ELF\0",
                                  5));
  const std::string bytes = saved(plan);
  auto back = load_bytes(bytes);
  REQUIRE(back->artifacts);
  CHECK(back->artifacts->entries() == plan.artifacts->entries());
  CHECK(back->artifacts->find("tactics", "machine\nproblem") == "way 2");
  CHECK(!back->artifacts->find("kernels", "machine\nproblem"));
  CHECK(!load_bytes(bytes, {.trusted = false})->artifacts);
  const std::string content = section_text(bytes, "artifacts");
  for (size_t cut : {size_t{1}, size_t{9}, content.size() - 1})
    expect_error(ErrorCode::bad_format, {"artifacts", "cut off"},
                 [&] { load_bytes(with_section(bytes, "artifacts", content.substr(0, cut))); });
  std::string longer = content;
  longer[0] = '\xff';
  longer[7] = '\xff';
  expect_error(ErrorCode::bad_format, {"cut off"},
               [&] { load_bytes(with_section(bytes, "artifacts", longer)); });
}

TEST_CASE("plan file: equal plans give equal bytes, weights are stored once and aligned") {
  std::string a = saved(sample()), b = saved(sample());
  CHECK(a == b);
  CHECK(section_text(a, "weights.index").size() == 48);  // one blob for both constants and the variant
  for (const Section& s : read_sections(std::as_bytes(std::span(a.data(), a.size())))) {
    CHECK(s.offset % 64 == 0);
    if (s.name == "weights") CHECK(s.offset % 4096 == 0);
  }
  CHECK(section_text(a, "manifest").find("seconds") == std::string::npos);
}

TEST_CASE("plan file: a loaded plan runs in place on the mapped weights") {
  Plan plan = sample();
  TempDir dir;
  save_plan(plan, dir / "a.pelton");
  auto back = load_plan(dir / "a.pelton");
  const Tensor* w = back->graph.constant(back->graph[back->graph.order()[0]].outputs[0]);
  REQUIRE(w);
  CHECK(reinterpret_cast<uintptr_t>(w->data()) % 64 == 0);
  auto e = Executable::create(back, registry(), device::detect_cpu(1));
  for (int64_t n : {1, 3, 8}) {  // 3 breaks the guard and runs the variant
    auto got = e->run({input(n)});
    auto expected = interp::run(plan.graph, {input(n)}).outputs;
    CHECK(got[0].tensor.same_bytes(expected[0].tensor));
  }
}

TEST_CASE("plan file: two plans with the same weights share them") {
  TempDir dir;
  save_plan(sample(), dir / "a.pelton");
  save_plan(sample(), dir / "b.pelton");
  auto a = load_plan(dir / "a.pelton"), b = load_plan(dir / "b.pelton");
  auto w = [](const Plan& p) { return p.graph.constant(p.graph[p.graph.order()[0]].outputs[0])->data(); };
  CHECK(w(*a) == w(*b));
  CHECK(WeightStore::instance().bytes() >= 160);
  a.reset();
  CHECK(static_cast<const float*>(w(*b))[39] == 19.5f);
}

TEST_CASE("plan file: damage is refused naming the section") {
  std::string good = saved(sample());
  for (const Section& s : read_sections(std::as_bytes(std::span(good.data(), good.size())))) {
    CAPTURE(s.name);
    std::string bad = good;
    bad[s.offset + s.size / 2] = static_cast<char>(bad[s.offset + s.size / 2] ^ 0x20);
    expect_error(ErrorCode::bad_format, {cat("section '", s.name, "'").c_str(), "checksum", "damaged"},
                 [&] { load_bytes(bad); });
  }
  std::string table = good;
  table[70] ^= 1;
  expect_error(ErrorCode::bad_format, {"section table", "checksum"}, [&] { load_bytes(table); });
  expect_error(ErrorCode::bad_format, {"its header says"},
               [&] { load_bytes(good.substr(0, good.size() - 1)); });
  expect_error(ErrorCode::bad_format, {"its header says"}, [&] { load_bytes(good + "x"); });
  for (size_t size : {size_t{0}, size_t{7}, size_t{63}})
    expect_error(ErrorCode::bad_format, {"no plan"}, [&] { load_bytes(good.substr(0, size)); });
}

TEST_CASE("plan file: files of the future and of others are refused, unknown optional sections skipped") {
  std::string good = saved(sample());
  std::string future = good;
  future[8] = 2;
  expect_error(ErrorCode::unsupported_version, {"version 2", "reads 1"}, [&] { load_bytes(future); });
  expect_error(ErrorCode::bad_format, {"no plan"},
               [&] { load_bytes("graph \"g\"() {}" + std::string(100, ' ')); });

  auto with_extra = [&](uint32_t flags) {
    std::vector<SectionContent> sections;
    std::vector<std::string> kept;
    for (const Section& s : read_sections(std::as_bytes(std::span(good.data(), good.size())))) {
      kept.push_back(good.substr(s.offset, s.size));
      sections.push_back({s.name, s.flags, kSectionAlignment, {}});
    }
    kept.push_back("anything");
    sections.push_back({"device.sm_90", flags, kSectionAlignment, {}});
    for (size_t i = 0; i < kept.size(); ++i)
      sections[i].parts = {std::as_bytes(std::span(kept[i].data(), kept[i].size()))};
    TempDir dir;
    write_sections(dir / "c.pelton", sections);
    return read_file(dir / "c.pelton");
  };
  CHECK(load_bytes(with_extra(0))->source == "sample.onnx");
  expect_error(ErrorCode::unsupported_version, {"section 'device.sm_90'", "newer version"},
               [&] { load_bytes(with_extra(kRequired)); });
}

TEST_CASE("plan file: wrong content under right checksums is refused naming its section") {
  std::string good = saved(sample()), manifest = section_text(good, "manifest");
  auto manifest_error = [&](const std::string& from, const std::string& to,
                            std::initializer_list<const char*> words) {
    std::string changed = manifest;
    size_t at = changed.find(from);
    REQUIRE(at != changed.npos);
    changed.replace(at, from.size(), to);
    expect_error(ErrorCode::bad_format, words, [&] { load_bytes(with_section(good, "manifest", changed)); });
  };
  manifest_error("\"choices\":[", "\"choices\":[{},", {"'choices'", "6 nodes", "section 'manifest'"});
  manifest_error("\"precision\":\"fp32\",\"source\"", "\"precision\":7,\"source\"", {"'precision'", "text"});
  manifest_error("\"implementation\":\"reference\"", "\"implementation\":\"none\"", {"mul", "work to do"});
  manifest_error("{", "[", {"no JSON object"});
  std::string index = section_text(good, "weights.index");
  std::string outside = index;
  outside[33] = 64;  // offset 16384
  expect_error(ErrorCode::bad_format, {"blob 0", "does not lie in the weights", "section 'weights.index'"},
               [&] { load_bytes(with_section(good, "weights.index", outside)); });
  std::string shorter = index;
  shorter[40] = 4;
  expect_error(ErrorCode::bad_format, {"blob 0 has 4 bytes", "needs 160"},
               [&] { load_bytes(with_section(good, "weights.index", shorter)); });
  expect_error(ErrorCode::bad_format, {"section 'graph'", "ends early"},
               [&] { load_bytes(with_section(good, "graph", section_text(good, "graph").substr(0, 100))); });
}

TEST_CASE("plan file: random damage never gets past the loader unnoticed") {
  std::string good = saved(sample());
  RandomStream random{3};
  for (uint64_t i = 0; i < 500; ++i) {
    std::string bad = good;
    size_t at = random.bits(2 * i) % bad.size();
    bad[at] = static_cast<char>(bad[at] ^ (1 + random.bits(2 * i + 1) % 255));
    bool padding = true;
    for (const Section& s : read_sections(std::as_bytes(std::span(good.data(), good.size()))))
      padding &= !(at >= s.offset && at < s.offset + s.size);
    try {
      load_bytes(bad);
      CHECK(padding);  // only bytes that belong to nothing may change
      CHECK(at >= 40);
    } catch (const Error& e) {
      CHECK(e.code() != ErrorCode::internal);
    }
  }
}

// tests/data/plans has a plan of every format version, written when it was new, beside the text of its graph.
TEST_CASE("plan file: plans of every format version still load and run") {
  for (uint32_t v = 1; v <= kPlanVersion; ++v) {
    CAPTURE(v);
    auto plan = load_plan(cat("tests/data/plans/v", v, ".pelton"));
    CHECK(plan->source == cat("v", v, ".plt"));
    CHECK(plan->target.name == "cpu-avx2");
    ir::Graph text = ir::parse_graph(read_file(cat("tests/data/plans/v", v, ".plt")));
    auto e = Executable::create(plan, registry(), device::detect_cpu(1));
    Tensor x = Tensor::full(DType::f32, {3, 32}, 0.5);
    CHECK(e->run({x})[0].tensor.same_bytes(interp::run(text, {x}).outputs[0].tensor));
  }
}
