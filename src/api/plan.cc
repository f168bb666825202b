// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "api/handles.h"
#include "base/thread_pool.h"
#include "register/model.h"
#include "register/registry.h"
#include "register/retuner.h"
#include "runtime/plan_file.h"
#include "runtime/refit.h"

using namespace pelton;
using namespace pelton::api;

namespace {

pelton_plan::Info info_of(const ir::Type& type, const std::string& name) {
  pelton_plan::Info info;
  info.name = name;
  info.type = type.str();
  if (!type.is_tensor()) return info;
  info.dtype = to_c(type.dtype);
  if (!type.ranked) return info;
  info.ndim = static_cast<int32_t>(type.rank());
  for (const Dim& d : type.shape) info.shape.push_back(d.constant().value_or(-1));
  return info;
}

void describe(pelton_plan& plan) {
  const ir::Graph& g = plan.current->graph();
  for (ir::ValueId v : g.inputs) plan.inputs.push_back(info_of(g.type(v), g[v].name));
  for (size_t i = 0; i < g.outputs.size(); ++i)
    plan.outputs.push_back(info_of(g.type(g.outputs[i]), g.output_name(i)));
}

pelton_status give_info(const std::vector<pelton_plan::Info>* values, const char* what, size_t index,
                        pelton_value_info* out, pelton_error** error) {
  return guarded(error, [&] {
    const auto& list = need(values, "plan");
    pelton_value_info& info = need(out, "info");
    if (index >= list.size())
      fail(ErrorCode::usage, cat("the plan has ", list.size(), " ", what, "s, got index ", index));
    const pelton_plan::Info& from = list[index];
    if (info.size < sizeof(pelton_value_info)) fail(ErrorCode::usage, "the size of info is not set");
    info.name = from.name.c_str();
    info.type = from.type.c_str();
    info.dtype = from.dtype;
    info.ndim = from.ndim;
    info.shape = from.shape.data();
  });
}

pelton_status find(const std::vector<pelton_plan::Info>* values, const char* what, const char* name,
                   size_t* index, pelton_error** error) {
  return guarded(error, [&] {
    const auto& list = need(values, "plan");
    std::string names;
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].name == &need(name, "name")) {
        need(index, "index") = i;
        return;
      }
      append(names, cat(i ? ", " : "", list[i].name));
    }
    fail(ErrorCode::bad_name, cat("there is no ", what, " '", name, "'"), "",
         cat("the ", what, "s are ", names));
  });
}

}  // namespace

extern "C" {

void pelton_plan_options_init(pelton_plan_options* options) {
  if (options) *options = {sizeof(pelton_plan_options), nullptr, 0, 0, -1, 0, nullptr, nullptr, 0};
}

pelton_status pelton_plan_open(const char* path, const pelton_plan_options* options, pelton_plan** plan,
                               pelton_error** error) {
  return guarded(error, [&] {
    need(plan, "plan") = nullptr;
    need(path, "path");
    pelton_plan_options o = options_of(options);
    CompileOptions compile;
    compile.only_runs = true;
    if (o.precision) compile.precision = o.precision;
    for (size_t i = 0; i < o.shape_count; ++i) {
      std::string text = &need((&need(o.shapes, "shapes"))[i], "a shape");
      size_t equals = text.find('=');
      if (equals == text.npos)
        fail(ErrorCode::usage, cat("the shape '", text, "' has no name"), "", "write name=AxBxC");
      compile.shapes[text.substr(0, equals)] = text.substr(equals + 1);
    }
    if (o.threads) set_threads(o.threads);
    device::Target target = find_device(o.device ? o.device : "auto", o.threads);
    auto made = std::make_unique<pelton_plan>();
    made->options.max_contexts = o.max_contexts;
    made->options.wait_ns = o.wait_ns;
    made->options.memory_budget_bytes = o.memory_budget_bytes;
    made->options.retuner = &retuner();
    made->current =
        runtime::Executable::create(open_plan(path, target, compile), registry(), target, made->options);
    describe(*made);
    *plan = made.release();
  });
}

pelton_status pelton_plan_save(const pelton_plan* plan, const char* path, pelton_error** error) {
  return guarded(error,
                 [&] { runtime::save_plan(need(plan, "plan").executable()->plan(), &need(path, "path")); });
}

void pelton_plan_free(pelton_plan* plan) {
  delete plan;
}

size_t pelton_plan_input_count(const pelton_plan* plan) {
  return plan ? plan->inputs.size() : 0;
}
size_t pelton_plan_output_count(const pelton_plan* plan) {
  return plan ? plan->outputs.size() : 0;
}
pelton_status pelton_plan_input(const pelton_plan* plan, size_t index, pelton_value_info* info,
                                pelton_error** error) {
  return give_info(plan ? &plan->inputs : nullptr, "input", index, info, error);
}
pelton_status pelton_plan_output(const pelton_plan* plan, size_t index, pelton_value_info* info,
                                 pelton_error** error) {
  return give_info(plan ? &plan->outputs : nullptr, "output", index, info, error);
}
pelton_status pelton_plan_find_input(const pelton_plan* plan, const char* name, size_t* index,
                                     pelton_error** error) {
  return find(plan ? &plan->inputs : nullptr, "input", name, index, error);
}
pelton_status pelton_plan_find_output(const pelton_plan* plan, const char* name, size_t* index,
                                      pelton_error** error) {
  return find(plan ? &plan->outputs : nullptr, "output", name, index, error);
}

pelton_status pelton_plan_memory(const pelton_plan* plan, const int64_t* const* shapes, const int32_t* ndims,
                                 pelton_memory* memory, pelton_error** error) {
  return guarded(error, [&] {
    auto executable = need(plan, "plan").executable();
    if (need(memory, "memory").size < sizeof(pelton_memory))
      fail(ErrorCode::usage, "the size of memory is not set");
    if (shapes) {
      need(ndims, "ndims");
      std::vector<Dims> dims;
      for (size_t i = 0; i < executable->graph().inputs.size(); ++i)
        dims.push_back(dims_from_c(shapes[i], ndims[i], cat("input ", i)));
      executable->prepare(dims);
    }
    runtime::Memory m = executable->memory();
    *memory = {sizeof(pelton_memory), m.weights, m.packed, m.arena, m.scratch, m.contexts};
  });
}

pelton_status pelton_plan_refit(pelton_plan* plan, const char* const* names, const pelton_tensor* values,
                                size_t count, pelton_error** error) {
  return guarded(error, [&] {
    pelton_plan& p = need(plan, "plan");
    std::map<std::string, Tensor> weights;
    if (count > 0) need(names, "names"), need(values, "values");
    for (size_t i = 0; i < count; ++i) {
      const std::string name = &need(names[i], "a name");
      weights[name] =
          with_place(cat("weight '", name, "'"), [&] { return borrow_on_host(values[i]).clone(); });
    }
    auto old = p.executable();
    auto made = runtime::Executable::create(runtime::refit(old->plan(), weights), registry(), old->target(),
                                            p.options);
    std::lock_guard lock(p.mutex);
    p.current = std::move(made);
  });
}

}  // extern "C"
