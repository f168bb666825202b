// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "ir/text.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::test;

namespace {
const char* const kTypes[] = {"f32", "bf16", "i64", "u8", "bool", "f64"};
Tensor data(const char* type, Dims d, uint64_t seed = 1) {
  const DType t = *dtype_from_name(type);
  return random(t, std::move(d), seed, 0, t == DType::boolean ? 2 : 100);
}
}  // namespace

TEST_CASE("transpose of any permutation") {
  struct Case {
    Dims x, y;
    const char* perm;
  };
  const Case cases[] = {{{5, 7}, {7, 5}, "[1,0]"},
                        {{130, 67}, {67, 130}, "[1,0]"},
                        {{2, 3, 4}, {4, 2, 3}, "[2,0,1]"},
                        {{2, 12, 33, 8}, {2, 33, 12, 8}, "[0,2,1,3]"},
                        {{2, 33, 12, 8}, {2, 12, 8, 33}, "[0,2,3,1]"},
                        {{1, 3, 0}, {0, 3, 1}, "[2,1,0]"},
                        {{2, 3}, {2, 3}, "[0,1]"}};
  for (const Case& c : cases)
    for (const char* type : kTypes)
      check_node(cat("graph \"g\"(%x: ", type, c.x, ") { %y = transpose(%x) {perm = ", c.perm, "} : ", type,
                     c.y, " return %y }"),
                 {data(type, c.x)});
}

TEST_CASE("slice, reverse, tile, pad, broadcast_to, concat") {
  for (const char* type : kTypes) {
    const std::string t = type;
    check_node(cat("graph \"g\"(%x: ", t,
                   "[6,9]) { %y = slice(%x) {axes = [0,1], starts = dims[5,1], sizes = dims[3,4], "
                   "steps = [-2,2]} : ",
                   t, "[3,4] return %y }"),
               {data(type, {6, 9})});
    check_node(cat("graph \"g\"(%x: ", t,
                   "[6,9]) { %y = slice(%x) {axes = [1], starts = dims[2], sizes = dims[0], steps = [1]} : ",
                   t, "[6,0] return %y }"),
               {data(type, {6, 9})});
    check_node(
        cat("graph \"g\"(%x: ", t, "[2,3,5]) { %y = reverse(%x) {axes = [0,2]} : ", t, "[2,3,5] return %y }"),
        {data(type, {2, 3, 5})});
    check_node(
        cat("graph \"g\"(%x: ", t, "[2,3]) { %y = tile(%x) {repeats = dims[3,2]} : ", t, "[6,6] return %y }"),
        {data(type, {2, 3})});
    check_node(cat("graph \"g\"(%x: ", t, "[3,1]) { %y = broadcast_to(%x) {dims = dims[2,3,40]} : ", t,
                   "[2,3,40] return %y }"),
               {data(type, {3, 1})});
    check_node(cat("graph \"g\"(%x: ", t, "[4,5], %v: ", t,
                   "[]) { %y = pad(%x, %v) {low = dims[1,-2], high = dims[0,3]} : ", t, "[5,6] return %y }"),
               {data(type, {4, 5}), data(type, {}, 2)});
    check_node(cat("graph \"g\"(%a: ", t, "[2,3,4], %b: ", t, "[2,0,4], %c: ", t,
                   "[2,5,4]) { %y = concat(%a, %b, %c) {axis = 1} : ", t, "[2,8,4] return %y }"),
               {data(type, {2, 3, 4}), data(type, {2, 0, 4}, 2), data(type, {2, 5, 4}, 3)});
    for (const char* l : {"{nhwc}", "{c16}"})
      check_node(cat("graph \"g\"(%a: ", t, "[2,16,3,4]", l, ", %b: ", t, "[2,32,3,4]", l,
                     ") { %y = concat(%a, %b) {axis = 1} : ", t, "[2,48,3,4]", l, " return %y }"),
                 {data(type, {2, 16, 3, 4}), data(type, {2, 32, 3, 4}, 2)});
    check_node(cat("graph \"g\"(%x: ", t,
                   "[2,9,5,6]{nhwc}) { %y = slice(%x) {axes = [1,-1], starts = dims[2,5], sizes = dims[4,3], "
                   "steps = [1,-2]} : ",
                   t, "[2,4,5,3]{nhwc} return %y }"),
               {data(type, {2, 9, 5, 6})});
    check_node(cat("graph \"g\"(%x: ", t,
                   "[2,5,4,6]{nhwc}) { %y = pad(%x) {low = dims[0,1,2,-1], high = dims[0,3,-1,2]} : ", t,
                   "[2,9,5,7]{nhwc} return %y }"),
               {data(type, {2, 5, 4, 6})});
  }
}

TEST_CASE("gather takes negative indices and refuses those outside") {
  for (const char* type : kTypes)
    for (const char* index : {"i64", "i32"}) {
      const DType it = *dtype_from_name(index);
      check_node(cat("graph \"g\"(%x: ", type, "[7,5], %i: ", index,
                     "[2,3]) { %y = gather(%x, %i) {axis = 0} : ", type, "[2,3,5] return %y }"),
                 {data(type, {7, 5}), random(it, {2, 3}, 2, -7, 7)});
      check_node(cat("graph \"g\"(%x: ", type, "[4,7,2], %i: ", index,
                     "[3]) { %y = gather(%x, %i) {axis = 1} : ", type, "[4,3,2] return %y }"),
                 {data(type, {4, 7, 2}), random(it, {3}, 2, -7, 7)});
      check_node(cat("graph \"g\"(%x: ", type, "[4,7], %i: ", index,
                     "[4,2]) { %y = gather_elements(%x, %i) {axis = 1} : ", type, "[4,2] return %y }"),
                 {data(type, {4, 7}), random(it, {4, 2}, 2, -7, 7)});
    }
}

TEST_CASE("ordering along an axis") {
  for (const char* type : {"f32", "bf16", "i64", "u8"}) {
    const std::string t = type;
    for (bool up : {true, false}) {
      check_node(cat("graph \"g\"(%x: ", t, "[3,50]) { %y, %i = sort(%x) {axis = 1, descending = ",
                     up ? "false" : "true", "} : ", t, "[3,50], i64[3,50] return %y, %i }"),
                 {data(type, {3, 50})});
      check_node(cat("graph \"g\"(%x: ", t,
                     "[3,50,2]) { %k = constant() {value = tensor<i64[]>{4}} : i64[] %y, %i = topk(%x, %k) "
                     "{axis = 1, largest = ",
                     up ? "true" : "false", "} : ", t, "[3,4,2], i64[3,4,2] return %y, %i }"),
                 {data(type, {3, 50, 2})});
      check_node(cat("graph \"g\"(%x: ", t, "[3,50]) { %y = ", up ? "arg_max" : "arg_min",
                     "(%x) {axis = 0, last = ", up ? "true" : "false", "} : i64[50] return %y }"),
                 {data(type, {3, 50})});
    }
    check_node(cat("graph \"g\"(%x: ", t,
                   "[3,50]) { %y = cumsum(%x) {axis = 1, exclusive = true, reverse = true} : ", t,
                   "[3,50] return %y }"),
               {data(type, {3, 50})});
  }
}
