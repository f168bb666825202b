// SPDX-License-Identifier: Apache-2.0
// What of a client's memory is read in place and what is copied before anybody looks at it.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "serve/core/shared_memory.h"
#include "support/expect_error.h"

namespace pelton::serve::test {
namespace {

// A segment as a client makes it, which goes on writing to it.
struct Segment {
  static constexpr size_t kBytes = 64 << 10;
  const std::string key = cat("/test-shared-memory-", ::getpid());
  char* data = nullptr;
  Segment() {
    const int fd = ::shm_open(key.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(::ftruncate(fd, kBytes) == 0);
    data = static_cast<char*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
    REQUIRE(data != MAP_FAILED);
  }
  ~Segment() {
    ::munmap(data, kBytes);
    ::shm_unlink(key.c_str());
  }
};

}  // namespace

TEST_CASE("whatever may be an index is copied: the client cannot change it after the check") {
  Segment segment;
  MemoryGate gate(1 << 20);
  SharedMemory memory(true, gate);
  memory.add("r", segment.key, 0, Segment::kBytes);
  constexpr size_t kRead = 32 << 10;
  for (const DType t : {DType::boolean, DType::u8, DType::i8, DType::u16, DType::i16, DType::u32, DType::i32,
                        DType::u64, DType::i64, DType::string}) {
    std::memset(segment.data, 1, Segment::kBytes);
    const Blob b = memory.read("r", 0, kRead, t);
    CHECK(gate.used() == kRead);  // a copy, and it is counted
    std::memset(segment.data, 2, Segment::kBytes);
    CHECK_MESSAGE(std::string_view(b.data, b.size) == std::string(kRead, '\1'), wire_name(t));
  }
  CHECK(gate.used() == 0);
}

TEST_CASE("an output that is written over its own input is that input as it came") {
  Segment segment;
  MemoryGate gate(1 << 20);
  SharedMemory memory(true, gate);
  memory.add("r", segment.key, 0, Segment::kBytes);
  constexpr size_t kRead = 40 << 10;
  for (const size_t offset : {size_t{0}, size_t{4}, size_t{20 << 10}}) {
    std::string values(kRead, ' ');
    for (size_t i = 0; i < kRead; ++i) values[i] = static_cast<char>(i * 7 + (i >> 8));
    std::memcpy(segment.data, values.data(), kRead);
    Response response;
    response.outputs.push_back({"OUTPUT0", DType::f32, {kRead / 4}, memory.read("r", 0, kRead, DType::f32)});
    RequestedOutput place;
    place.name = "OUTPUT0", place.region = "r", place.region_offset = offset, place.region_size = kRead;
    memory.store(response, {place}, {});
    CHECK(std::string_view(segment.data + offset, kRead) == values);
  }
}

TEST_CASE("large floats are read where they lie, small ones are copied") {
  Segment segment;
  MemoryGate gate(1 << 20);
  SharedMemory memory(true, gate);
  memory.add("r", segment.key, 0, Segment::kBytes);
  std::memset(segment.data, 1, Segment::kBytes);
  const Blob large = memory.read("r", 0, 32 << 10, DType::f32), small = memory.read("r", 0, 64, DType::f32);
  CHECK(gate.used() == 64);
  std::memset(segment.data, 2, Segment::kBytes);
  CHECK(large.data[100] == 2);
  CHECK(small.data[10] == 1);
}

TEST_CASE("copies stop where the gate closes, and regions go while they are in use") {
  Segment segment;
  MemoryGate gate(40 << 10);
  SharedMemory memory(true, gate);
  memory.add("r", segment.key, 0, Segment::kBytes);
  std::memset(segment.data, 7, Segment::kBytes);
  const Blob held = memory.read("r", 0, 32 << 10, DType::i32);
  pelton::test::expect_error(ErrorCode::busy, {"as many request bytes as it may"},
                             [&] { memory.read("r", 0, 32 << 10, DType::i32); });
  const Blob mapped = memory.read("r", 0, 32 << 10, DType::f32);
  memory.remove_all(true);
  CHECK(memory.list("", false).size() == 1);
  memory.remove_all(false);
  CHECK(memory.list("", false).empty());
  CHECK(mapped.data[5] == 7);
  pelton::test::expect_error(ErrorCode::bad_name, {"no shared memory region"},
                             [&] { memory.read("r", 0, 64, DType::f32); });
}

}  // namespace pelton::serve::test
