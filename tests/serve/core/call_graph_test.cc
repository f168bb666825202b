// SPDX-License-Identifier: Apache-2.0
// Who waits for whom: circles are found when they close, and only then.
#include <doctest/doctest.h>

#include "serve/core/call_graph.h"

namespace pelton::serve {
namespace {

// Models are told apart by any address.
const char a = 0, b = 0, c = 0;

struct Place {
  std::shared_ptr<CallSite> site;
  Place(CallGraph& graph, const void* engine, bool held = true) : site(graph.site(engine)) {
    site->hold(held);
  }
};

}  // namespace

TEST_CASE("a model with one instance may not wait for itself") {
  auto graph = std::make_shared<CallGraph>();
  Place only(*graph, &a);
  auto wait = only.site->wait();
  const auto error = wait->queued(&a, 1, "self");
  REQUIRE(error);
  CHECK(error->code() == ErrorCode::busy);
  CHECK(error->message() ==
        "a call of model 'self' would wait for ever: its 1 instance is held by the execution that makes the "
        "call");
  CHECK_FALSE(only.site->wait()->queued(&a, 2, "self"));  // the other instance can come to it
}

TEST_CASE("the last instance of several is refused, those before it are not") {
  auto graph = std::make_shared<CallGraph>();
  Place one(*graph, &a), two(*graph, &a);
  auto first = one.site->wait(), second = two.site->wait();
  CHECK_FALSE(first->queued(&a, 2, "m"));
  CHECK(second->queued(&a, 2, "m"));
  first->done();  // answered after all, by an instance that came free
  CHECK_FALSE(second->queued(&a, 2, "m"));
}

TEST_CASE("circles through other models are found, whichever call closes them") {
  auto graph = std::make_shared<CallGraph>();
  Place at_a(*graph, &a), at_b(*graph, &b), at_c(*graph, &c);
  auto a_asks_b = at_a.site->wait(), b_asks_c = at_b.site->wait(), c_asks_a = at_c.site->wait();
  CHECK_FALSE(a_asks_b->queued(&b, 1, "b"));
  a_asks_b->running(at_b.site);
  CHECK_FALSE(b_asks_c->queued(&c, 1, "c"));
  SUBCASE("running there") {
    b_asks_c->running(at_c.site);
    CHECK(c_asks_a->queued(&a, 1, "a"));
    CHECK_FALSE(at_c.site->wait()->queued(&a, 2, "a"));
  }
  SUBCASE("waiting in its queue, behind somebody else's work") {
    const auto error = c_asks_a->queued(&a, 1, "a");
    REQUIRE(error);
    CHECK(error->message().find("model 'a'") != std::string::npos);
  }
  SUBCASE("an execution that has ended holds nothing") {
    b_asks_c->running(at_c.site);
    at_a.site->hold(false);
    CHECK_FALSE(c_asks_a->queued(&a, 1, "a"));
  }
}

TEST_CASE("steps of an ensemble wait in the name of the request they belong to") {
  auto graph = std::make_shared<CallGraph>();
  Place only(*graph, &a);
  auto whole = only.site->wait();
  CHECK(whole->fork()->queued(&a, 1, "step"));
  CHECK_FALSE(whole->fork()->queued(&b, 1, "step"));
}

TEST_CASE("waits that are forgotten are no waits") {
  auto graph = std::make_shared<CallGraph>();
  Place one(*graph, &a), two(*graph, &a);
  CHECK_FALSE(one.site->wait()->queued(&a, 2, "m"));  // gone at once
  CHECK_FALSE(two.site->wait()->queued(&a, 2, "m"));
}

}  // namespace pelton::serve
