// SPDX-License-Identifier: Apache-2.0
#include "serve/core/access.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace pelton::serve::test {
namespace {

constexpr size_t kPage = 4096, kKey = 256;
constexpr const char* kVariable = "PELTON_TEST_KEY";

// A key whose second half is on a page that nobody may read.
class HalfKey {
 public:
  explicit HalfKey(const std::string& half) {
    pages_ = static_cast<char*>(
        ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memcpy(pages_ + kPage - half.size(), half.data(), half.size());
    ::mprotect(pages_ + kPage, kPage, PROT_NONE);
    text = {pages_ + kPage - half.size(), 2 * half.size()};
  }
  ~HalfKey() { ::munmap(pages_, 2 * kPage); }
  std::string_view text;

 private:
  char* pages_;
};

// Whether looking at `given` goes on to its end, which ends a process.
bool read_to_the_end(const AccessRules& rules, std::string_view given) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    ::_exit(rules.allows(EndpointGroup::logging, [&](const std::string&) { return given; }) ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

}  // namespace

TEST_CASE("a key is compared to its end, wherever it differs") {
  const std::string secret(kKey, 's');
  ::setenv(kVariable, secret.c_str(), 1);
  AccessRules rules;
  rules.restrict(std::string("logging:key=env:") + kVariable);
  for (size_t wrong : {size_t{0}, kKey / 4, kKey / 2 - 1}) {
    std::string half = secret.substr(0, kKey / 2);
    half[wrong] = 'x';
    CHECK(read_to_the_end(rules, HalfKey(half).text));
  }
  CHECK(read_to_the_end(rules, HalfKey(secret.substr(0, kKey / 2)).text));
  // Nor does the length of what is given end it early.
  CHECK(read_to_the_end(rules, HalfKey("short").text));
  CHECK(read_to_the_end(rules, HalfKey(std::string(2 * kKey, 'x')).text));
}

TEST_CASE("only the key itself opens") {
  const std::string secret = "secret";
  for (const char* wrong : {"", "s", "secre", "secrets", "Secret", "secreT", "secretsecret"})
    CHECK_FALSE(same_secret(wrong, secret));
  CHECK(same_secret("secret", secret));
  CHECK_FALSE(same_secret("", ""));
  CHECK_FALSE(same_secret("x", ""));
  CHECK_FALSE(same_secret(std::string("secret\0", 7), secret));
}

}  // namespace pelton::serve::test
