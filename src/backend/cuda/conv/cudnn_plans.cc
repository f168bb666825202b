// SPDX-License-Identifier: Apache-2.0
// Plans of a graph: asked of cuDNN's heuristics, or read from the text in which an earlier process kept them.
#include <algorithm>

#include "backend/cuda/conv/cudnn_graph.h"
#include "backend/cuda/kept.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/tactics.h"
#include "base/cat.h"
#include "base/hash.h"
#include "runtime/version.h"

namespace pelton::backend::cuda {
namespace {

// Of kept.h. A plan's key ends in its name; under the key without one stand the names of all that were made
// for a GPU that is not here.
constexpr const char* kKind = "cudnn";

template <class T>
std::vector<T> notes_of(cudnnBackendDescriptor_t engine, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int most) {
  std::vector<T> notes(static_cast<size_t>(most));
  int64_t count = 0;
  if (cudnn().cudnnBackendGetAttribute(engine, name, type, most, &count, notes.data()) !=
      CUDNN_STATUS_SUCCESS)
    count = 0;
  notes.resize(static_cast<size_t>(std::min<int64_t>(count, most)));
  return notes;
}
template <class T>
bool holds(const std::vector<T>& notes, T note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

bool set_properties(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                    const CudnnMachine& machine) {
  if (machine.handle) return true;
  const cudnnBackendDescriptor_t properties = machine.properties->get();
  return cudnn().cudnnBackendSetAttribute(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties) ==
         CUDNN_STATUS_SUCCESS;
}
// Of an execution plan.
bool set_machine(cudnnBackendDescriptor_t plan, const CudnnMachine& machine) {
  if (!machine.handle) return set_properties(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, machine);
  return cudnn().cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                          &machine.handle) == CUDNN_STATUS_SUCCESS;
}

}  // namespace

CudnnPlan::CudnnPlan(DescriptorHandle plan, std::vector<int64_t> ids, std::string name, std::string key)
    : plan_(std::move(plan)), ids_(std::move(ids)), name_(std::move(name)), key_(std::move(key)) {
  int64_t one = 0;
  (void)cudnn().cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &one, &workspace_bytes_);
}

void CudnnPlan::run(const std::vector<void*>& pointers, void* workspace, cudaStream_t stream) const {
  PELTON_CHECK(pointers.size() == ids_.size(), pointers.size(), " pointers for ", ids_.size(), " tensors");
  const CudnnTable& c = cudnn();
  DescriptorHandle pack;
  PELTON_CUDA(c.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack.out()));
  PELTON_CUDA(c.cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                         CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(pointers.size()),
                                         pointers.data()));
  PELTON_CUDA(c.cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                         static_cast<int64_t>(ids_.size()), ids_.data()));
  PELTON_CUDA(c.cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                                         1, &workspace));
  PELTON_CUDA(c.cudnnBackendFinalize(pack.get()));
  PELTON_CUDA(c.cudnnBackendExecute(cudnn_handle(stream), plan_.get(), pack.get()));
}

void CudnnPlan::keep() const {
  if (key_.empty()) return;
  const CudnnTable& c = cudnn();
  int64_t size = 0;
  if (c.cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 0, &size, nullptr) != CUDNN_STATUS_SUCCESS ||
      size <= 0)
    return;
  std::string text(static_cast<size_t>(size), '\0');
  if (c.cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 size, &size, text.data()) == CUDNN_STATUS_SUCCESS)
    cuda::keep(kKind, key_, text);
}

std::string CudnnGraph::key_of(const CudnnPlanWishes& wishes, const std::string& plan) const {
  return cat(machine_.name, " pelton ", version(), wishes.tensor_cores ? "" : " no tensor cores",
             wishes.compiled_at_run_time ? "" : " ready made", "\n", sha256(text_), " ", plan);
}

std::shared_ptr<const CudnnPlan> CudnnGraph::kept_plan(const CudnnPlanWishes& wishes,
                                                       const std::string& name) const {
  const std::optional<std::string> text = find_kept(kKind, key_of(wishes, name));
  if (!text) return nullptr;
  const CudnnTable& c = cudnn();
  DescriptorHandle plan;
  if (c.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan.out()) !=
          CUDNN_STATUS_SUCCESS ||
      !set_machine(plan.get(), machine_) ||
      c.cudnnBackendSetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 static_cast<int64_t>(text->size()), text->data()) != CUDNN_STATUS_SUCCESS ||
      c.cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS)
    return nullptr;
  return std::make_shared<CudnnPlan>(std::move(plan), ids_, name, "");
}

CudnnGraph::Plans CudnnGraph::kept_plans(const CudnnPlanWishes& wishes) const {
  std::string names = wishes.only;
  if (names.empty()) names = find_kept(kKind, key_of(wishes, "")).value_or("");
  Plans out;
  for (size_t begin = 0, end = 0; begin < names.size(); begin = end + 1) {
    end = std::min(names.find(' ', begin), names.size());
    std::shared_ptr<const CudnnPlan> plan = kept_plan(wishes, names.substr(begin, end - begin));
    if (!plan) return {};
    out.push_back(std::move(plan));
  }
  return out;
}

CudnnGraph::Plans CudnnGraph::plans(const CudnnPlanWishes& wishes) {
  if (!ok_) return {};
  if (Plans kept = kept_plans(wishes); !kept.empty()) return kept;
  return made_plans(wishes);
}

size_t CudnnGraph::keep_plans(const CudnnPlanWishes& wishes) {
  const Plans made = plans(wishes);
  std::string names;
  for (const auto& plan : made) {
    plan->keep();
    append(names, cat(names.empty() ? "" : " ", plan->name()));
  }
  if (!made.empty()) cuda::keep(kKind, key_of(wishes, ""), names);
  return made.size();
}

CudnnGraph::Plans CudnnGraph::made_plans(const CudnnPlanWishes& wishes) {
  Plans out;
  const CudnnTable& c = cudnn();
  cudnnBackendDescriptor_t graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      static_cast<int64_t>(operations_.size()), operations_.data());
  if (machine_.handle) set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &machine_.handle);
  finalize(graph);
  if (!ok_) return out;
  std::vector<int64_t> engines;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (out.size() >= wishes.count || (mode == CUDNN_HEUR_MODE_FALLBACK && !out.empty())) break;
    DescriptorHandle heuristics;
    if (c.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, heuristics.out()) !=
            CUDNN_STATUS_SUCCESS ||
        c.cudnnBackendSetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph) != CUDNN_STATUS_SUCCESS ||
        c.cudnnBackendSetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                                   &mode) != CUDNN_STATUS_SUCCESS ||
        !set_properties(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, machine_) ||
        c.cudnnBackendFinalize(heuristics.get()) != CUDNN_STATUS_SUCCESS)
      continue;
    std::vector<DescriptorHandle> owned(kCudnnProposals / 2);
    std::vector<cudnnBackendDescriptor_t> configs;
    for (DescriptorHandle& d : owned) {
      PELTON_CUDA(c.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, d.out()));
      configs.push_back(d.get());
    }
    int64_t count = 0;
    if (c.cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(configs.size()),
                                   &count, configs.data()) != CUDNN_STATUS_SUCCESS)
      continue;
    for (int64_t i = 0; i < count && out.size() < wishes.count; ++i) {
      if (!out.empty() && timing_is_over()) return out;  // a second or more each
      std::string name = cat(i + (mode == CUDNN_HEUR_MODE_FALLBACK ? kCudnnProposals / 2 : 0));
      if (!wishes.only.empty() && wishes.only != name) continue;
      cudnnBackendDescriptor_t config = configs[static_cast<size_t>(i)];
      DescriptorHandle engine;
      PELTON_CUDA(c.cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, engine.out()));
      cudnnBackendDescriptor_t e = engine.get();
      int64_t one = 0;
      if (c.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                     &one, &e) != CUDNN_STATUS_SUCCESS)
        continue;
      const auto numeric = notes_of<cudnnBackendNumericalNote_t>(
          e, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
      const auto behaviour = notes_of<cudnnBackendBehaviorNote_t>(
          e, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
      if (holds(numeric, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ||
          holds(numeric, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) ||
          holds(numeric, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) ||
          holds(numeric, CUDNN_NUMERICAL_NOTE_WINOGRAD) ||
          holds(numeric, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4) ||
          holds(numeric, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) ||
          holds(numeric, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13) ||
          holds(numeric, CUDNN_NUMERICAL_NOTE_FFT) ||
          (!wishes.tensor_cores && holds(numeric, CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) ||
          (!wishes.compiled_at_run_time && holds(behaviour, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)))
        continue;
      DescriptorHandle plan;
      if (c.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan.out()) !=
              CUDNN_STATUS_SUCCESS ||
          c.cudnnBackendSetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) != CUDNN_STATUS_SUCCESS ||
          !set_machine(plan.get(), machine_) || c.cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS)
        continue;
      std::string key = key_of(wishes, name);
      out.push_back(std::make_shared<CudnnPlan>(std::move(plan), ids_, std::move(name), std::move(key)));
    }
  }
  return out;
}

}  // namespace pelton::backend::cuda
