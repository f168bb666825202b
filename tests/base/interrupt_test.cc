// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support/expect_error.h"

using namespace pelton;

TEST_CASE("a signal sets the flag, the second one ends the process") {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    install_interrupt_handlers();
    raise(SIGTERM);
    if (interrupt_signal() != SIGTERM) _exit(1);
    raise(SIGINT);
    _exit(2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
}

TEST_CASE("throw_if_interrupted throws cancelled once a signal has come") {
  CHECK_NOTHROW(throw_if_interrupted());
  install_interrupt_handlers();
  raise(SIGINT);
  test::expect_error(ErrorCode::cancelled, {"interrupted"}, [] { throw_if_interrupted(); });
  clear_interrupt();
  CHECK_FALSE(interrupted());
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}
