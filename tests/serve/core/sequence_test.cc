// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "fixture.h"

namespace pelton::serve::test {
namespace {

std::string sequence_io(const std::string& sequence, int batch, const std::string& more = "") {
  return io("max_batch_size: " + std::to_string(batch) + " sequence_batching { " + sequence + " } " + more,
            "1");
}

constexpr const char* kControls =
    "control_input { name: \"START\" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } } "
    "control_input { name: \"END\" control { kind: CONTROL_SEQUENCE_END int32_false_true: [0, 1] } } "
    "control_input { name: \"READY\" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [0, 1] } } "
    "control_input { name: \"ID\" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } } ";
constexpr const char* kState =
    "state { input_name: \"IN_STATE\" output_name: \"OUT_STATE\" data_type: TYPE_INT32 dims: 1 } ";

int32_t value(const RequestPtr& r, const char* name) {
  return ints(*r->input(name)).at(0);
}

// OUTPUT0 = OUT_STATE = IN_STATE + INPUT0
void accumulate(BatchRun& run) {
  for (size_t i = 0; i < run.requests.size(); ++i) {
    const int32_t sum = value(run.requests[i], "IN_STATE") + value(run.requests[i], "INPUT0");
    for (const char* name : {"OUTPUT0", "OUT_STATE"}) {
      TensorValue t = int_tensor({sum}, {1, 1});
      t.name = name;
      run.responses[i].outputs.push_back(std::move(t));
    }
  }
  run.input_end = run.infer_end = Clock::now();
}

RequestPtr part(Answers& a, uint64_t id, int32_t v, bool start = false, bool end = false) {
  auto r = a.request("m", int_tensor({v}, {1, 1}), std::to_string(v));
  r->sequence.number = id;
  r->sequence_start = start;
  r->sequence_end = end;
  return r;
}

Response send(TestServer& s, uint64_t id, int32_t v, bool start = false, bool end = false) {
  Answers a;
  s.core->infer(part(a, id, v, start, end));
  return a.wait().at(0);
}

}  // namespace

TEST_CASE("a deadline passes where it should for a sequence that waits for a place") {
  TestServer s(accumulate);
  s.folder.model(
      "m", sequence_io(std::string("max_sequence_idle_microseconds: 600000000 direct { } ") + kState, 1));
  REQUIRE(s.start().empty());
  CHECK_FALSE(send(s, 1, 1, true).error);                      // has the one place, and keeps it
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the instance sleeps
  Answers a;
  auto r = part(a, 2, 1, true);
  r->deadline = Clock::now() + std::chrono::milliseconds(300);
  s.core->infer(std::move(r));
  for (int i = 0; i < 5000 && a.finals() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(a.finals() == 1);
  CHECK(a.wait().at(0).error->code() == ErrorCode::deadline);
}

TEST_CASE("a sequence keeps its state from START to END") {
  for (const char* strategy : {"direct {}", "oldest { max_candidate_sequences: 4 }"}) {
    CAPTURE(strategy);
    TestServer s(accumulate);
    s.folder.model("m", sequence_io(std::string(strategy) + kState, 2));
    REQUIRE(s.start().empty());
    CHECK(ints(send(s, 1, 5, true).outputs.at(0)) == std::vector<int32_t>{5});
    CHECK(ints(send(s, 2, 100, true).outputs.at(0)) == std::vector<int32_t>{100});
    CHECK(ints(send(s, 1, 7).outputs.at(0)) == std::vector<int32_t>{12});
    const auto last = send(s, 1, 1, false, true);
    CHECK(ints(last.outputs.at(0)) == std::vector<int32_t>{13});
    CHECK(last.outputs.size() == 1);  // the state stays inside
    CHECK(send(s, 1, 1).error->message().find("must carry the START flag") != std::string::npos);
    CHECK(ints(send(s, 2, 1, true).outputs.at(0)) == std::vector<int32_t>{1});  // START begins anew
    CHECK(send(s, 0, 1, true).error->message().find("needs a non-zero or non-empty sequence_id") !=
          std::string::npos);
  }
}

TEST_CASE("the initial state comes from its file, and a preferred size goes without waiting for more") {
  std::atomic<size_t> largest{0};
  TestServer s([&](BatchRun& run) {
    largest = std::max(largest.load(), run.requests.size());
    accumulate(run);
  });
  const std::string state =
      "state { input_name: \"IN_STATE\" output_name: \"OUT_STATE\" data_type: TYPE_INT32 dims: 1 "
      "initial_state { "
      "name: \"seven\" data_type: TYPE_INT32 dims: 1 data_file: \"seven\" } } ";
  s.folder.model("m", sequence_io("oldest { max_candidate_sequences: 8 preferred_batch_size: 2 "
                                  "max_queue_delay_microseconds: 3600000000 } " +
                                      state,
                                  8));
  s.folder.write("m/initial_state/seven", std::string("\7\0\0\0", 4));
  REQUIRE(s.start().empty());
  Answers a;  // alone, either would wait for an hour
  s.core->infer(part(a, 1, 1, true));
  s.core->infer(part(a, 2, 2, true));
  for (const Response& r : a.wait()) CHECK(ints(r.outputs.at(0))[0] == 7 + std::stoi(r.id));
  CHECK(largest == 2);
}

TEST_CASE("controls tell the engine where a request stands, and empty slots are filled") {
  struct Seen {
    int32_t start, end, ready, input;
    uint64_t id;
    bool operator==(const Seen&) const = default;
  };
  std::mutex mutex;
  std::vector<std::vector<Seen>> batches;
  Latch gate;
  TestServer s([&](BatchRun& run) {
    if (run.requests.size() == 1 && value(run.requests[0], "INPUT0") == 1) gate.pass();
    std::vector<Seen> seen;
    for (const RequestPtr& r : run.requests) {
      uint64_t id;
      std::memcpy(&id, r->input("ID")->data.data, 8);
      seen.push_back({value(r, "START"), value(r, "END"), value(r, "READY"), value(r, "INPUT0"), id});
    }
    std::lock_guard lock(mutex);
    batches.push_back(seen);
    echo(run);
  });
  s.folder.model("m", sequence_io(std::string("direct {} ") + kControls, 3));
  REQUIRE(s.start().empty());
  Answers a;
  s.core->infer(part(a, 11, 1, true));
  gate.wait_for(1);  // the instance is busy: what comes now shares a batch
  s.core->infer(part(a, 22, 2, true));
  s.core->infer(part(a, 33, 3, true, true));
  gate.open();
  a.wait();
  send(s, 22, 4, false, true);
  REQUIRE(batches.size() == 3);
  CHECK(batches[0] == std::vector<Seen>{{1, 0, 1, 1, 11}});
  CHECK(batches[1] == std::vector<Seen>{{0, 0, 0, 0, 0}, {1, 0, 1, 2, 22}, {1, 1, 1, 3, 33}});
  CHECK(batches[2] == std::vector<Seen>{{0, 0, 0, 0, 0}, {0, 1, 1, 4, 22}});
  CHECK(s.core->stats().get("m", "1")->inferences.load() == 4);  // fillers do not count
}

TEST_CASE("an id that a control cannot carry whole is refused") {
  const auto answer = [](const char* type, uint64_t number, const char* text) {
    TestServer s;
    s.folder.model("m", sequence_io(std::string("control_input { name: \"ID\" control { kind: "
                                                "CONTROL_SEQUENCE_CORRID data_type: ") +
                                        type + " } }",
                                    1));
    REQUIRE(s.start().empty());
    Answers a;
    auto r = part(a, number, 1, true, true);
    r->sequence.text = text;
    s.core->infer(std::move(r));
    const Response got = a.wait().at(0);
    return got.error ? got.error->message() : std::string("accepted");
  };
  CHECK(answer("TYPE_UINT64", UINT64_MAX, "") == "accepted");
  CHECK(answer("TYPE_INT32", UINT32_MAX, "") == "accepted");
  CHECK(answer("TYPE_STRING", 0, "seven") == "accepted");
  CHECK(answer("TYPE_UINT32", uint64_t{1} << 32, "") ==
        "sequence_id 4294967296 does not fit the type UINT32 of ids of the model 'm'");
  CHECK(answer("TYPE_UINT64", 0, "seven") ==
        "sequence_id 'seven' is a text, the model 'm' takes ids of type UINT64");
}

TEST_CASE("warm-up of a sequence model is a sequence of one request") {
  std::atomic<int> runs{0}, starts{0}, ends{0};
  TestServer s([&](BatchRun& run) {
    ++runs;
    starts += value(run.requests[0], "START");
    ends += value(run.requests[0], "END");
    accumulate(run);
  });
  const char* input = "value { data_type: TYPE_INT32 dims: [1] zero_data: true } }";
  s.folder.model("m",
                 sequence_io(std::string(kControls) + kState, 4,
                             std::string("model_warmup { name: \"w\" batch_size: 1 count: 3 inputs { key: "
                                         "\"INPUT0\" ") +
                                 input + " inputs { key: \"START\" " + input + " }"));
  const auto errors = s.start();
  CHECK_MESSAGE(errors.empty(), (errors.empty() ? "" : errors.begin()->second));
  CHECK(runs == 3);
  CHECK(starts == 3);
  CHECK(ends == 3);
}

TEST_CASE("a sequence waits for a slot, and one that idles gives its slot up") {
  TestServer s(accumulate);
  s.folder.model("m",
                 sequence_io(std::string("max_sequence_idle_microseconds: 150000 direct {} ") + kState, 1));
  REQUIRE(s.start().empty());
  CHECK_FALSE(send(s, 1, 1, true).error);
  const auto began = Clock::now();
  CHECK(ints(send(s, 2, 2, true).outputs.at(0)) == std::vector<int32_t>{2});  // waits until 1 has idled
  CHECK(Clock::now() - began > std::chrono::milliseconds(80));
  CHECK(send(s, 1, 1).error->message().find("START") != std::string::npos);
}

TEST_CASE("an error of the engine ends its sequence and no other") {
  TestServer s([](BatchRun& run) {
    if (value(run.requests[0], "INPUT0") == 13) fail(ErrorCode::numeric, "unlucky");
    accumulate(run);
  });
  s.folder.model("m", sequence_io(std::string("direct {} ") + kState, 1, "instance_group { count: 2 }"));
  REQUIRE(s.start().empty());
  CHECK_FALSE(send(s, 1, 1, true).error);
  CHECK_FALSE(send(s, 2, 1, true).error);
  CHECK(send(s, 1, 13).error->message() == "unlucky");
  const std::string after = send(s, 1, 1).error->message();  // may arrive before the end is on record
  CHECK((after.find("START") != std::string::npos ||
         after.find("ended with an earlier error") != std::string::npos));
  CHECK(ints(send(s, 2, 4).outputs.at(0)) == std::vector<int32_t>{5});
}

TEST_CASE("sequences never mix, whatever is cancelled, times out, restarts or is dropped") {
  for (const char* strategy : {"direct { max_queue_delay_microseconds: 300 minimum_slot_utilization: 0.9 }",
                               "oldest { max_candidate_sequences: 5 max_queue_delay_microseconds: 300 }"}) {
    CAPTURE(strategy);
    TestServer s([](BatchRun& run) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      accumulate(run);
    });
    s.folder.model(
        "m", sequence_io(std::string("max_sequence_idle_microseconds: 20000 ") + strategy + " " + kState, 4,
                         "instance_group { count: 2 }"));
    REQUIRE(s.start().empty());
    std::atomic<int> wrong{0}, answered{0}, sent{0}, good{0};
    std::vector<std::thread> clients;
    for (int c = 0; c < 6; ++c)
      clients.emplace_back([&, c] {
        std::mt19937 random(static_cast<unsigned>(c) * 77 + 5);
        for (int round = 0; round < 25; ++round) {
          const uint64_t id = static_cast<uint64_t>(c) * 2 + random() % 2 + 1;  // no other client uses it
          // The sum that the state must hold; every value sent tells its sequence and place.
          int32_t sum = 0;
          bool lost = false;
          const int length = 2 + static_cast<int>(random() % 5);
          for (int k = 0; k < length && !lost; ++k) {
            Answers a;
            const int32_t v = (c + 1) * 1000000 + round * 1000 + k;
            auto r = part(a, id, v, k == 0, k + 1 == length && random() % 2);
            const unsigned fate = random() % 10;
            if (fate == 0) r->deadline = Clock::now() + std::chrono::microseconds(random() % 600);
            auto token = std::make_shared<CancelToken>();
            r->token = token;
            ++sent;
            s.core->infer(std::move(r));
            if (fate == 1) token->cancel();
            if (fate == 2) std::this_thread::sleep_for(std::chrono::milliseconds(25));  // may idle out
            const Response response = a.wait().at(0);
            ++answered;
            if (response.error) {
              const auto code = response.error->code();
              // Dropped before it ran: the state is as it was, unless it was the START or the sequence idled
              // out.
              lost = k == 0 || code == ErrorCode::bad_format;
              if (code != ErrorCode::cancelled && code != ErrorCode::deadline &&
                  code != ErrorCode::bad_format)
                ++wrong;
            } else {
              sum += v;
              ++good;
              if (ints(response.outputs.at(0)) != std::vector<int32_t>{sum}) ++wrong;
            }
          }
        }
      });
    for (auto& t : clients) t.join();
    CHECK(wrong == 0);
    CHECK(answered == sent);
    CHECK(good > 200);
    CHECK(s.core->stats().get("m", "1")->pending.load() == 0);
  }
}

TEST_CASE("iterative sequences run a request until it is done and share each step's batch") {
  std::atomic<int> executions{0}, widest{0};
  // Counts IN_STATE up to INPUT0; DONE when it is there.
  TestServer s([&](BatchRun& run) {
    ++executions;
    widest = std::max(widest.load(), static_cast<int>(run.requests.size()));
    for (size_t i = 0; i < run.requests.size(); ++i) {
      const int32_t next = value(run.requests[i], "IN_STATE") + 1;
      const int32_t done = next >= value(run.requests[i], "INPUT0");
      const std::pair<const char*, int32_t> outputs[] = {
          {"OUTPUT0", next}, {"OUT_STATE", next}, {"DONE", done}};
      for (const auto& [name, v] : outputs) {
        TensorValue t = int_tensor({v}, {1, 1});
        t.name = name;
        run.responses[i].outputs.push_back(std::move(t));
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  });
  s.folder.model("m",
                 sequence_io(std::string("iterative_sequence: true ") + kState, 8,
                             "output { name: \"DONE\" data_type: TYPE_INT32 dims: 1 } "
                             "model_transaction_policy { decoupled: true } "
                             "parameters { key: \"iterative_done_output\" value { string_value: \"DONE\" } } "
                             "parameters { key: \"iterative_max_steps\" value { string_value: \"50\" } }"));
  REQUIRE(s.start().empty());
  Answers a;
  constexpr int kLengths[] = {3, 5, 1, 8, 100};
  for (int n : kLengths) {
    auto r = a.request("m", int_tensor({n}, {1, 1}), std::to_string(n));
    r->streams = true;
    s.core->infer(std::move(r));
  }
  std::map<std::string, std::vector<int32_t>> got;
  for (const Response& r : a.wait()) {
    REQUIRE_FALSE(r.error);
    got[r.id].push_back(ints(r.outputs.at(0)).at(0));
  }
  for (int n : kLengths) {
    std::vector<int32_t> expected;
    for (int i = 1; i <= std::min(n, 50); ++i) expected.push_back(i);
    CHECK(got[std::to_string(n)] == expected);
  }
  CHECK(widest >= 2);
  CHECK(executions < 3 + 5 + 1 + 8 + 50);
  Answers plain;
  s.core->infer(plain.request("m", int_tensor({1}, {1, 1})));
  CHECK(plain.wait().at(0).error->message().find("is decoupled") != std::string::npos);
}

TEST_CASE("what a sequence configuration cannot mean is refused by name") {
  const std::pair<const char*, const char*> cases[] = {
      {"oldest { max_candidate_sequences: 0 }", "max_candidate_sequences 0"},
      {"direct { minimum_slot_utilization: 2 }", "minimum_slot_utilization"},
      {"oldest { max_candidate_sequences: 1000000 }",
       "1000000 places of sequences in each of 2 instances, at most 1048576 are allowed in all"},
      {"state { input_name: \"A\" output_name: \"B\" data_type: TYPE_FP32 dims: 300000000 }",
       "initial state 'A' of shape [1,300000000] has more than 1073741824 bytes"},
      {"oldest { max_candidate_sequences: 2 preserve_ordering: true }",
       "preserve_ordering' is not supported with 2"},
      {"control_input { name: \"S\" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 "
       "int32_false_true: [0, 1] } }",
       "has no int32_false_true"},
      {"control_input { name: \"S\" control { kind: CONTROL_SEQUENCE_START data_type: TYPE_FP32 "
       "int32_false_true: "
       "[0, 1] } }",
       "another data_type"},
      {"control_input { name: \"S\" control { kind: CONTROL_SEQUENCE_START int32_false_true: [1] } }",
       "needs two values"},
      {"control_input { name: \"S\" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } }",
       "32 or 64 bit"},
      {"state { input_name: \"A\" data_type: TYPE_FP32 dims: 1 }", "input_name and output_name"},
      {"state { input_name: \"A\" output_name: \"B\" data_type: TYPE_FP32 dims: 2 initial_state { data_type: "
       "TYPE_FP32 "
       "dims: 3 zero_data: true name: \"i\" } }",
       "has shape [3], the state [2]"},
      {"state { input_name: \"A\" output_name: \"B\" data_type: TYPE_FP32 dims: 1 initial_state { data_type: "
       "TYPE_FP32 "
       "dims: 1 data_file: \"../../secret\" name: \"i\" } }",
       "leaves the model's folder"},
  };
  TestServer s;
  int n = 0;
  s.folder.write("m0/initial_state/x", "");
  for (const auto& [text, words] : cases) {
    const std::string name = "m" + std::to_string(n++);
    s.folder.write(name + "/initial_state/x", "");
    s.folder.model(name, sequence_io(text, 2, "instance_group { count: 2 }"));
  }
  const auto errors = s.start();
  n = 0;
  for (const auto& [text, words] : cases) {
    const std::string name = "m" + std::to_string(n++);
    CAPTURE(words);
    REQUIRE(errors.contains(name));
    CHECK_MESSAGE(errors.at(name).find(words) != std::string::npos, errors.at(name));
  }
}

}  // namespace pelton::serve::test
