// SPDX-License-Identifier: Apache-2.0
// Two requests share a cached answer only if no engine could tell them apart.
#include <doctest/doctest.h>

#include <set>

#include "serve/core/fixture.h"
#include "serve/core/response_cache.h"

namespace pelton::serve::test {
namespace {

void ask(Request& r) {
  r.model = "m";
  r.version = "1";
  r.inputs = {int_tensor({1, 2}, {2, 1})};
  r.inputs.push_back(int_tensor({3}, {1}));
  r.inputs[1].name = "INPUT1";
  r.parameters["p"] = int64_t{1};
}

std::string key(const std::function<void(Request&)>& change) {
  Request r;
  ask(r);
  change(r);
  return ResponseCache::key(r, 7);
}

}  // namespace

TEST_CASE("every part of a request that an engine sees is part of its key in the cache") {
  const std::string same = key([](Request&) {});
  CHECK(key([](Request& r) { std::swap(r.inputs[0], r.inputs[1]); }) == same);
  CHECK(key([](Request& r) { r.id = "other"; }) == same);
  const std::vector<std::pair<std::string, std::function<void(Request&)>>> changes = {
      {"model", [](Request& r) { r.model = "n"; }},
      {"version", [](Request& r) { r.version = "2"; }},
      {"name", [](Request& r) { r.inputs[0].name = "INPUT2"; }},
      {"type", [](Request& r) { r.inputs[0].dtype = DType::u32; }},
      {"shape",
       [](Request& r) {
         r.inputs[0].dims = {1, 2};
       }},
      {"rank", [](Request& r) { r.inputs[0].dims = {2}; }},
      {"data",
       [](Request& r) {
         r.inputs[0] = int_tensor({1, 3}, {2, 1});
       }},
      {"an input less", [](Request& r) { r.inputs.pop_back(); }},
      {"parameter", [](Request& r) { r.parameters["p"] = int64_t{2}; }},
      {"parameter's type", [](Request& r) { r.parameters["p"] = true; }},
      {"a parameter more", [](Request& r) { r.parameters["q"] = std::string("x"); }},
      {"outputs", [](Request& r) { r.outputs.push_back({"OUTPUT0"}); }},
  };
  std::set<std::string> keys{same};
  for (const auto& [what, change] : changes) {
    CAPTURE(what);
    CHECK(keys.insert(key(change)).second);
  }
  const auto outputs = [](std::vector<std::string> names) {
    return key([&](Request& r) {
      for (const std::string& n : names) r.outputs.push_back({n});
    });
  };
  CHECK(outputs({"A"}) != outputs({"B"}));
  CHECK(outputs({"A", "B"}) == outputs({"B", "A"}));  // what comes back is picked for each request
}

}  // namespace pelton::serve::test
