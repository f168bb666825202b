// SPDX-License-Identifier: Apache-2.0
// Ragged and padded batches, the response cache, the rate limiter, tags on series.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "fixture.h"
#include "serve/core/join.h"

namespace pelton::serve::test {
namespace {

// An engine on whole tensors: keeps what it sees, OUTPUT0 is INPUT0 as it came.
struct SeenTensors {
  std::mutex mutex;
  std::vector<std::vector<TensorValue>> runs;
};
class WholeBackend final : public Backend {
 public:
  explicit WholeBackend(SeenTensors& seen) : seen_(seen) {}
  std::shared_ptr<const void> complete(Node&, const ModelDir&, int64_t) const override { return nullptr; }
  std::shared_ptr<Engine> load(const ModelConfig& config, const ModelDir&, int64_t,
                               std::shared_ptr<const void>) const override {
    struct Whole final : TensorInstance {
      Whole(const ModelConfig& c, SeenTensors& s) : TensorInstance(c), seen(s) {}
      std::vector<TensorValue> run(const std::vector<TensorValue>& in, const CancelToken*) override {
        std::lock_guard lock(seen.mutex);
        seen.runs.push_back(in);
        TensorValue out = in[0];
        out.name = "OUTPUT0";
        return {out};
      }
      SeenTensors& seen;
    };
    struct WholeEngine final : Engine {
      WholeEngine(ModelConfig c, SeenTensors& s) : config(std::move(c)), seen(s) {}
      std::unique_ptr<Instance> make_instance(int) override { return std::make_unique<Whole>(config, seen); }
      const ModelConfig config;
      SeenTensors& seen;
    };
    return std::make_shared<WholeEngine>(config, seen_);
  }

 private:
  SeenTensors& seen_;
};

std::string ragged(const std::string& more) {
  return "backend: \"whole\" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 300000 "
         "preferred_batch_size: [ 3 ] } input { name: \"INPUT0\" data_type: TYPE_INT32 dims: -1 "
         "allow_ragged_batch: true } "
         "output { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: -1 } " +
         more;
}

std::string batch_input(const std::string& kind, const std::string& name) {
  return "batch_input { kind: BATCH_" + kind + " target_name: \"" + name +
         "\" data_type: TYPE_INT32 source_input: \"INPUT0\" } ";
}

std::map<std::string, std::vector<int32_t>> answers_of(TestServer& s) {
  Answers a;
  s.core->infer(a.request("m", int_tensor({1, 2}, {1, 2}), "a"));
  s.core->infer(a.request("m", int_tensor({3}, {1, 1}), "b"));
  s.core->infer(a.request("m", int_tensor({4, 5, 6}, {1, 3}), "c"));
  std::map<std::string, std::vector<int32_t>> out;
  for (const Response& r : a.wait()) {
    REQUIRE_MESSAGE(!r.error, r.error->what());
    out[r.id] = ints(r.outputs.at(0));
  }
  return out;
}

}  // namespace

TEST_CASE("ragged requests are joined flat, their sizes go along and outputs come apart by shape") {
  SeenTensors seen;
  TestServer s;
  s.backends.add("whole", std::make_shared<WholeBackend>(seen));
  s.folder.model(
      "m",
      ragged(batch_input("ELEMENT_COUNT", "N") + batch_input("ACCUMULATED_ELEMENT_COUNT", "SUM") +
             batch_input("ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", "SUM0") +
             batch_input("MAX_ELEMENT_COUNT_AS_SHAPE", "MAX") + batch_input("ITEM_SHAPE", "SHAPE") +
             batch_input("ITEM_SHAPE_FLATTEN", "FLAT") +
             "batch_output { target_name: \"OUTPUT0\" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "
             "\"INPUT0\" }"));
  REQUIRE(s.start().empty());
  const auto got = answers_of(s);
  CHECK(got.at("a") == std::vector<int32_t>{1, 2});
  CHECK(got.at("b") == std::vector<int32_t>{3});
  CHECK(got.at("c") == std::vector<int32_t>{4, 5, 6});
  REQUIRE(seen.runs.size() == 1);
  std::map<std::string, TensorValue> in;
  for (const TensorValue& t : seen.runs[0]) in[t.name] = t;
  CHECK(in.at("INPUT0").dims == Dims{6});
  CHECK(ints(in.at("N")) == std::vector<int32_t>{2, 1, 3});
  CHECK(ints(in.at("SUM")) == std::vector<int32_t>{2, 3, 6});
  CHECK(ints(in.at("SUM0")) == std::vector<int32_t>{0, 2, 3, 6});
  CHECK(in.at("MAX").dims == Dims{3});
  CHECK(in.at("SHAPE").dims == Dims{3, 1});
  CHECK(ints(in.at("FLAT")) == std::vector<int32_t>{2, 1, 3});
}

TEST_CASE("padded batches are as large as the largest request") {
  SeenTensors seen;
  TestServer s;
  s.backends.add("whole", std::make_shared<WholeBackend>(seen));
  s.folder.model("m", ragged("parameters { key: \"pad.INPUT0\" value { string_value: \"-7\" } }"));
  REQUIRE(s.start().empty());
  const auto got = answers_of(s);
  CHECK(got.at("a") == std::vector<int32_t>{1, 2, -7});
  CHECK(got.at("b") == std::vector<int32_t>{3, -7, -7});
  CHECK(got.at("c") == std::vector<int32_t>{4, 5, 6});
  REQUIRE(seen.runs.size() == 1);
  CHECK(seen.runs[0].at(0).dims == Dims{3, 3});
}

TEST_CASE("padding keeps every element in its place in more than one dimension") {
  std::vector<RequestPtr> requests;
  for (const Dims& d : {Dims{1, 2, 2}, Dims{1, 1, 3}}) {
    requests.push_back(std::make_unique<Request>());
    requests.back()->inputs.push_back(int_tensor({1, 2, 3, 4}, d));
    if (d[2] == 3) requests.back()->inputs[0] = int_tensor({5, 6, 7}, d);
  }
  const TensorValue t = join_padded(requests, "INPUT0", 2, 0);
  CHECK(t.dims == Dims{2, 2, 3});
  CHECK(ints(t) == std::vector<int32_t>{1, 2, 0, 3, 4, 0, 5, 6, 7, 0, 0, 0});
}

TEST_CASE("requests whose shapes would need much memory together run apart") {
  SeenTensors seen;
  TestServer s;
  s.backends.add("whole", std::make_shared<WholeBackend>(seen));
  std::string config = ragged("parameters { key: \"pad.INPUT0\" value { string_value: \"0\" } }");
  for (size_t at = 0; (at = config.find("dims: -1", at)) != config.npos; ++at)
    config.replace(at, 8, "dims: [-1, -1]");
  s.folder.model("m", config);
  REQUIRE(s.start().empty());
  constexpr int64_t kLong = 16384;  // joined: 3 x 16384 x 16384
  Answers a;
  s.core->infer(a.request("m", int_tensor(std::vector<int32_t>(kLong, 1), {1, kLong, 1}), "tall"));
  s.core->infer(a.request("m", int_tensor(std::vector<int32_t>(kLong, 2), {1, 1, kLong}), "wide"));
  s.core->infer(a.request("m", int_tensor({3}, {1, 1, 1}), "small"));
  for (const Response& r : a.wait()) {
    REQUIRE_MESSAGE(!r.error, r.error->what());
    const int32_t value = r.id == "tall" ? 1 : r.id == "wide" ? 2 : 3;
    CHECK(ints(r.outputs.at(0)) == std::vector<int32_t>(r.id == "small" ? 1 : kLong, value));
  }
  CHECK(seen.runs.size() == 3);
}

TEST_CASE("the response cache answers what it has seen, within its bytes, and forgets on a reload") {
  std::atomic<int> runs{0};
  TestServer s([&](BatchRun& run) {
    ++runs;
    echo(run);
  });
  s.folder.model("m", io("response_cache { enable: true }", "-1"));
  s.folder.model("off", io("", "-1"));
  CoreOptions o;
  o.cache_bytes = 10'000;
  o.repository.paths = {s.folder.path.string()};
  o.repository.mode = ControlMode::explicit_control;
  o.repository.load_models = {"*"};
  s.core = std::make_unique<Core>(o, s.backends);
  REQUIRE(s.core->start().empty());
  for (int i = 0; i < 3; ++i)
    CHECK(ints(s.infer("m", int_tensor({1, 2}, {2})).outputs.at(0)) == std::vector<int32_t>{1, 2});
  CHECK(runs == 1);
  s.infer("m", int_tensor({1, 3}, {2}));
  CHECK(runs == 2);
  const auto stats = s.core->stats().get("m", "1");
  CHECK(stats->cache_hit.count.load() == 2);
  CHECK(stats->cache_miss.count.load() == 2);
  CHECK(stats->success.count.load() == 4);
  CHECK(stats->executions.load() == 2);
  CHECK(s.core->metrics().find("nv_cache_num_hits_per_model{model=\"m\",version=\"1\"} 2") !=
        std::string::npos);
  s.core->repository().load("m");
  s.infer("m", int_tensor({1, 2}, {2}));
  CHECK(runs == 3);
  for (int32_t i = 0; i < 100; ++i) s.infer("m", int_tensor(std::vector<int32_t>(100, i), {100}));
  s.infer("m", int_tensor({1, 2}, {2}));
  CHECK(runs == 104);  // pushed out by what came later
  s.infer("off", int_tensor({1}, {1}));
  s.infer("off", int_tensor({1}, {1}));
  CHECK(runs == 106);
}

TEST_CASE("the rate limiter shares resources by priority and never gives out more than there are") {
  std::atomic<int> inside{0}, most{0}, runs_a{0}, runs_b{0};
  TestServer s([&](BatchRun& run) {
    const int now = ++inside;
    int seen = most.load();
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    ++(run.requests[0]->model == "a" ? runs_a : runs_b);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --inside;
    echo(run);
  });
  auto limited = [](int priority) {
    return io("instance_group { count: 3 rate_limiter { priority: " + std::to_string(priority) +
                  " resources { name: \"R\" count: 2 } } }",
              "1");
  };
  s.folder.model("a", limited(1));
  s.folder.model("b", limited(3));
  s.folder.model("greedy",
                 io("instance_group { count: 1 rate_limiter { resources { name: \"R\" count: 9 } } }", "1"));
  CoreOptions o;
  o.rate_limits = true;
  o.rate_resources = {{"R", 4}};
  o.repository.paths = {s.folder.path.string()};
  s.core = std::make_unique<Core>(o, s.backends);
  const auto errors = s.core->start();
  CHECK(errors.size() == 1);
  CHECK(errors.at("greedy").find("needs 9 of resource 'R', the server has 4") != std::string::npos);
  Answers a;
  for (int i = 0; i < 150; ++i)
    for (const char* model : {"a", "b"}) s.core->infer(a.request(model, int_tensor({i}, {1})));
  while (runs_a < 120) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const int b = runs_b;  // a runs three times as often while both wait
  a.wait();
  CHECK(most == 2);
  CHECK(b < 80);
  CHECK(runs_b == 150);
}

TEST_CASE("small needs that overlap do not keep a large one out for ever") {
  RateLimiter limiter({{"R", 2}});
  auto need = [](uint32_t count) { return RateNeed{{{"R", false, count}}, 1}; };
  const auto first = limiter.join(need(1), "m"), second = limiter.join(need(1), "m"),
             large = limiter.join(need(2), "m");
  second->acquire();
  second->release();
  first->acquire();
  std::atomic<bool> large_runs{false}, second_runs{false};
  std::thread a([&] { large->acquire(), large_runs = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::thread b([&] {
    second->acquire(), second_runs = true, second->release();
  });  // there is room for it, but not its turn
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK_FALSE(large_runs);
  CHECK_FALSE(second_runs);
  first->release();
  a.join();
  CHECK(large_runs);
  CHECK_FALSE(second_runs);
  large->release();
  b.join();
}

TEST_CASE("metric tags are labels of the series") {
  TestServer s;
  s.folder.model(
      "m",
      io("metric_tags { key: \"team\" value: \"a\\\"b\" } metric_tags { key: \"model\" value: \"x\" }", "1"));
  REQUIRE(s.start().empty());
  s.infer("m", int_tensor({1}, {1}));
  CHECK(s.core->metrics().find(
            "nv_inference_request_success{model=\"m\",version=\"1\",model_tag=\"x\",team=\"a\\\"b\"} 1") !=
        std::string::npos);
}

TEST_CASE(
    "tags that would be one label get names of their own: a name that is there twice spoils the whole page") {
  TestServer s;
  s.folder.model("m",
                 io("metric_tags { key: \"a-b\" value: \"1\" } metric_tags { key: \"a.b\" value: \"2\" } "
                    "metric_tags { key: \"quantile\" value: \"3\" }",
                    "1"));
  REQUIRE(s.start().empty());
  s.infer("m", int_tensor({1}, {1}));
  CHECK(
      s.core->metrics().find("nv_inference_request_success{model=\"m\",version=\"1\",a_b=\"1\",a_b_tag=\"2\","
                             "quantile_tag=\"3\"} 1") != std::string::npos);
}

}  // namespace pelton::serve::test
