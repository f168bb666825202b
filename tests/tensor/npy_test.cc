// SPDX-License-Identifier: Apache-2.0
#include "tensor/npy.h"

#include <doctest/doctest.h>

#include <cstring>

#include "support/expect_error.h"

using namespace pelton;
using test::expect_error;

namespace {

std::string file_of(const std::string& dict, std::string_view data) {
  std::string out = "\x93NUMPY\x01";
  out.push_back(0);
  out.push_back(static_cast<char>(dict.size()));
  out.push_back(0);
  return out + dict + std::string(data);
}

}  // namespace

TEST_CASE("every dtype survives a .npy file") {
  for (int i = 0; i < kDTypeCount; ++i) {
    auto t = static_cast<DType>(i);
    Tensor x = t == DType::string ? Tensor::of_strings({3}, {"a", "", "\xc3\xa9\xf0\x9f\x98\x80"})
                                  : from_doubles(t, {3, 1}, {1, t == DType::f8e8m0 ? 2.0 : 0, 1});
    CHECK_MESSAGE(parse_npy(format_npy(x), {}, t).same_bytes(x), name(t));
  }
  for (Dims dims : {Dims{}, Dims{0}, Dims{2, 0, 3}}) {
    Tensor x = Tensor::zeros(DType::f32, dims);
    CHECK(parse_npy(format_npy(x)).same_bytes(x));
  }
}

TEST_CASE("text with zeros inside stays; bytes that are no UTF-8 become the replacement character") {
  const std::string inside("a\0b", 3), replacement = "\xef\xbf\xbd";
  const Tensor once =
      parse_npy(format_npy(Tensor::of_strings({4}, {inside, "\xff", "x\xc0\x80", "\xed\xa0\x80"})));
  CHECK(once.strings() == std::vector<std::string>{inside, replacement, "x" + replacement, replacement});
  CHECK(format_npy(parse_npy(format_npy(once))) == format_npy(once));
}

TEST_CASE("the header is padded to 64 bytes") {
  std::string s = format_npy(Tensor::zeros(DType::f32, {2}));
  CHECK((s.size() - 8) % 64 == 0);
  CHECK(s.find("'shape': (2,)") != s.npos);
}

TEST_CASE("Fortran order and big-endian elements are put right") {
  float v[4] = {1, 2, 3, 4};
  std::string_view data(reinterpret_cast<char*>(v), 16);
  Tensor t = parse_npy(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", data));
  CHECK(to_doubles(t) == std::vector<double>{1, 3, 2, 4});
  t = parse_npy(
      file_of("{'descr':'>i2','fortran_order':False,'shape':(2,)}", std::string_view("\x01\x02\xff\xfe", 4)));
  CHECK(to_ints(t) == std::vector<int64_t>{258, -2});
}

TEST_CASE("bad .npy files are refused") {
  auto refused = [](const std::string& bytes, ErrorCode code, std::initializer_list<const char*> words) {
    expect_error(code, words, [&] { parse_npy(bytes); });
  };
  refused("nonsense", ErrorCode::bad_format, {".npy magic"});
  refused(file_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", ""), ErrorCode::bad_format,
          {"pickled"});
  refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,)}", "abcd"),
          ErrorCode::bad_format, {"holds 4 bytes", "99999999999 elements"});
  refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", ""), ErrorCode::bad_format,
          {"size in shape"});
  refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 9999999999)}", ""),
          ErrorCode::limit, {});
  refused(file_of("{'descr': '|S3', 'fortran_order': False, 'shape': (5332261958806667257,)}", "abc"),
          ErrorCode::bad_format, {"holds 3 bytes", "strings of 3"});
  refused(file_of("{'descr': '|S0', 'fortran_order': False, 'shape': (2,)}", "abc"), ErrorCode::bad_format,
          {"holds 3 bytes"});
  refused(file_of("{'descr': '<f4', 'shape': ()}", "abcd"), ErrorCode::bad_format, {"missing"});
  refused(file_of("{'descr': '<f3', 'fortran_order': False, 'shape': ()}", "abcd"), ErrorCode::bad_type,
          {"'f' and 3 bytes"});
  refused(file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "abcd"),
          ErrorCode::bad_format, {"structured arrays"});
  refused(std::string("\x93NUMPY\x01\x00\xff\xff{", 11) + std::string(10, ' '), ErrorCode::bad_format,
          {"65535 bytes"});
}

TEST_CASE("a .npz that claims more than it holds is refused") {
  expect_error(ErrorCode::bad_format, {"too short"}, [&] { parse_npz("not a zip"); });
  expect_error(ErrorCode::bad_format, {"no directory"}, [&] { parse_npz(std::string(100, 'x')); });
}
