// SPDX-License-Identifier: Apache-2.0
#include "serve/core/request.h"

#include "serve/core/call_graph.h"

namespace pelton::serve {

Request::~Request() {
  if (callback_) respond(Error(ErrorCode::internal, "the request was dropped without an answer", model));
}

void Request::respond(Response&& response) {
  PELTON_CHECK(callback_, "request for ", model, " answered twice");
  Callback callback = std::move(callback_);
  callback_ = nullptr;
  response.id = id;
  if (wait) wait->done();
  if (trace) trace->finish(*this, response);
  callback(std::move(response), true);
}

void Request::respond(const Error& error) {
  Response r;
  r.model = model;
  r.version = version;
  r.error = error;
  respond(std::move(r));
}

void Request::respond_partial(Response&& response) {
  PELTON_CHECK(callback_, "partial response for ", model, " after the final one");
  response.id = id;
  callback_(std::move(response), false);
}

const TensorValue* Request::input(std::string_view name) const {
  for (const TensorValue& t : inputs)
    if (t.name == name) return &t;
  return nullptr;
}

}  // namespace pelton::serve
