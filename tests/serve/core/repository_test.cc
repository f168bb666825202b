// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <thread>

#include "serve/core/fixture.h"

namespace pelton::serve::test {
namespace {

RepositoryOptions explicit_mode() {
  RepositoryOptions r;
  r.mode = ControlMode::explicit_control;
  return r;
}

std::string state_of(TestServer& s, const std::string& name, const std::string& version = "1") {
  for (const IndexEntry& e : s.core->repository().index(false))
    if (e.name == name && e.version == version)
      return cat(e.state ? to_string(*e.state) : "", e.reason.empty() ? "" : " ", e.reason);
  return "absent";
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("version policies choose what is served; the newest answers by default") {
  TestServer s;
  s.folder.model("latest", io("", "1"), {1, 2, 10});
  s.folder.model("all", io("version_policy { all { } }", "1"), {1, 2, 10});
  s.folder.model("two", io("version_policy { latest { num_versions: 2 } }", "1"), {1, 2, 10});
  s.folder.model("lost", io("version_policy { specific { versions: 7 } }", "1"), {1});
  const auto errors = s.start();
  CHECK(errors.size() == 1);
  CHECK(errors.at("lost").find("version 7, which has no folder") != std::string::npos);
  auto& r = s.core->repository();
  CHECK(r.served_versions("latest") == std::vector<std::string>{"10"});
  CHECK(r.served_versions("all") == std::vector<std::string>{"1", "2", "10"});
  CHECK(r.served_versions("two") == std::vector<std::string>{"2", "10"});
  CHECK(s.infer("all", int_tensor({1}, {1})).version == "10");
  CHECK_FALSE(s.core->ready());
}

TEST_CASE("a failed load leaves the old version serving and says why") {
  TestServer s;
  s.folder.model("m", io("", "1"));
  REQUIRE(s.start(explicit_mode()).empty());
  CHECK(s.infer("m", int_tensor({1}, {1})).error->code() == ErrorCode::not_found);
  s.core->repository().load("m");
  CHECK_FALSE(s.infer("m", int_tensor({1}, {1})).error);
  s.folder.write("m/config.pbtxt", "nonsense");
  CHECK(error_of([&] { s.core->repository().load("m"); }).find("unknown field 'nonsense'") !=
        std::string::npos);
  CHECK_FALSE(s.infer("m", int_tensor({1}, {1})).error);
  CHECK(state_of(s, "m").find("READY a newer load failed: unknown field 'nonsense'") == 0);
  s.folder.model("m", io("", "2"));
  s.core->repository().load("m");
  CHECK_FALSE(s.infer("m", int_tensor({1, 2}, {2})).error);
  s.core->repository().unload("m", false);
  CHECK(state_of(s, "m") == "UNAVAILABLE unloaded");
  const auto gone = *s.infer("m", int_tensor({1, 2}, {2})).error;
  CHECK(gone.code() == ErrorCode::not_found);  // not busy: clients would come again for ever
  CHECK(gone.message() == "request for unknown model: 'm' has no available versions");
  CHECK(s.core->stats().get("m", "1")->success.count.load() == 3);  // counters survive reloads
}

TEST_CASE("requests under way keep their version while a new one takes over") {
  Latch gate;
  TestServer s([&](BatchRun& run) {
    if (ints(run.requests[0]->inputs[0])[0] == 1) gate.pass();
    echo(run);
  });
  s.folder.model("m", io("", "1"));
  auto options = explicit_mode();
  options.load_models = {"m"};
  REQUIRE(s.start(options).empty());
  Answers slow;
  s.core->infer(slow.request("m", int_tensor({1}, {1})));
  gate.wait_for(1);
  std::filesystem::create_directories(s.folder.path / "m" / "2");
  s.core->repository().load("m");
  CHECK(s.infer("m", int_tensor({2}, {1})).version == "2");
  CHECK(slow.finals() == 0);
  gate.open();
  const auto r = slow.wait().at(0);
  CHECK(r.version == "1");
  CHECK_FALSE(r.error);
}

TEST_CASE("loading under fire drops no request") {
  TestServer s;
  s.folder.model("m", io("instance_group { count: 2 }", "1"));
  auto options = explicit_mode();
  options.load_models = {"*"};
  REQUIRE(s.start(options).empty());
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, sent{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < 3; ++t)
    clients.emplace_back([&] {
      while (!stop) {
        const auto r = s.infer("m", int_tensor({7}, {1}));
        ++sent;
        if (r.error || ints(r.outputs[0]) != std::vector<int32_t>{7}) ++wrong;
      }
    });
  for (int i = 0; i < 60 || sent < 100; ++i) s.core->repository().load("m");
  stop = true;
  for (auto& c : clients) c.join();
  CHECK(wrong == 0);
}

TEST_CASE("paths in a configuration cannot leave the model's folder") {
  TestServer s;
  s.folder.write("secret.txt", "secret\n");
  s.folder.write("warm/warmup/here", "");
  auto labels = [](const std::string& path) {
    return "backend: \"test\" input { name: \"INPUT0\" data_type: TYPE_INT32 dims: 1 } output { name: "
           "\"OUTPUT0\" data_type: TYPE_INT32 dims: 1 label_filename: \"" +
           path + "\" }";
  };
  s.folder.model("up", labels("../secret.txt"));
  s.folder.model("absolute", labels((s.folder.path / "secret.txt").string()));
  s.folder.model("link", labels("link.txt"));
  std::filesystem::create_symlink(s.folder.path / "secret.txt", s.folder.path / "link" / "link.txt");
  s.folder.model("missing", labels("labels.txt"));
  s.folder.model("inside", labels("labels.txt"));
  s.folder.write("inside/labels.txt", "a\n");
  s.folder.model("warm", io("model_warmup { name: \"w\" inputs { key: \"INPUT0\" value { data_type: "
                            "TYPE_INT32 dims: 1 input_data_file: \"../../secret.txt\" } } }",
                            "1"));
  const auto errors = s.start();
  CHECK(errors.at("up").find("leaves the model's folder") != std::string::npos);
  CHECK(errors.at("absolute").find("is absolute") != std::string::npos);
  CHECK(errors.at("link").find("leaves the model's folder") != std::string::npos);
  CHECK(errors.at("missing").find("labels.txt") != std::string::npos);
  CHECK(errors.at("warm").find("leaves the model's folder") != std::string::npos);
  CHECK_FALSE(errors.contains("inside"));
}

TEST_CASE("uploads need leave, bring no code and stay in their folder") {
  TestServer s;
  REQUIRE(s.start(explicit_mode()).empty());
  LoadOverride o;
  o.config_json =
      R"({"backend": "test", "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}], "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}]})";
  o.files["1/model.bin"] = "x";
  CHECK(error_of([&] { s.core->repository().load("new", o); }).find("--allow-model-upload") !=
        std::string::npos);

  TestServer open;
  auto options = explicit_mode();
  options.allow_upload = true;
  REQUIRE(open.start(options).empty());
  open.core->repository().load("new", o);
  CHECK(open.backend->uploaded);
  CHECK_FALSE(open.infer("new", int_tensor({1}, {1})).error);
  for (const char* path : {"1/model.py", "1/evil.so", "1/evil.so.1", "../x", "/etc/x", "1/../../x", ""}) {
    LoadOverride bad = o;
    bad.files = {{path, "x"}};
    CHECK_MESSAGE(error_of([&] { open.core->repository().load("new", bad); }).find("uploaded file") !=
                      std::string::npos,
                  path);
  }
  CHECK_FALSE(open.infer("new", int_tensor({1}, {1})).error);
}

TEST_CASE("polling finds new, changed and removed models") {
  TestServer s;
  s.folder.model("a", io("", "1"));
  RepositoryOptions options;
  options.mode = ControlMode::poll;
  options.poll_seconds = 3600;
  REQUIRE(s.start(options).empty());
  s.folder.model("b", io("", "1"));
  s.folder.model("a", io("# changed\n", "3"));
  s.core->repository().poll();
  CHECK_FALSE(s.infer("b", int_tensor({1}, {1})).error);
  CHECK_FALSE(s.infer("a", int_tensor({1, 2, 3}, {3})).error);
  std::filesystem::remove_all(s.folder.path / "b");
  s.core->repository().poll();
  CHECK(s.infer("b", int_tensor({1}, {1})).error->code() == ErrorCode::not_found);
  CHECK(error_of([&] { s.core->repository().load("a"); }).find("model control is off") != std::string::npos);
}

TEST_CASE("a model that is being loaded is busy, whatever was there before") {
  Latch gate;
  TestServer s([&](BatchRun& run) {
    gate.pass();
    echo(run);
  });
  s.folder.model("m", io("model_warmup { name: \"w\" inputs { key: \"INPUT0\" value { data_type: TYPE_INT32 "
                         "dims: 1 zero_data: true } } }",
                         "1"));
  REQUIRE(s.start(explicit_mode()).empty());
  std::thread load([&] { s.core->repository().load("m"); });
  gate.wait_for(1);
  for (const char* version : {"", "1"}) {
    CAPTURE(version);
    Answers a;
    auto r = a.request("m", int_tensor({1}, {1}));
    r->version = version;
    s.core->infer(std::move(r));
    const auto error = *a.wait().at(0).error;
    CHECK(error.code() == ErrorCode::busy);
    CHECK(error.message().find("is not ready: it is being loaded") != std::string::npos);
  }
  gate.open();
  load.join();
  CHECK_FALSE(s.infer("m", int_tensor({1}, {1})).error);
}

TEST_CASE("once the server stops no model is loaded any more") {
  TestServer s;
  s.folder.model("m", io("", "1"));
  REQUIRE(s.start(explicit_mode()).empty());
  s.core->repository().load("m");
  s.core->repository().refuse_loads();
  CHECK(error_of([&] { s.core->repository().load("m"); }).find("the server is stopping") == 0);
  CHECK_FALSE(s.infer("m", int_tensor({1}, {1})).error);  // what is there goes on
  s.core->stop();
  CHECK(error_of([&] { s.core->repository().load("m"); }).find("the server is stopping") == 0);
  CHECK(s.backend->loads == 1);
}

TEST_CASE("warm-up runs before ready and its failure is the load's failure") {
  std::atomic<int> runs{0};
  TestServer s([&](BatchRun& run) {
    ++runs;
    if (run.rows == 5) fail(ErrorCode::numeric, "cold");
    echo(run);
  });
  auto warm = [](int batch) {
    return io("max_batch_size: 8 model_warmup { name: \"w\" batch_size: " + std::to_string(batch) +
                  " count: 3 inputs { key: \"INPUT0\" value { data_type: TYPE_INT32 dims: [1] random_data: "
                  "true } } }",
              "1");
  };
  s.folder.model("good", warm(2));
  s.folder.model("bad", warm(5));
  std::string vast = warm(2);
  vast.replace(vast.find("dims: [1] random"), 16, "dims: [200000000] random");
  s.folder.model("vast", vast);
  const auto errors = s.start();
  CHECK(errors.at("vast").find("has more than 1073741824 bytes") != std::string::npos);
  CHECK(errors.at("bad").find("model_warmup 'w'") != std::string::npos);
  CHECK_FALSE(errors.contains("good"));
  CHECK(runs == 4);
  CHECK_FALSE(s.core->stats().get("good", "1")->served());
}

TEST_CASE("unknown and refused backends say what to do") {
  TestServer s;
  s.folder.model("odd", io("", "1", "oddity"));
  s.folder.model("torch", io("", "1", "pytorch"));
  s.folder.model("empty", "", {});
  std::filesystem::create_directories(s.folder.path / "nothing");
  const auto errors = s.start();
  CHECK(errors.at("odd").find("no backend named 'oddity': this server has: test") != std::string::npos);
  CHECK(errors.at("torch").find("export the model to ONNX") != std::string::npos);
  CHECK(errors.at("nothing").find("no version folder and no model file") != std::string::npos);
}

}  // namespace pelton::serve::test
