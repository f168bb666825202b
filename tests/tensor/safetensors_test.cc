// SPDX-License-Identifier: Apache-2.0
#include "tensor/safetensors.h"

#include <doctest/doctest.h>

#include <cstring>

#include "base/file.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "tensor/npy.h"

using namespace pelton;
using test::expect_error;

namespace {

std::string file_of(const std::string& header, size_t data_bytes) {
  uint64_t n = header.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + header + std::string(data_bytes, '\1');
}

void refused(ErrorCode code, std::initializer_list<const char*> words, const std::string& bytes) {
  expect_error(code, words, [&] { parse_safetensors(bytes); });
}

}  // namespace

TEST_CASE("safetensors: what is saved loads, with metadata and every bit") {
  test::TempDir dir;
  std::map<std::string, Tensor> tensors{{"a.weight", Tensor::from<float>({2, 3}, {1, -2, 3, 0, 5, 6})},
                                        {"b", Tensor::scalar<int64_t>(-7)},
                                        {"empty", Tensor::zeros(DType::bf16, {0, 4})}};
  save_safetensors(dir / "x.safetensors", tensors, {{"format", "pt"}});
  Safetensors read = load_safetensors(dir / "x.safetensors");
  CHECK(read.metadata == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(read.tensors.size() == 3);
  for (const auto& [name, t] : tensors) CHECK(read.tensors.at(name).same_bytes(t));
}

TEST_CASE("safetensors: damaged files are refused with the reason") {
  const std::string entry = R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  CHECK(parse_safetensors(file_of("{" + entry + "}", 8)).tensors.at("x").count() == 2);
  refused(ErrorCode::bad_format, {"3 bytes", "too few"}, "abc");
  refused(ErrorCode::bad_format, {"limit"}, std::string(8, '\xff') + "{}");
  refused(ErrorCode::bad_format, {"claims 500 bytes", "cut short"}, [] {
    std::string s = file_of("{}", 0);
    uint64_t n = 500;
    std::memcpy(s.data(), &n, 8);
    return s;
  }());
  refused(ErrorCode::bad_format, {"not a JSON object"}, file_of("[1", 0));
  refused(ErrorCode::bad_format, {"'x'", "the file has 4 bytes"}, file_of("{" + entry + "}", 4));
  refused(ErrorCode::bad_format, {"belong to no tensor"}, file_of("{" + entry + "}", 12));
  refused(ErrorCode::bad_format, {"needs 12 bytes, but has 8"},
          file_of(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8));
  refused(ErrorCode::bad_format, {"start at 0"},
          file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8));
  refused(ErrorCode::bad_format, {"'y'", "start at 8"},
          file_of("{" + entry + R"(,"y":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
  refused(ErrorCode::bad_type, {"Q8"},
          file_of(R"({"x":{"dtype":"Q8","shape":[1],"data_offsets":[0,1]}})", 1));
  refused(ErrorCode::limit, {},
          file_of(R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8));
  refused(ErrorCode::bad_format, {"whole number"},
          file_of(R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", 8));
}

TEST_CASE("safetensors: text tensors are refused on saving") {
  test::TempDir dir;
  expect_error(ErrorCode::bad_type, {"string", "'t'"}, [&] {
    save_safetensors(dir / "x", {{"t", Tensor::of_strings({1}, {"a"})}});
  });
  CHECK(!file_exists(dir / "x"));
}

TEST_CASE("npz: what is saved loads") {
  test::TempDir dir;
  std::map<std::string, Tensor> tensors{{"a/b", Tensor::from<float>({3}, {1, 2, 3})},
                                        {"n", Tensor::scalar<int64_t>(5)}};
  save_npz(dir / "x.npz", tensors);
  std::map<std::string, Tensor> read = load_npz(dir / "x.npz");
  REQUIRE(read.size() == 2);
  for (const auto& [name, t] : tensors) CHECK(read.at(name).same_bytes(t));
}
