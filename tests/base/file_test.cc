// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace pelton;
using test::expect_error;
using test::TempDir;

TEST_CASE("what was written is read and mapped, and no temporary file stays") {
  TempDir dir;
  std::string path = dir / "a.bin", content("one\0two", 7);
  write_file(path, "old");
  write_file(path, content);
  CHECK(read_file(path) == content);
  CHECK(file_size_bytes(path) == 7);
  MappedFile map(path);
  CHECK(std::string(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()) == content);
  MappedFile moved = std::move(map);
  CHECK(moved.bytes().size() == 7);
  CHECK(map.bytes().empty());
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) ++files;
  CHECK(files == 1);
}

TEST_CASE("an empty file maps to no bytes") {
  TempDir dir;
  write_file(dir / "empty", "");
  CHECK(MappedFile(dir / "empty").bytes().empty());
  CHECK(read_file(dir / "empty").empty());
}

TEST_CASE("a file that is not committed leaves the old one in place") {
  TempDir dir;
  write_file(dir / "x", "old");
  {
    AtomicFile file(dir / "x");
    file.write("new");
  }
  CHECK(read_file(dir / "x") == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("padding and writing back into an earlier place") {
  TempDir dir;
  AtomicFile file(dir / "x");
  file.write("abc");
  file.pad_to(8);
  CHECK(file.size_bytes() == 8);
  file.pad_to(8);
  CHECK(file.size_bytes() == 8);
  file.write("z");
  file.write_at(1, std::as_bytes(std::span("B", 1)));
  file.commit();
  CHECK(read_file(dir / "x") == std::string("aBc\0\0\0\0\0z", 9));
}

TEST_CASE("a new file gets the permissions of the umask, not those of a temporary file") {
  TempDir dir;
  write_file(dir / "x", "");
  struct stat st;
  REQUIRE(::stat((dir / "x").c_str(), &st) == 0);
  mode_t mask = ::umask(022);
  ::umask(mask);
  CHECK((st.st_mode & 0777) == (0666 & ~mask));
}

TEST_CASE("errors name the path and have the right code") {
  TempDir dir;
  std::string missing = dir / "nothing";
  expect_error(ErrorCode::not_found, {"No such file", "nothing"}, [&] { read_file(missing); });
  expect_error(ErrorCode::not_found, {"nothing"}, [&] { MappedFile m(missing); });
  expect_error(ErrorCode::not_found, {"nothing/deeper"}, [&] { write_file(missing + "/deeper", "x"); });
  expect_error(ErrorCode::io, {"is a folder", dir.path().c_str()}, [&] { read_file(dir.path()); });
  expect_error(ErrorCode::io, {"is a folder"}, [&] { write_file(dir.path(), "x"); });
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  expect_error(ErrorCode::io, {"not a regular file", "pipe"}, [&] { read_file(dir / "pipe"); });
  write_file(dir / "big", std::string(100, 'x'));
  expect_error(ErrorCode::limit, {"has 100 bytes", "99 allowed", "big"}, [&] { read_file(dir / "big", 99); });
}

TEST_CASE("a pipe or a device is not replaced by a file") {
  TempDir dir;
  const std::string path = dir / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  expect_error(ErrorCode::io, {"pipe", "is a device or a pipe, which cannot be replaced"},
               [&] { write_file(path, "x"); });
  struct stat there;
  REQUIRE(::stat(path.c_str(), &there) == 0);
  CHECK(S_ISFIFO(there.st_mode));
}

TEST_CASE("a full disk is disk_full") {
  // /dev/full refuses every write as a full disk does.
  int full = ::open("/dev/full", O_WRONLY);
  REQUIRE(full >= 0);
  ssize_t n = ::write(full, "x", 1);
  int error = errno;
  ::close(full);
  REQUIRE(n == -1);
  expect_error(ErrorCode::disk_full, {"cannot write", "No space left", "out.bin"},
               [&] { fail_errno(error, "write", "out.bin"); });
}

TEST_CASE("path_inside keeps names of others inside their folder") {
  TempDir dir;
  std::filesystem::create_directories(dir / "model/sub");
  write_file(dir / "secret", "s");
  write_file(dir / "model/w.bin", "w");
  std::filesystem::create_symlink("../secret", dir / "model/link");
  std::filesystem::create_symlink("w.bin", dir / "model/good");
  std::string folder = dir / "model";
  CHECK(read_file(path_inside(folder, "w.bin")) == "w");
  CHECK(read_file(path_inside(folder, "sub/../w.bin")) == "w");
  CHECK(read_file(path_inside(folder, "good")) == "w");
  expect_error(ErrorCode::bad_format, {"leads out of the folder", "../secret"},
               [&] { path_inside(folder, "../secret"); });
  expect_error(ErrorCode::bad_format, {"leads out of the folder", "link"},
               [&] { path_inside(folder, "link"); });
  expect_error(ErrorCode::bad_format, {"not a relative path"}, [&] { path_inside(folder, "/etc/passwd"); });
  expect_error(ErrorCode::bad_format, {"not a relative path"}, [&] { path_inside(folder, ""); });
  expect_error(ErrorCode::not_found, {"absent.bin"}, [&] { path_inside(folder, "absent.bin"); });
}

TEST_CASE("pages of a mapped file are forgotten and read again, other memory is left alone") {
  TempDir dir;
  std::string content(64 << 10, 'p');
  write_file(dir / "f", content);
  MappedFile file(dir / "f");
  CHECK(forget_pages(file.bytes()));
  CHECK(std::string_view(reinterpret_cast<const char*>(file.bytes().data()), content.size()) == content);
  CHECK(!forget_pages(std::as_bytes(std::span(content))));
  CHECK(content == std::string(64 << 10, 'p'));
}
