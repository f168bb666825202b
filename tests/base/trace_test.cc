// SPDX-License-Identifier: Apache-2.0
#include "base/trace.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "support/temp_dir.h"

using namespace pelton;

TEST_CASE("events become Chrome trace JSON with named tracks and microseconds from the first event") {
  TraceBuffer buffer;
  int gpu = buffer.track("stream 0");
  CHECK(buffer.track("stream 0") == gpu);
  buffer.add({"late \"q\"\n", "kernel", 5'001'500, 2'250, gpu, {{"shape", "1x3"}}});
  buffer.add({"early", "copy", 5'000'000, 1, buffer.track("host"), {}});
  test::TempDir dir;
  buffer.write(dir / "t.json");
  auto json = nlohmann::json::parse(read_file(dir / "t.json"));
  auto& events = json["traceEvents"];
  REQUIRE(events.size() == 4);
  CHECK(events[0]["args"]["name"] == "stream 0");
  CHECK(events[2]["name"] == "early");
  CHECK(events[2]["ts"] == 0.0);
  CHECK(events[2]["dur"] == 0.001);
  CHECK(events[3]["name"] == "late \"q\"\n");
  CHECK(events[3]["ts"] == 1.5);
  CHECK(events[3]["tid"] == gpu);
  CHECK(events[3]["args"]["shape"] == "1x3");
  CHECK(json["otherData"]["dropped_events"] == 0);
}

TEST_CASE("a full buffer counts what it drops") {
  TraceBuffer buffer(2);
  for (int i = 0; i < 5; ++i) buffer.add({"e", "c", i, 1, 0, {}});
  CHECK(buffer.events().size() == 2);
  CHECK(buffer.dropped() == 3);
}

TEST_CASE("spans go to the active buffer, each thread on its own track") {
  { TraceSpan unseen("x", "c"); }
  TraceBuffer buffer;
  set_active_trace(&buffer);
  {
    TraceSpan outer("outer", "c");
    TraceSpan inner("inner", "c");
  }
  std::thread([] { TraceSpan span("other", "c"); }).join();
  set_active_trace(nullptr);
  auto events = buffer.events();
  REQUIRE(events.size() == 3);
  CHECK(events[0].name == "outer");
  CHECK(events[1].name == "inner");
  CHECK(events[1].start_ns + events[1].duration_ns <= events[0].start_ns + events[0].duration_ns);
  CHECK(events[2].track != events[0].track);
}
