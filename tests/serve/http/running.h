// SPDX-License-Identifier: Apache-2.0
// A server with the model "m", which echoes any number of elements, behind the HTTP front end.
#pragma once

#include <doctest/doctest.h>

#include "serve/core/fixture.h"
#include "serve/http/server.h"

namespace pelton::serve::test {

struct Running {
  TestServer core;
  std::unique_ptr<HttpServer> server;
  explicit Running(HttpOptions o = {}) {
    REQUIRE(core.start_echo().empty());
    o.port = 0;
    server = std::make_unique<HttpServer>(*core.core, o);
  }
  ~Running() { CHECK(core.end(*server)); }  // no connection is left
  size_t used() { return core.core->gate().used(); }
};

}  // namespace pelton::serve::test
