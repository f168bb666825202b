// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstring>
#include <future>

#include "api/handles.h"

using namespace pelton;
using namespace pelton::api;

struct pelton_future {
  std::future<void> result;
};

namespace {

void check_output(const pelton_context& c, size_t index) {
  if (size_t count = c.executable->graph().outputs.size(); index >= count)
    fail(ErrorCode::usage, cat("the plan has ", count, " outputs, got index ", index));
}

// Whether the bytes are those of an input, which may go once the run is over.
bool is_of_an_input(const Tensor& t, const std::vector<Tensor>& inputs) {
  if (t.dtype() == DType::string) return false;
  const auto at = reinterpret_cast<uintptr_t>(t.data());
  for (const Tensor& in : inputs) {
    if (!in.defined()) continue;
    const auto first = reinterpret_cast<uintptr_t>(in.data());
    if (at >= first && at < first + static_cast<uintptr_t>(in.bytes())) return true;
  }
  return false;
}

void run(pelton_context& c, const runtime::RunOptions& options) {
  c.ran = false;
  c.outputs.clear();
  c.written = c.bound;
  c.context.run_bound(options);
  c.outputs = c.context.outputs();
  for (size_t i = 0; i < c.outputs.size(); ++i)
    if (Tensor& t = c.outputs[i].tensor; t.defined() && !c.written[i].data && is_of_an_input(t, c.inputs))
      t = t.clone();
  c.ran = true;
}

// A result with what keeps its bytes alive.
struct Managed {
  pelton_managed_tensor c{};
  Tensor tensor;
  Dims dims;
};

}  // namespace

extern "C" {

pelton_status pelton_context_new(const pelton_plan* plan, pelton_context** context, pelton_error** error) {
  return guarded(error, [&] {
    need(context, "context") = nullptr;
    auto made = std::make_unique<pelton_context>(need(plan, "plan").executable());
    made->inputs.resize(made->executable->graph().inputs.size());
    made->bound.resize(made->executable->graph().outputs.size());
    *context = made.release();
  });
}

void pelton_context_free(pelton_context* context) {
  delete context;
}

pelton_status pelton_context_set_input(pelton_context* context, size_t index, const pelton_tensor* tensor,
                                       int copy, pelton_error** error) {
  return guarded(error, [&] {
    pelton_context& c = need(context, "context");
    const ir::Graph& g = c.executable->graph();
    if (index >= g.inputs.size())
      fail(ErrorCode::usage, cat("the plan has ", g.inputs.size(), " inputs, got index ", index));
    std::string where = cat("input '", g[g.inputs[index]].name, "'");
    bool device = false;
    Tensor t = with_place(where, [&] {
      device = on_device(need(tensor, "tensor"), *c.executable);
      return borrow(*tensor);
    });
    const ir::Type& type = g.type(g.inputs[index]);
    if (!type.is_tensor() || t.dtype() != type.dtype)
      fail(ErrorCode::bad_type, cat("expected ", type.str(), ", got ", t.str()), where);
    if (device) {
      if (copy) fail(ErrorCode::usage, "a tensor on a GPU is bound and not copied", where, "pass copy 0");
      c.context.bind_device_input(index, t.dims(), t.data());
      c.inputs[index] = Tensor();
      return;
    }
    if (copy) t = t.clone();
    c.context.bind_input(index, t.dims(), t.data());
    c.inputs[index] = std::move(t);
  });
}

pelton_status pelton_context_set_output(pelton_context* context, size_t index, const pelton_tensor* tensor,
                                        pelton_error** error) {
  return guarded(error, [&] {
    pelton_context& c = need(context, "context");
    check_output(c, index);
    const ir::Graph& g = c.executable->graph();
    if (!need(tensor, "tensor").data) {
      c.bound[index] = {};
      return c.context.bind_output(index, nullptr, 0);
    }
    std::string where = cat("output '", g.output_name(index), "'");
    bool device = false;
    Tensor t = with_place(where, [&] {
      device = on_device(*tensor, *c.executable);
      return borrow(*tensor);
    });
    const ir::Type& type = g.type(g.outputs[index]);
    if (!type.is_tensor() || t.dtype() != type.dtype)
      fail(ErrorCode::bad_type, cat("expected ", type.str(), ", got ", t.str()), where);
    void* data = const_cast<void*>(t.data());
    if (device)
      c.context.bind_device_output(index, data, t.bytes());
    else
      c.context.bind_output(index, data, t.bytes());
    c.bound[index] = {data, device};
  });
}

pelton_status pelton_context_output_shape(pelton_context* context, size_t index, int64_t* shape,
                                          int32_t capacity, int32_t* ndim, pelton_error** error) {
  return guarded(error, [&] {
    pelton_context& c = need(context, "context");
    check_output(c, index);
    Dims dims = c.context.output_dims()[index];
    need(ndim, "ndim") = static_cast<int32_t>(dims.size());
    if (static_cast<int64_t>(dims.size()) > capacity)
      fail(ErrorCode::limit, cat("the result has rank ", dims.size(), ", there is room for ", capacity));
    if (!dims.empty()) std::copy(dims.begin(), dims.end(), &need(shape, "shape"));
  });
}

pelton_status pelton_context_run(pelton_context* context, const pelton_run_options* options,
                                 pelton_error** error) {
  return guarded(error, [&] {
    pelton_context& c = need(context, "context");
    c.cancel = false;
    run(c, run_options_of(options, c));
  });
}

void pelton_context_cancel(pelton_context* context) {
  if (context) context->cancel = true;
}

pelton_status pelton_context_get_output(pelton_context* context, size_t index, pelton_managed_tensor** tensor,
                                        pelton_error** error) {
  return guarded(error, [&] {
    need(tensor, "tensor") = nullptr;
    pelton_context& c = need(context, "context");
    check_output(c, index);
    if (!c.ran) fail(ErrorCode::usage, "there is no result: the context has not run");
    const ir::Graph& g = c.executable->graph();
    auto made = std::make_unique<Managed>();
    const pelton_context::Bound& buffer = c.written[index];
    made->tensor = c.outputs[index].tensor;
    const ir::Type& type = g.type(g.outputs[index]);
    bool there = made->tensor.defined() || (buffer.device && type.is_tensor());
    pelton_dtype dtype = there ? to_c(type.dtype) : pelton_dtype{};
    if (!dtype.bits)
      fail(ErrorCode::bad_type, cat("a result of type ", type.str(), " has no DLPack form"),
           cat("output '", g.output_name(index), "'"));
    made->dims = buffer.device ? c.context.output_dims()[index] : made->tensor.dims();
    // The result is handed over: a caller may write to it.
    void* data = buffer.data ? buffer.data : made->tensor.mutable_data();
    pelton_device place{PELTON_CPU, 0};
    if (buffer.device) place = {PELTON_CUDA, c.executable->target().ordinal};
    made->c.tensor = {data,    place, static_cast<int32_t>(made->dims.size()), dtype, made->dims.data(),
                      nullptr, 0};
    made->c.manager_context = made.get();
    made->c.deleter = [](pelton_managed_tensor* self) {
      delete static_cast<Managed*>(self->manager_context);
    };
    *tensor = &made.release()->c;
  });
}

pelton_status pelton_context_run_async(pelton_context* context, const pelton_run_options* options,
                                       pelton_future** future, pelton_error** error) {
  return guarded(error, [&] {
    need(future, "future") = nullptr;
    pelton_context& c = need(context, "context");
    c.cancel = false;
    runtime::RunOptions o = run_options_of(options, c);
    auto made = std::make_unique<pelton_future>();
    made->result = std::async(std::launch::async, [&c, o] { run(c, o); });
    *future = made.release();
  });
}

pelton_status pelton_future_wait(pelton_future* future, int64_t timeout_ns, pelton_error** error) {
  return guarded(error, [&] {
    pelton_future& f = need(future, "future");
    if (!f.result.valid()) fail(ErrorCode::usage, "the future has been waited for already");
    if (timeout_ns >= 0 &&
        f.result.wait_for(std::chrono::nanoseconds(timeout_ns)) != std::future_status::ready)
      fail(ErrorCode::busy, "the run is not over yet");
    f.result.get();
  });
}

void pelton_future_free(pelton_future* future) {
  delete future;  // waits, as futures of launched work do
}

}  // extern "C"
