// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "serve/core/fixture.h"

namespace pelton::serve::test {
namespace {

std::string ensemble(const std::string& steps, const std::string& more = "") {
  return "platform: \"ensemble\" max_batch_size: 8\ninput { name: \"INPUT0\" data_type: TYPE_INT32 dims: [1] "
         "}\n"
         "output { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: [1] }\nensemble_scheduling { " +
         more + steps + " }";
}
std::string step(const std::string& model, const std::string& from, const std::string& to) {
  return " step { model_name: \"" + model + "\" model_version: -1 input_map { key: \"INPUT0\" value: \"" +
         from + "\" } output_map { key: \"OUTPUT0\" value: \"" + to + "\" } }";
}

// Adds one to every element.
void add_one(BatchRun& run) {
  echo(run);
  for (Response& r : run.responses) {
    auto v = ints(r.outputs[0]);
    for (auto& x : v) ++x;
    r.outputs[0].data = Blob::from(std::string(reinterpret_cast<const char*>(v.data()), v.size() * 4));
  }
}

std::string load_error(const std::string& config) {
  TestServer server(add_one);
  server.folder.model("one", io("max_batch_size: 8 dynamic_batching { }", "1"));
  server.folder.model("wide", io("max_batch_size: 8", "2"));
  server.folder.model("e", config);
  auto errors = server.start();
  return errors.contains("e") ? errors["e"] : "accepted";
}

}  // namespace

TEST_CASE("steps run in the order of the data, whatever the order in the file") {
  TestServer server(add_one);
  server.folder.model("one", io("max_batch_size: 8 dynamic_batching { } instance_group { count: 2 }", "1"));
  server.folder.model(
      "e", ensemble(step("one", "b", "OUTPUT0") + step("one", "INPUT0", "a") + step("one", "a", "b")));
  REQUIRE(server.start().empty());
  Answers answers;
  for (int i = 0; i < 100; ++i)
    server.core->infer(answers.request("e", int_tensor({i}, {1, 1}), std::to_string(i)));
  for (const Response& r : answers.wait()) {
    REQUIRE_FALSE(r.error);
    CHECK(ints(r.outputs[0])[0] == std::stoi(r.id) + 3);
    CHECK(r.model == "e");
  }
  CHECK(server.core->stats().get("e", "1")->success.count.load() == 100);
  CHECK(server.core->stats().get("one", "1")->success.count.load() == 300);
}

TEST_CASE("a step is loaded once, by its ensemble or by itself, and fails once") {
  for (const bool broken : {false, true}) {
    for (const char* name : {"a", "z"}) {  // before and after its step
      CAPTURE(broken);
      CAPTURE(name);
      TestServer server(add_one);
      server.backend->broken = broken;
      server.folder.model("one", io("max_batch_size: 8", "1"));
      server.folder.model(name, ensemble(step("one", "INPUT0", "OUTPUT0")));
      RepositoryOptions options;
      options.load_threads = 1;
      const auto errors = server.start(options);
      CHECK(errors.size() == (broken ? 2u : 0u));
      CHECK(server.backend->loads == 1);
    }
  }
}

TEST_CASE("polling mends the ensembles over a step that is mended, and only those") {
  TestServer server(add_one);
  server.backend->broken = true;
  server.folder.model("one", io("max_batch_size: 8", "1"));
  server.folder.model("a", ensemble(step("one", "INPUT0", "OUTPUT0")));
  server.folder.model("over", ensemble(step("a", "INPUT0", "OUTPUT0")));
  RepositoryOptions options;
  options.mode = ControlMode::poll;
  options.poll_seconds = 3600;
  CHECK(server.start(options).size() == 3);
  auto& repository = server.core->repository();
  repository.poll();  // what failed at the start is tried once more
  const int tried = server.backend->loads;
  repository.poll();
  CHECK(server.backend->loads == tried);
  server.backend->broken = false;
  server.folder.model("one", io("max_batch_size: 8 # mended", "1"));
  repository.poll();
  CHECK_FALSE(server.infer("over", int_tensor({1}, {1, 1})).error);
  CHECK_FALSE(server.infer("a", int_tensor({1}, {1, 1})).error);
  CHECK(server.backend->loads == tried + 1);
  CHECK(repository.all_ready());
}

TEST_CASE("wiring that cannot work is refused at load") {
  CHECK(load_error(ensemble(step("one", "INPUT0", "OUTPUT0"))) == "accepted");
  CHECK(load_error(ensemble(step("one", "x", "OUTPUT0"))).find("waits for tensor 'x'") != std::string::npos);
  CHECK(load_error(ensemble(step("one", "b", "a") + step("one", "a", "b") + step("one", "INPUT0", "OUTPUT0")))
            .find("waits for tensor") != std::string::npos);
  CHECK(load_error(ensemble(step("one", "INPUT0", "a")))
            .find("no step produces the ensemble's output 'OUTPUT0'") != std::string::npos);
  CHECK(
      load_error(ensemble(step("none", "INPUT0", "OUTPUT0"))).find("step 'none' is not in the repository") !=
      std::string::npos);
  CHECK(load_error(ensemble(step("e", "INPUT0", "OUTPUT0"))).find("uses itself") != std::string::npos);
  CHECK(load_error(ensemble(step("wide", "INPUT0", "OUTPUT0")))
            .find("has shape [-1,1], input 'INPUT0' of step 'wide' has [-1,2]") != std::string::npos);
  CHECK(load_error(ensemble(step("one", "INPUT0", "OUTPUT0") + step("one", "INPUT0", "OUTPUT0")))
            .find("more than one producer") != std::string::npos);
}

TEST_CASE("ensembles that use each other fail to load, whichever threads load them") {
  for (int round = 0; round < 20; ++round) {
    TestServer server(add_one);
    for (const auto& [name, used] :
         {std::pair("a", "b"), {"b", "a"}, {"c", "d"}, {"d", "e"}, {"e", "c"}, {"f", "f"}})
      server.folder.model(name, ensemble(step(used, "INPUT0", "OUTPUT0")));
    server.folder.model("one", io("max_batch_size: 8", "1"));
    server.folder.model("g", ensemble(step("one", "INPUT0", "OUTPUT0")));
    const auto errors = server.start();
    CHECK(errors.size() == 6);
    for (const auto& [name, why] : errors) CHECK(why.find("uses itself through its steps") != why.npos);
  }
}

TEST_CASE("an ensemble is admitted as a whole and an error in a step ends it once") {
  Latch gate;
  TestServer server([&](BatchRun& run) {
    gate.pass();
    if (ints(run.requests[0]->inputs[0])[0] == 13) fail(ErrorCode::numeric, "unlucky");
    echo(run);
  });
  server.folder.model("one", io("max_batch_size: 8", "1"));
  server.folder.model(
      "e", ensemble(step("one", "INPUT0", "a") + step("one", "a", "OUTPUT0"), "max_inflight_requests: 3 "));
  REQUIRE(server.start().empty());
  Answers answers;
  for (int i = 0; i < 5; ++i)
    server.core->infer(answers.request("e", int_tensor({i == 1 ? 13 : i}, {1, 1}), std::to_string(i)));
  gate.open();
  size_t busy = 0;
  for (const Response& r : answers.wait()) {
    if (r.error && r.error->code() == ErrorCode::busy) {
      ++busy;
      CHECK(std::string(r.error->what()).find("3 requests in flight") != std::string::npos);
    } else if (r.id == "1") {
      REQUIRE(r.error);
      CHECK(std::string(r.error->what()) == "unlucky (e step 'one')");
    } else {
      CHECK_FALSE(r.error);
    }
  }
  CHECK(busy == 2);
  CHECK_FALSE(server.infer("e", int_tensor({1}, {1, 1})).error);  // the places are free again
}

TEST_CASE("a cancelled ensemble stops between steps") {
  Latch gate;
  std::atomic<int> executions{0};
  TestServer server([&](BatchRun& run) {
    ++executions;
    gate.pass();
    echo(run);
  });
  server.folder.model("one", io("max_batch_size: 8", "1"));
  server.folder.model(
      "e", ensemble(step("one", "INPUT0", "a") + step("one", "a", "b") + step("one", "b", "OUTPUT0")));
  REQUIRE(server.start().empty());
  Answers answers;
  auto r = answers.request("e", int_tensor({1}, {1, 1}));
  auto token = r->token = std::make_shared<CancelToken>();
  server.core->infer(std::move(r));
  gate.wait_for(1);
  token->cancel();
  gate.open();
  CHECK(answers.wait().at(0).error->code() == ErrorCode::cancelled);
  CHECK(executions == 1);
}

}  // namespace pelton::serve::test
