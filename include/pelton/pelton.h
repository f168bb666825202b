// SPDX-License-Identifier: Apache-2.0
// Pelton for C++: owning handles and exceptions over the C interface. Header only; link libpelton.so.
//
//   pelton::Plan plan("model.pelton");
//   pelton::Context context(plan);
//   context.set_input(0, pelton::view(pixels, {1, 3, 224, 224}));
//   context.run();
//   pelton::Output scores = context.output(0);
#pragma once

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pelton/c/pelton.h"

namespace pelton {

// What a call of the library returned other than success.
class Failure : public std::exception {
 public:
  explicit Failure(pelton_status status, pelton_error* error) : status_(status) {
    if (error) {
      code_ = pelton_error_code(error);
      what_ = pelton_error_what(error);
      where_ = pelton_error_where(error);
      fix_ = pelton_error_fix(error);
      pelton_error_free(error);
    }
    line_ = what_;
    if (!where_.empty()) line_ += " (" + where_ + ")";
    if (!fix_.empty()) line_ += ": " + fix_;
  }
  pelton_status status() const { return status_; }
  const std::string& code() const { return code_; }
  const std::string& where() const { return where_; }
  const std::string& fix() const { return fix_; }
  const char* what() const noexcept override { return line_.c_str(); }

 private:
  pelton_status status_;
  std::string code_, what_, where_, fix_, line_;
};

namespace detail {
template <class F>
void call(F&& f) {
  pelton_error* error = nullptr;
  pelton_status status = f(&error);
  if (status != PELTON_OK) throw Failure(status, error);
}
template <class T>
struct Type;
template <>
struct Type<float> {
  static constexpr pelton_dtype value{2, 32, 1};
};
template <>
struct Type<double> {
  static constexpr pelton_dtype value{2, 64, 1};
};
template <>
struct Type<int64_t> {
  static constexpr pelton_dtype value{0, 64, 1};
};
template <>
struct Type<int32_t> {
  static constexpr pelton_dtype value{0, 32, 1};
};
template <>
struct Type<int8_t> {
  static constexpr pelton_dtype value{0, 8, 1};
};
template <>
struct Type<uint8_t> {
  static constexpr pelton_dtype value{1, 8, 1};
};
template <>
struct Type<bool> {
  static constexpr pelton_dtype value{6, 8, 1};
};
}  // namespace detail

// A tensor in memory of the caller's, of the host or, with `device` {PELTON_CUDA, ordinal}, of a GPU.
class View {
 public:
  View(void* data, pelton_dtype dtype, std::vector<int64_t> shape, pelton_device device = {PELTON_CPU, 0})
      : shape_(std::move(shape)) {
    tensor_ = {data, device, static_cast<int32_t>(shape_.size()), dtype, nullptr, nullptr, 0};
  }
  const pelton_tensor* get() {
    tensor_.shape = shape_.data();
    return &tensor_;
  }

 private:
  std::vector<int64_t> shape_;
  pelton_tensor tensor_;
};

// `data` must hold as many elements as the shape says; inputs are not written to.
template <class T>
View view(const T* data, std::vector<int64_t> shape, pelton_device device = {PELTON_CPU, 0}) {
  return View(const_cast<T*>(data), detail::Type<T>::value, std::move(shape), device);
}
template <class T>
View view(const std::vector<T>& data, std::vector<int64_t> shape) {
  return view(data.data(), std::move(shape));
}

// A result; owns its bytes unless it stands in a buffer of the caller's.
class Output {
 public:
  explicit Output(pelton_managed_tensor* tensor) : tensor_(tensor, [](auto* t) { t->deleter(t); }) {}
  std::vector<int64_t> shape() const {
    const pelton_tensor& t = tensor_->tensor;
    return {t.shape, t.shape + t.ndim};
  }
  int64_t count() const {
    int64_t n = 1;
    for (int64_t d : shape()) n *= d;
    return n;
  }
  pelton_device device() const { return tensor_->tensor.device; }
  template <class T>
  const T* data() const {
    pelton_dtype want = detail::Type<T>::value, have = tensor_->tensor.dtype;
    if (want.code != have.code || want.bits != have.bits) throw Failure(PELTON_BAD_TYPE, nullptr);
    return static_cast<const T*>(tensor_->tensor.data);
  }
  // For DLPack consumers, which take over the tensor.
  pelton_managed_tensor* release() { return tensor_.release(); }

 private:
  std::unique_ptr<pelton_managed_tensor, void (*)(pelton_managed_tensor*)> tensor_;
};

struct PlanOptions {
  std::string device = "auto", precision = "fp32";
  std::vector<std::string> shapes;  // "name=1x3x224x224", sizes that vary as min:opt:max
  int threads = 0, max_contexts = 0;
  int64_t wait_ns = -1, memory_budget_bytes = 0;
};

struct ValueInfo {
  std::string name, type;
  pelton_dtype dtype;
  std::vector<int64_t> shape;  // -1: may vary
};

// A model ready to run; copies share it. Any number of threads.
class Plan {
 public:
  explicit Plan(const std::string& path, const PlanOptions& options = {}) {
    pelton_plan_options o;
    pelton_plan_options_init(&o);
    o.device = options.device.c_str();
    o.precision = options.precision.c_str();
    o.threads = options.threads;
    o.max_contexts = options.max_contexts;
    o.wait_ns = options.wait_ns;
    o.memory_budget_bytes = options.memory_budget_bytes;
    std::vector<const char*> shapes;
    for (const std::string& s : options.shapes) shapes.push_back(s.c_str());
    o.shapes = shapes.data();
    o.shape_count = shapes.size();
    pelton_plan* plan = nullptr;
    detail::call([&](pelton_error** e) { return pelton_plan_open(path.c_str(), &o, &plan, e); });
    plan_.reset(plan, pelton_plan_free);
  }
  void save(const std::string& path) const {
    detail::call([&](pelton_error** e) { return pelton_plan_save(get(), path.c_str(), e); });
  }
  std::vector<ValueInfo> inputs() const { return list(pelton_plan_input_count(get()), pelton_plan_input); }
  std::vector<ValueInfo> outputs() const { return list(pelton_plan_output_count(get()), pelton_plan_output); }
  size_t find_input(const std::string& name) const { return find(name, pelton_plan_find_input); }
  size_t find_output(const std::string& name) const { return find(name, pelton_plan_find_output); }
  pelton_memory memory() const {
    pelton_memory m{};
    m.size = sizeof m;
    detail::call([&](pelton_error** e) { return pelton_plan_memory(get(), nullptr, nullptr, &m, e); });
    return m;
  }
  // Before anything has run with these input shapes.
  pelton_memory memory(const std::vector<std::vector<int64_t>>& shapes) const {
    pelton_memory m{};
    m.size = sizeof m;
    std::vector<const int64_t*> dims;
    std::vector<int32_t> ndims;
    for (const auto& s : shapes) {
      dims.push_back(s.data());
      ndims.push_back(static_cast<int32_t>(s.size()));
    }
    if (shapes.size() != pelton_plan_input_count(get())) throw Failure(PELTON_USAGE, nullptr);
    detail::call(
        [&](pelton_error** e) { return pelton_plan_memory(get(), dims.data(), ndims.data(), &m, e); });
    return m;
  }
  void refit(const std::string& name, View value) {
    const char* n = name.c_str();
    detail::call([&](pelton_error** e) { return pelton_plan_refit(plan_.get(), &n, value.get(), 1, e); });
  }
  const pelton_plan* get() const { return plan_.get(); }

 private:
  template <class F>
  std::vector<ValueInfo> list(size_t count, F f) const {
    std::vector<ValueInfo> out;
    for (size_t i = 0; i < count; ++i) {
      pelton_value_info v{};
      v.size = sizeof v;
      detail::call([&](pelton_error** e) { return f(get(), i, &v, e); });
      std::vector<int64_t> shape;
      if (v.ndim > 0) shape.assign(v.shape, v.shape + v.ndim);
      out.push_back({v.name, v.type, v.dtype, std::move(shape)});
    }
    return out;
  }
  template <class F>
  size_t find(const std::string& name, F f) const {
    size_t index = 0;
    detail::call([&](pelton_error** e) { return f(get(), name.c_str(), &index, e); });
    return index;
  }
  std::shared_ptr<pelton_plan> plan_;
};

struct RunOptions {
  uint64_t seed = 0, step = 0;
  int64_t timeout_ns = 0;
  void* stream = nullptr;  // a cudaStream_t, as pelton_run_options says
};

// A run on a thread of its own; destruction waits for it.
class Future {
 public:
  explicit Future(pelton_future* future) : future_(future, pelton_future_free) {}
  // Throws what the run threw; PELTON_BUSY when it is not over within the time.
  void wait(int64_t timeout_ns = -1) {
    detail::call([&](pelton_error** e) { return pelton_future_wait(future_.get(), timeout_ns, e); });
  }

 private:
  std::unique_ptr<pelton_future, void (*)(pelton_future*)> future_;
};

// Buffers and state of runs; one thread at a time, except cancel().
class Context {
 public:
  explicit Context(const Plan& plan) : plan_(plan), context_(make(plan), pelton_context_free) {}
  // Read in place: `tensor` must stay valid until the runs that use it are over.
  void set_input(size_t index, View tensor) { input(index, tensor, 0); }
  void copy_input(size_t index, View tensor) { input(index, tensor, 1); }
  void set_output(size_t index, View tensor) {
    detail::call([&](pelton_error** e) { return pelton_context_set_output(get(), index, tensor.get(), e); });
  }
  std::vector<int64_t> output_shape(size_t index) {
    int64_t shape[64];
    int32_t ndim = 0;
    detail::call(
        [&](pelton_error** e) { return pelton_context_output_shape(get(), index, shape, 64, &ndim, e); });
    return {shape, shape + ndim};
  }
  void run(const RunOptions& options = {}) {
    pelton_run_options o = convert(options);
    detail::call([&](pelton_error** e) { return pelton_context_run(get(), &o, e); });
  }
  Future run_async(const RunOptions& options = {}) {
    pelton_run_options o = convert(options);
    pelton_future* future = nullptr;
    detail::call([&](pelton_error** e) { return pelton_context_run_async(get(), &o, &future, e); });
    return Future(future);
  }
  void cancel() { pelton_context_cancel(get()); }
  Output output(size_t index) {
    pelton_managed_tensor* tensor = nullptr;
    detail::call([&](pelton_error** e) { return pelton_context_get_output(get(), index, &tensor, e); });
    return Output(tensor);
  }
  pelton_context* get() { return context_.get(); }

 private:
  static pelton_context* make(const Plan& plan) {
    pelton_context* context = nullptr;
    detail::call([&](pelton_error** e) { return pelton_context_new(plan.get(), &context, e); });
    return context;
  }
  static pelton_run_options convert(const RunOptions& o) {
    return {sizeof(pelton_run_options), o.seed, o.step, o.timeout_ns, o.stream};
  }
  void input(size_t index, View& tensor, int copy) {
    detail::call(
        [&](pelton_error** e) { return pelton_context_set_input(get(), index, tensor.get(), copy, e); });
  }
  Plan plan_;
  std::unique_ptr<pelton_context, void (*)(pelton_context*)> context_;
};

}  // namespace pelton
