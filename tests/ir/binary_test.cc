// SPDX-License-Identifier: Apache-2.0
#include "ir/binary.h"

#include <doctest/doctest.h>

#include "base/philox.h"
#include "ir/text.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;
using pelton::test::expect_error;

namespace {

const char* kText = R"(graph "main"(%x: f32[N,3], %y: i64[] @"in/put", %b: bool[]) {
  symbol N in [1, 64]
  check N <= 64 @"test"
  guard N != 1 @"pass"
  slot %count counter "count" : i64[] = tensor<i64[]>{7}
  %0 = constant() {value = tensor<f32[3]>{1, -0.5, 1e-20}} : f32[3]
  %big = constant() {value = tensor<f32[4,5]>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}} : f32[4,5]
  %1 = add(%x, %0) : f32[N,3] @"layer/add"
  %2 = reshape(%1) {dims = dims[3*N]} : f32[3*N]
  %3 = concat(%2, %2) {axis = 0} : f32[6*N]
  %4 = trilu(%1, _) {upper = false} : f32[N,3]
  %5 = constant() {value = tensor<i64[]>{1}} : i64[]
  %next = add(%count, %5) : i64[]
  %6 = if(%b, %1) {else = graph "no"(%p: f32[N,3]) {
      return %p
    }, then = graph "yes"(%p: f32[N,3]) {
      %0 = neg(%p) : f32[N,3]
      return %0
    }} : f32[N,3]
  next %count = %next
  may alias output 0 input 0
  return %1 @"out:0", %3, %4, %6, %big
}
)";

struct Blobs {
  std::vector<Tensor> kept;
  uint64_t add(const Tensor& t) {
    kept.push_back(t);
    return kept.size() - 1;
  }
  Tensor get(uint64_t blob, DType dtype, const Dims& dims) {
    if (blob >= kept.size()) fail(ErrorCode::bad_format, cat("there is no blob ", blob));
    if (kept[blob].dtype() != dtype || kept[blob].dims() != dims)
      fail(ErrorCode::bad_format, cat("blob ", blob, " is of another type"));
    return kept[blob];
  }
};

std::string write(const Graph& g, Blobs& blobs) {
  return to_binary(g, [&](const Tensor& t) { return blobs.add(t); });
}
Graph read(std::string_view bytes, Blobs& blobs) {
  return from_binary(bytes, [&](uint64_t b, DType t, const Dims& d) { return blobs.get(b, t, d); });
}

}  // namespace

TEST_CASE("binary form reads back as the same graph, byte for byte") {
  Blobs blobs;
  Graph g = parse_graph(kText);
  std::string bytes = write(g, blobs);
  CHECK(blobs.kept.size() == 1);  // small tensors stand in the form
  Graph back = read(bytes, blobs);
  CHECK(print(back) == print(g));
  CHECK(back.symbols->next_fresh == g.symbols->next_fresh);
  for (size_t i = 0; i < g.order().size(); ++i)
    CHECK(back[back.order()[i]].stable_id == g[g.order()[i]].stable_id);
  Blobs again;
  CHECK(write(back, again) == bytes);
}

TEST_CASE("binary form keeps a slot whose name is not its label") {
  Graph g =
      parse_graph("graph \"g\"() {\n  slot %a counter \"a b\" : i64[] = tensor<i64[]>{7}\n  return %a\n}\n");
  CHECK(g[g.slots[0].old_value].name == "a b");
  Blobs blobs;
  CHECK(print(read(write(g, blobs), blobs)) == print(g));
}

TEST_CASE("binary form of another version, or cut short anywhere, is refused") {
  Blobs blobs;
  std::string bytes = write(parse_graph(kText), blobs);
  std::string future = bytes;
  future[0] = 9;
  expect_error(ErrorCode::unsupported_version, {"form 9", "reads 1"}, [&] { read(future, blobs); });
  for (size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(read(bytes.substr(0, size), blobs), Error);
  }
  expect_error(ErrorCode::bad_format, {"1 bytes follow"}, [&] { read(bytes + '\0', blobs); });
}

TEST_CASE("binary form that was tampered with is refused or reads as a sound graph") {
  Blobs blobs;
  std::string bytes = write(parse_graph(kText), blobs);
  RandomStream random{11};
  int refused = 0;
  for (uint64_t round = 0; round < 4000; ++round) {
    std::string bad = bytes;
    for (uint32_t flips = 1 + random.bits(4 * round) % 3; flips > 0; --flips)
      bad[random.bits(4 * round + flips) % bad.size()] =
          static_cast<char>(random.bits(4 * round + 3) >> (8 * flips));
    try {
      print(read(bad, blobs));
    } catch (const Error& e) {
      ++refused;
      CHECK(e.code() != ErrorCode::internal);
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("binary form: a type that cannot be is refused, one that may differ becomes a check") {
  Blobs blobs;
  Graph g = parse_graph(
      "graph \"g\"(%x: f32[N], %y: f32[M]) {\n  symbol N in [1, 9]\n  symbol M in [1, 9]\n"
      "  %0 = neg(%x) : f32[N]\n  return %0\n}");
  ValueId v = g.outputs[0];
  g.edit(v).type = Type::tensor(DType::f32, {Dim::symbol("M")});
  Graph back = read(write(g, blobs), blobs);
  REQUIRE(back.checks.size() == 1);
  CHECK(back.checks[0].str() == "N == M");
  CHECK(read(write(back, blobs), blobs).checks.size() == 1);  // not once more each time
  g.edit(v).type = Type::tensor(DType::f32, {Dim::symbol("N") + 1});
  expect_error(ErrorCode::bad_format, {"f32[N + 1]", "but it is f32[N]", "neg"},
               [&] { read(write(g, blobs), blobs); });
  g.edit(v).type = Type::tensor(DType::f64, {Dim::symbol("N")});
  expect_error(ErrorCode::bad_format, {"f64[N]", "f32[N]"}, [&] { read(write(g, blobs), blobs); });
}
