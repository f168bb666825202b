// SPDX-License-Identifier: Apache-2.0
// Buffers of the caller, on the host and on the device.
#include <doctest/doctest.h>

#include "runtime/device_plans.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;
using namespace pelton::test;

TEST_CASE("device: buffers of the caller may lie on either side") {
  auto e = load(kMixed);
  Context c = e->context();
  Tensor x = ramp({2, 4}), b = ramp({4}, 5);
  device::Memory dx(test::open_fake({}), 32, "x"), dz(test::open_fake({}), 32, "z"),
      dy(test::open_fake({}), 32, "y");
  std::memcpy(dx.get(), x.data(), 32);
  std::vector<float> y(8, 0);
  c.bind_device_input(0, {2, 4}, dx.get());
  c.bind_input(1, {4}, b.data());
  c.bind_output(0, y.data(), 32);
  c.bind_device_output(1, dz.get(), 32);
  c.bind_device_output(2, dy.get(), 32);
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    x.set_double(1, round);
    std::memcpy(dx.get(), x.data(), 32);
    c.run_bound();
    auto expected = interp::run(e->graph(), {x, b}).outputs;
    CHECK(std::memcmp(y.data(), expected[0].tensor.data(), 32) == 0);
    CHECK(std::memcmp(dz.get(), expected[1].tensor.data(), 32) == 0);
    CHECK(std::memcmp(dy.get(), expected[2].tensor.data(), 32) == 0);
  }
  expect_error(ErrorCode::usage, {"no multiple of 16", "input 'x'"}, [&] {
    c.bind_device_input(0, {2, 4}, dx.bytes_at(4));
  });
  expect_error(ErrorCode::usage, {"no multiple of 16", "output 'e'"},
               [&] { c.bind_device_output(2, dy.bytes_at(8), 24); });
  c.bind_device_output(1, dz.get(), 28);
  expect_error(ErrorCode::bad_shape, {"has 28 bytes", "needs", "output 'z'"}, [&] { c.run_bound(); });
  auto text = load("graph \"t\"(%s: string[1]) { return %s @\"word\" }");
  Context of_text = text->context();
  expect_error(ErrorCode::bad_type, {"a result of type string[1] cannot be bound", "output 'word'"},
               [&] { of_text.bind_device_output(0, dz.get(), 32); });

  auto host = Executable::create(std::make_shared<Plan>(e->plan()), fake_registry(), device::detect_cpu(1));
  Context on_host = host->context();
  expect_error(ErrorCode::usage, {"runs on the CPU", "input 'x'"}, [&] {
    on_host.bind_device_input(0, {2, 4}, dx.get());
  });
}
