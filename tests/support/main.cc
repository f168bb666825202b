// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#if defined(__SANITIZE_THREAD__)
// The packaged oneTBB is not built for the sanitizer, which therefore cannot see how it hands a task to a
// worker. Accesses whose stack leads through it are left out; threads of our own are checked.
// The same holds for the end of a stream in gRPC's client.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:tbb::detail\nrace:libtbb.so\nrace:~ClientCallbackReaderWriterImpl\n";
}
#endif
