// SPDX-License-Identifier: Apache-2.0
#include "serve/http/json_reader.h"

#include <memory>

#include "base/error.h"

namespace pelton::serve {
namespace {

std::unique_ptr<simdjson::dom::parser>& thread_parser() {
  thread_local std::unique_ptr<simdjson::dom::parser> parser;
  return parser;
}

}  // namespace

namespace dom = simdjson::dom;

ParserLease::~ParserLease() {
  auto& p = thread_parser();
  if (p && p->capacity() > (1 << 20)) p.reset();
}

dom::element ParserLease::parse(const char* json, size_t size) {
  auto& parser = thread_parser();
  if (!parser) {
    parser = std::make_unique<dom::parser>();
    if (parser->allocate(64 << 10, kMaxJsonDepth) != simdjson::SUCCESS) throw std::bad_alloc();
  }
  if (parser->capacity() < size && parser->allocate(size, kMaxJsonDepth) != simdjson::SUCCESS)
    throw std::bad_alloc();
  dom::element root;
  const auto error = parser->parse(json, size, false).get(root);
  if (error == simdjson::DEPTH_ERROR)
    fail(ErrorCode::limit, cat("the JSON body is nested deeper than ", kMaxJsonDepth));
  if (error) fail(ErrorCode::bad_format, cat("the body is not JSON: ", simdjson::error_message(error)));
  return root;
}

std::string_view text_of(dom::element e, std::string_view what) {
  std::string_view s;
  if (e.get(s)) fail(ErrorCode::bad_format, cat(what, " is not a string"));
  return s;
}

dom::object object_of(dom::element e, std::string_view what) {
  dom::object o;
  if (e.get(o)) fail(ErrorCode::bad_format, cat(what, " is not an object"));
  return o;
}

dom::array array_of(dom::element e, std::string_view what) {
  dom::array a;
  if (e.get(a)) fail(ErrorCode::bad_format, cat(what, " is not a list"));
  return a;
}

Parameter parameter_of(std::string_view name, dom::element e) {
  switch (e.type()) {
    case dom::element_type::BOOL:
      return bool(e);
    case dom::element_type::INT64:
      return int64_t(e);
    case dom::element_type::UINT64:
      return uint64_t(e);
    case dom::element_type::DOUBLE:
      return double(e);
    case dom::element_type::STRING:
      return std::string(std::string_view(e));
    default:
      fail(ErrorCode::bad_format, cat("parameter '", name, "' is neither a boolean, a number nor a string"));
  }
}

uint64_t size_of(std::string_view name, dom::element e) {
  uint64_t n;
  if (e.get(n)) fail(ErrorCode::bad_format, cat("parameter '", name, "' expects a non-negative integer"));
  return n;
}

bool flag_of(std::string_view name, dom::element e) {
  bool b;
  if (e.get(b)) fail(ErrorCode::bad_format, cat("parameter '", name, "' expects true or false"));
  return b;
}

}  // namespace pelton::serve
