// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/harness.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "backend/cuda.h"
#include "base/cat.h"
#include "ir/infer.h"
#include "ir/physical.h"
#include "ir/text.h"

namespace pelton::test {
namespace {

using namespace pelton::ir;
using backend::cuda::DeviceBuffer;

constexpr int64_t kGuard = 256;  // bytes behind each result that must stay as they are
constexpr uint8_t kPoison = 0xAB;

NodeId only_node(const Graph& g) {
  NodeId found;
  for (NodeId id : g.order())
    if (!g[id].is("constant")) {
      PELTON_CHECK(!found, "more than one node");
      found = id;
    }
  PELTON_CHECK(found, "no node");
  return found;
}

// The whole graph as one node of a graph around it.
Graph grouped(const Graph& plain, const std::string& kind, NodeId& node) {
  auto body = std::make_shared<Graph>(plain);
  for (NodeId id : body->order())
    for (ValueId v : (*body)[id].outputs) body->edit(v).type.layout = {};
  for (ValueId v : body->inputs) body->edit(v).type.layout = {};
  Graph g("outer");
  g.symbols = body->symbols;
  std::vector<ValueId> inputs;
  for (ValueId v : plain.inputs) inputs.push_back(g.add_input(plain.type(v)));
  node = g.add_node(op("fused"), inputs, {{"body", GraphPtr(body)}, {"kind", kind}}, plain.outputs.size());
  infer(g, node);
  for (size_t i = 0; i < plain.outputs.size(); ++i) {
    const ValueId v = g[node].outputs[i];
    g.edit(v).type.layout = plain.type(plain.outputs[i]).layout;
    g.add_output(v);
  }
  return g;
}

}  // namespace

const device::Target* gpu() {
  static const std::vector<device::Target>* targets = [] {
    std::string why;
    auto* found = new std::vector<device::Target>(backend::cuda_devices(why));
    if (found->empty()) std::printf("no GPU: %s\n", why.c_str());
    return found;
  }();
  return targets->empty() ? nullptr : targets->data();
}

const backend::Registry& cuda_registry() {
  static const backend::Registry* registry = [] {
    auto* r = new backend::Registry;
    backend::register_cuda(*r);
    return r;
  }();
  return *registry;
}

GpuCase::GpuCase(const std::string& text, std::vector<Tensor> inputs, Options options)
    : plain_(parse_graph(text)), inputs_(std::move(inputs)), options_(std::move(options)) {
  if (options_.group.empty()) {
    graph_ = plain_;
    node_ = only_node(graph_);
  } else {
    graph_ = grouped(plain_, options_.group, node_);
    if (options_.segments > 0) graph_.edit(node_).attrs["segments"] = options_.segments;
  }
  std::vector<HostValue> values(inputs_.begin(), inputs_.end());
  interp::Options how;
  how.random = options_.random;
  references_ = interp::references(plain_, values, how);
  for (size_t i = 0; i < inputs_.size(); ++i)
    interp::bind_symbols(graph_.type(graph_.inputs[i]), inputs_[i].dims(), symbols_, "input");

  instance_.reset(new backend::Instance{graph_, node_, {}, {}, {}, symbols_, 1});
  const Node& n = graph_[node_];
  for (ValueId v : n.inputs) {
    if (!v) {
      instance_->inputs.push_back({});
      instance_->constants.push_back({});
      physical_.emplace_back();
      continue;
    }
    Tensor t;
    bool constant = false;
    if (const Tensor* c = graph_.constant(v)) {
      t = *c;
      constant = true;
    } else {
      for (size_t i = 0; i < graph_.inputs.size(); ++i)
        if (graph_.inputs[i] == v) {
          t = inputs_[i];
          constant = i < options_.constant.size() && options_.constant[i];
        }
    }
    const Layout layout = graph_.type(v).layout;
    instance_->inputs.push_back({t.dtype(), t.dims(), layout});
    instance_->constants.push_back(constant ? t : Tensor());
    physical_.push_back(layout.is_plain() ? t : to_physical(t, layout));
  }
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    const Type& type = graph_.type(n.outputs[i]);
    Dims dims = pelton::eval(type.shape, symbols_);
    for (size_t k = 0; k < graph_.outputs.size(); ++k)
      if (graph_.outputs[k] == n.outputs[i]) dims = references_[k].plain.dims();
    instance_->outputs.push_back({type.dtype, dims, type.layout});
  }
}

std::string GpuCase::refusal(std::string_view implementation) const {
  const backend::Implementation* found = cuda_registry().find(implementation);
  REQUIRE(found);
  return found->refuse(graph_, node_, gpu() ? *gpu() : device::cuda_target(90));
}

std::vector<Tensor> GpuCase::run(const Run& run, int64_t scratch_bytes) {
  std::vector<DeviceBuffer> memory, in_memory;
  std::vector<const void*> in;
  for (const Tensor& t : physical_) {
    if (!t.defined()) {
      in.push_back(nullptr);
      continue;
    }
    // Never null, not even for no elements.
    in_memory.emplace_back(std::max<int64_t>(t.bytes(), 1), "a test");
    in.push_back(in_memory.back().get());
    if (t.bytes() > 0)
      PELTON_CUDA(cudaMemcpy(in_memory.back().get(), t.data(), static_cast<size_t>(t.bytes()),
                             cudaMemcpyHostToDevice));
  }
  std::vector<void*> out;
  for (const backend::TensorSpec& spec : instance_->outputs) {
    memory.emplace_back(spec.bytes() + kGuard, "a test");
    PELTON_CUDA(cudaMemset(memory.back().get(), kPoison, static_cast<size_t>(spec.bytes() + kGuard)));
    out.push_back(memory.back().get());
  }
  DeviceBuffer scratch(scratch_bytes, "a test");
  if (scratch_bytes > 0) PELTON_CUDA(cudaMemset(scratch.get(), 0xCD, static_cast<size_t>(scratch_bytes)));
  PELTON_CUDA(cudaDeviceSynchronize());
  backend::cuda::StreamHandle stream = backend::cuda::make_stream();
  run({in, out, scratch.get(), options_.random, stream.get()});
  PELTON_CUDA(cudaStreamSynchronize(stream.get()));
  std::vector<Tensor> results;
  const Node& n = graph_[node_];
  for (ValueId wanted : graph_.outputs)
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (n.outputs[i] != wanted) continue;
      const backend::TensorSpec& spec = instance_->outputs[i];
      Tensor bytes(DType::u8, {spec.bytes() + kGuard});
      PELTON_CUDA(cudaMemcpy(bytes.mutable_data(), memory[i].get(), static_cast<size_t>(bytes.bytes()),
                             cudaMemcpyDeviceToHost));
      int64_t overwritten = 0;
      const auto* b = static_cast<const uint8_t*>(bytes.data());
      for (int64_t k = spec.bytes(); k < bytes.bytes(); ++k) overwritten += b[k] != kPoison;
      CHECK(overwritten == 0);
      Tensor t(spec.dtype, spec.dims);
      if (spec.layout.is_plain()) {
        if (t.bytes() > 0) std::memcpy(t.mutable_data(), b, static_cast<size_t>(t.bytes()));
      } else {
        Tensor physical(DType::u8, {spec.bytes()});
        std::memcpy(physical.mutable_data(), b, static_cast<size_t>(spec.bytes()));
        t = from_physical(physical, spec.dtype, spec.dims, spec.layout);
      }
      results.push_back(std::move(t));
    }
  return results;
}

void GpuCase::judge(const std::vector<Tensor>& results) {
  REQUIRE(results.size() == references_.size());
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(i);
    CHECK(interp::judge(references_[i], results[i]).reason == "");
  }
}

void GpuCase::check(const Run& how, int64_t scratch_bytes) {
  judge(run(how, scratch_bytes));
}

std::unique_ptr<backend::Kernel> GpuCase::prepare(std::string_view implementation) const {
  std::string reasons;
  for (const backend::Implementation* item :
       cuda_registry().candidates(graph_[node_].op->name, device::Kind::cuda)) {
    if (!implementation.empty() && item->name != implementation) continue;
    std::string why = item->refuse(graph_, node_, *gpu());
    if (why.empty()) return item->prepare(*instance_, *gpu());
    reasons += cat(item->name, ": ", why, "; ");
  }
  CAPTURE(reasons);
  REQUIRE(false);
  return nullptr;
}

void GpuCase::check(std::string_view implementation) {
  const std::unique_ptr<backend::Kernel> kernel = prepare(implementation);
  const auto n = static_cast<size_t>(kernel->scratch_bytes());
  auto plainly = [&](const backend::RunArgs& args) {
    // What was packed must not be read.
    backend::RunArgs given = args;
    std::vector<const void*> in(args.in.begin(), args.in.end());
    for (size_t i = 0; i < in.size(); ++i)
      if (in[i] && !kernel->reads(i)) in[i] = nullptr;
    given.in = in;
    kernel->run(given);
  };
  judge(run(plainly, static_cast<int64_t>(n)));
  if (!kernel->capturable()) return;
  judge(run(
      [&](const backend::RunArgs& args) {
        auto* stream = static_cast<cudaStream_t>(args.stream);
        backend::cuda::GraphHandle graph;
        PELTON_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        plainly(args);
        PELTON_CUDA(cudaStreamEndCapture(stream, graph.out()));
        backend::cuda::GraphExecHandle ready;
        PELTON_CUDA(cudaGraphInstantiate(ready.out(), graph.get(), 0));
        PELTON_CUDA(cudaGraphLaunch(ready.get(), stream));
        PELTON_CUDA(cudaStreamSynchronize(stream));
      },
      static_cast<int64_t>(n)));
}

Tensor random(DType dtype, Dims dims, uint64_t seed, double low, double high) {
  Tensor t(dtype, std::move(dims));
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 0x1234567;
  for (int64_t i = 0; i < t.count(); ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const double v = low + (high - low) * static_cast<double>(state >> 11) * 0x1p-53;
    if (is_float(dtype))
      t.set_double(i, v);
    else
      t.set_int(i, static_cast<int64_t>(std::floor(v)));
  }
  return t;
}

}  // namespace pelton::test
