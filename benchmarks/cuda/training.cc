// SPDX-License-Identifier: Apache-2.0
// The nodes that training steps of MobileNetV2, ResNet-50 and GPT-2 spend their time in, each by itself on
// the GPU in bf16: time in a recording against the floor of its bytes and operations. Argument: a part of the
// names.
#include <cstdio>
#include <cstring>

#include "backend/cuda.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/move_taps.h"
#include "backend/cuda/tactics.h"
#include "base/log.h"
#include "ir/infer.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::backend::cuda;

namespace {

constexpr double kBytesPerUs = 4.24e6, kOperationsPerUs = 796e6;

class Bench {
 public:
  Bench(const device::Target& target, const char* only) : target_(target), only_(only) {
    backend::register_cuda(registry_);
  }

  // The graph as a group of this kind, or (empty) its only node; integers of its inputs are below `limit`.
  void time(const std::string& name, const std::string& kind, const std::string& text, double flops = 0,
            int64_t limit = 2) {
    if (name.find(only_) == name.npos) return;
    ir::Graph g = ir::parse_graph(text);
    ir::NodeId id;
    if (kind.empty()) {
      for (ir::NodeId n : g.order())
        if (!g[n].is("constant")) id = n;
    } else {
      auto body = std::make_shared<ir::Graph>(g);
      ir::Graph outer("outer");
      std::vector<ir::ValueId> inputs;
      for (ir::ValueId v : g.inputs) inputs.push_back(outer.add_input(g.type(v)));
      id = outer.add_node(ir::op("fused"), inputs, {{"body", ir::GraphPtr(body)}, {"kind", kind}},
                          g.outputs.size());
      ir::infer(outer, id);
      for (size_t i = 0; i < g.outputs.size(); ++i)
        outer.edit(outer[id].outputs[i]).type.layout = g.type(g.outputs[i]).layout;
      g = std::move(outer);
    }
    SymbolValues symbols;
    backend::Instance instance{g, id, {}, {}, {}, symbols, 1};
    std::vector<DeviceBuffer> memory;
    double bytes = 0;
    auto buffer = [&](const ir::Type& type, std::vector<backend::TensorSpec>& to) -> void* {
      to.push_back({type.dtype, pelton::eval(type.shape, symbols), type.layout});
      const backend::TensorSpec& s = to.back();
      bytes += static_cast<double>(s.bytes());
      if (elem_of(s.dtype)) {
        memory.emplace_back(std::max<int64_t>(s.bytes(), 1), "a benchmark");
        PELTON_CUDA(fill_noise(memory.back().get(), elem(s.dtype), s.count(), nullptr));
      } else {
        Tensor t(s.dtype, s.dims);
        for (int64_t i = 0; i < t.count(); ++i) t.set_int(i, (i * 7919 + i / 13) % limit);
        memory.push_back(upload(t, "a benchmark"));
      }
      return memory.back().get();
    };
    std::vector<const void*> in;
    std::vector<void*> out;
    for (ir::ValueId v : g[id].inputs) {
      in.push_back(buffer(g.type(v), instance.inputs));
      instance.constants.push_back(g.constant(v) ? *g.constant(v) : Tensor());
    }
    for (ir::ValueId v : g[id].outputs) out.push_back(buffer(g.type(v), instance.outputs));
    const backend::Implementation* chosen = nullptr;
    for (const backend::Implementation* item : registry_.candidates(g[id].op->name, device::Kind::cuda))
      if (!chosen && item->refuse(g, id, target_).empty()) chosen = item;
    if (!chosen) {
      std::printf("%-52s no implementation\n", name.c_str());
      return;
    }
    const std::unique_ptr<backend::Kernel> kernel = chosen->prepare(instance, target_);
    DeviceBuffer scratch(std::max<int64_t>(kernel->scratch_bytes(), 1), "a benchmark");
    StreamHandle stream = make_stream();
    const double us = microseconds(
        [&](cudaStream_t s) {
          kernel->run({in, out, scratch.get(), {1, 2}, s});
        },
        stream.get());
    const double floor = std::max(bytes / kBytesPerUs, flops / kOperationsPerUs);
    std::printf("%-52s %9.2f us, floor %8.2f (%4.0f%%) %s\n", name.c_str(), us, floor, 100 * floor / us,
                std::string(chosen->name).c_str());
    std::fflush(stdout);
  }

 private:
  device::Target target_;
  const char* only_;
  backend::Registry registry_;
};

std::string t(const Dims& d, const char* type = "bf16", const char* layout = "") {
  return cat(type, d, layout);
}
constexpr const char* kLast = "{nhwc}";

void conv(Bench& b, int64_t n, int64_t c, int64_t size, int64_t k, int64_t window, int64_t stride,
          bool depthwise) {
  const int64_t out = size / stride, groups = depthwise ? c : 1, pad = window / 2;
  const Dims x = {n, c, size, size}, w = {k, c / groups, window, window}, g = {n, k, out, out};
  const std::string attrs = cat("strides = ", Dims{stride, stride}, ", low = dims", Dims{pad, pad},
                                ", high = dims", Dims{pad, pad}, ", groups = ", groups);
  const double flops =
      2.0 * static_cast<double>(element_count(g)) * static_cast<double>(element_count(w) / k);
  const std::string name = cat(depthwise ? "depthwise " : "conv ", c, "@", size, " to ", k, ", ", window, "x",
                               window, "/", stride);
  b.time(name + " forward", "",
         cat("graph \"g\"(%x: ", t(x, "bf16", kLast), ", %w: ", t(w), ") { %y = conv(%x, %w) {", attrs,
             "} : ", t(g, "bf16", kLast), " return %y }"),
         flops);
  b.time(name + " data", "",
         cat("graph \"g\"(%g: ", t(g, "bf16", kLast), ", %w: ", t(w), ") { %y = conv_backward_data(%g, %w) {",
             attrs, ", dims = dims", x, "} : ", t(x, "bf16", kLast), " return %y }"),
         flops);
  b.time(name + " weights", "conv",
         cat("graph \"g\"(%g: ", t(g, "bf16", kLast), ", %x: ", t(x, "bf16", kLast),
             ") { %y = conv_backward_weights(%g, %x) {", attrs, ", kernel = ", Dims{window, window},
             "} : ", t(w), " %z = cast(%y) {to = f32} : ", t(w, "f32"), " return %z }"),
         flops);
}

void batch_norm(Bench& b, int64_t n, int64_t c, int64_t size) {
  const std::string x = t({n, c, size, size}, "bf16", kLast), p = t({c}, "f32");
  const std::string name = cat("batch norm ", c, "@", size);
  b.time(name + " + relu forward", "batch_norm",
         cat("graph \"g\"(%x: ", x, ", %s: ", p, ", %b: ", p, ", %m: ", p, ", %v: ", p,
             ") { %y, %nm, %nv, %bm, %br = batch_norm_train(%x, %s, %b, %m, %v) : ", x, ", ", p, ", ", p,
             ", ", p, ", ", p, " %z = relu(%y) : ", x, " return %z, %nm, %nv, %bm, %br }"));
  b.time(name + " backward", "",
         cat("graph \"g\"(%g: ", x, ", %x: ", x, ", %s: ", p, ", %m: ", p, ", %r: ", p,
             ") { %dx, %ds, %db = batch_norm_backward(%g, %x, %s, %m, %r) : ", x, ", ", p, ", ", p,
             " return %dx, %ds, %db }"));
}

void gpt2(Bench& b) {
  const int64_t rows = 32768, width = 768, classes = 50257;
  const std::string x = t({rows, width}), p = t({width}, "f32"), stat = t({rows, 1}, "f32");
  b.time("layer norm 32768x768 forward", "",
         cat("graph \"g\"(%x: ", x, ", %s: ", p, ", %b: ", p,
             ") { %y, %m, %r = layer_norm(%x, %s, %b) {axis = 1, eps "
             "= 0.00001} : ",
             x, ", ", stat, ", ", stat, " return %y, %m, %r }"));
  b.time("layer norm 32768x768 backward", "",
         cat("graph \"g\"(%g: ", x, ", %x: ", x, ", %m: ", stat, ", %r: ", stat, ", %s: ", p,
             ") { %dx, %ds, %db = layer_norm_backward(%g, %x, %m, %r, %s) {axis = 1} : ", x, ", ", p, ", ", p,
             " return %dx, %ds, %db }"));
  const std::string logits = t({rows, classes}), labels = t({rows}, "i64"), sums = t({rows}, "f32");
  b.time("cross entropy 32768x50257 forward", "cross_entropy",
         cat("graph \"g\"(%x: ", logits, ", %l: ", labels,
             ") { %w = cast(%x) {to = f32} : ", t({rows, classes}, "f32"),
             " %y, %s = cross_entropy(%w, %l) {reduction = \"sum\"} : f32[], ", sums, " return %y, %s }"),
         0, classes);
  b.time("cross entropy 32768x50257 backward", "cross_entropy",
         cat("graph \"g\"(%g: f32[], %x: ", logits, ", %l: ", labels, ", %s: ", sums,
             ") { %w = cast(%x) {to = f32} : ", t({rows, classes}, "f32"),
             " %d = cross_entropy_backward(%g, %w, %l, %s) {reduction = \"sum\"} : ",
             t({rows, classes}, "f32"), " %y = cast(%d) {to = bf16} : ", logits, " return %y }"),
         0, classes);
  b.time("embedding backward 50257x768 from 32768", "",
         cat("graph \"g\"(%x: ", t({classes, width}), ", %i: ", t({rows, 1}, "i64"), ", %u: ", x,
             ") { %y = scatter_nd(%x, %i, %u) {reduction = \"add\"} : ", t({classes, width}), " return %y }"),
         0, classes);
  b.time("bias gradient 32768x768", "reduce",
         cat("graph \"g\"(%x: ", x, ") { %c = cast(%x) {to = f32} : ", t({rows, width}, "f32"),
             " %y = reduce_sum(%c) {axes = [0]} : ", p, " return %y }"));
  b.time("bias gradient 32768x3072", "",
         cat("graph \"g\"(%x: ", t({rows, 3072}), ") { %y = reduce_sum(%x) {axes = [0]} : ", t({3072}),
             " return %y }"));
  b.time("sum of squares of 38597376", "reduce",
         cat("graph \"g\"(%x: f32[50257,768]) { %q = square(%x) : f32[50257,768] %y = reduce_sum(%q) {axes = "
             "[0,1]} : "
             "f32[] return %y }"));
  b.time("dropout 32768x768", "",
         cat("graph \"g\"(%x: ", x, ", %r: f32[]) { %y = dropout(%x, %r) : ", x, " return %y }"));
  const Dims heads = {32, 12, 1024, 64}, lse = {32, 12, 1024};
  const double product = 2.0 * 32 * 12 * 1024 * 1024 * 64 / 2;  // one of two matrices, half of it seen
  const std::string q = t(heads), s = t(lse, "f32");
  b.time("attention 32x12x1024x64 causal forward", "",
         cat("graph \"g\"(%q: ", q, ", %k: ", q, ", %v: ", q,
             ") { %y, %s = attention(%q, %k, %v) {causal = true} : ", q, ", ", s, " return %y, %s }"),
         2 * product);
  b.time("attention 32x12x1024x64 causal backward", "",
         cat("graph \"g\"(%g: ", q, ", %q: ", q, ", %k: ", q, ", %v: ", q, ", %y: ", q, ", %s: ", s,
             ") { %dq, %dk, %dv = attention_backward(%g, %q, %k, %v, %y, %s) {causal = true} : ", q, ", ", q,
             ", ", q, " return %dq, %dk, %dv }"),
         5 * product);
  auto product_of = [&](const char* name, const Dims& a, const Dims& c, const Dims& y, const char* attrs,
                        double flops) {
    b.time(name, "",
           cat("graph \"g\"(%a: ", t(a), ", %b: ", t(c), ") { %y = matmul(%a, %b) {", attrs, "} : ", t(y),
               " return %y }"),
           flops);
  };
  const double mlp = 2.0 * 32768 * 768 * 3072;
  product_of("product 32768x768 by 768x3072", {rows, 768}, {768, 3072}, {rows, 3072}, "", mlp);
  product_of("product data gradient", {rows, 3072}, {768, 3072}, {rows, 768}, "transpose_b = true", mlp);
  product_of("product weights gradient", {rows, 768}, {rows, 3072}, {768, 3072}, "transpose_a = true", mlp);
  const Dims w = {50257, 768};
  b.time("adamw of 38597376", "pointwise",
         cat("graph \"g\"(%g: bf16[50257,768], %p: f32[50257,768], %m: f32[50257,768], %v: f32[50257,768], "
             "%lr: f32[], "
             "%c1: f32[], %c2: f32[]) { %gw = cast(%g) {to = f32} : f32[50257,768] %k1 = constant() {value = "
             "tensor<f32[]>{0.9}} : f32[] %k2 = constant() {value = tensor<f32[]>{0.1}} : f32[] %k3 = "
             "constant() {value = "
             "tensor<f32[]>{0.99}} : f32[] %k4 = constant() {value = tensor<f32[]>{0.01}} : f32[] %k5 = "
             "constant() "
             "{value = tensor<f32[]>{0.00000001}} : f32[] %a = mul(%m, %k1) : f32[50257,768] %b = mul(%gw, "
             "%k2) : "
             "f32[50257,768] %nm = add(%a, %b) : f32[50257,768] %q = square(%gw) : f32[50257,768] %d = "
             "mul(%v, %k3) : "
             "f32[50257,768] %e = mul(%q, %k4) : f32[50257,768] %nv = add(%d, %e) : f32[50257,768] %mh = "
             "div(%nm, %c1) : "
             "f32[50257,768] %vh = div(%nv, %c2) : f32[50257,768] %r = sqrt(%vh) : f32[50257,768] %re = "
             "add(%r, %k5) : "
             "f32[50257,768] %u = div(%mh, %re) : f32[50257,768] %s = mul(%u, %lr) : f32[50257,768] %np = "
             "sub(%p, %s) : "
             "f32[50257,768] %low = cast(%np) {to = bf16} : bf16[50257,768] return %nm, %nv, %np, %low }"));
}

}  // namespace

int main(int argc, char** argv) {
  std::string why;
  const std::vector<device::Target> targets = backend::cuda_devices(why);
  if (targets.empty()) {
    std::printf("no GPU: %s\n", why.c_str());
    return 1;
  }
  Bench b(targets[0], argc > 1 ? argv[1] : "");
  gpt2(b);
  for (const auto& [c, size] : {std::pair<int64_t, int64_t>{32, 112},
                                {96, 112},
                                {144, 56},
                                {384, 14},
                                {960, 7},
                                {64, 56},
                                {256, 56},
                                {1024, 14}})
    batch_norm(b, 128, c, size);
  conv(b, 128, 32, 112, 32, 3, 1, true);
  conv(b, 128, 96, 112, 96, 3, 2, true);
  conv(b, 128, 144, 56, 144, 3, 1, true);
  conv(b, 128, 384, 14, 384, 3, 1, true);
  conv(b, 128, 960, 7, 960, 3, 1, true);
  conv(b, 128, 3, 224, 32, 3, 2, false);
  conv(b, 128, 16, 112, 96, 1, 1, false);
  conv(b, 128, 144, 56, 24, 1, 1, false);
  conv(b, 128, 64, 56, 64, 3, 1, false);
  conv(b, 128, 256, 14, 256, 3, 1, false);
  conv(b, 128, 256, 56, 512, 1, 2, false);
  conv(b, 128, 3, 224, 64, 7, 2, false);
  const std::string px = t({128, 64, 112, 112}, "bf16", kLast), pg = t({128, 64, 56, 56}, "bf16", kLast);
  b.time("max pool 64@112 backward", "",
         cat("graph \"g\"(%g: ", pg, ", %x: ", px,
             ") { %y = max_pool_backward(%g, %x) {kernel = [3,3], strides = [2,2], "
             "low = dims[1,1], high = dims[1,1]} : ",
             px, " return %y }"));
}
