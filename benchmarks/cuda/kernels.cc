// SPDX-License-Identifier: Apache-2.0
// The layers of EfficientNet-B0 and ResNet-50 and attentions of BERT-base, each by itself on the GPU: time in
// a recording against the floor of its bytes and operations. Arguments: batch [model]. What was timed and not
// chosen is on standard error.
#include <cstdio>
#include <cstdlib>
#include <map>

#include "backend/cuda.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/move_taps.h"
#include "backend/cuda/tactics.h"
#include "base/cat.h"
#include "base/log.h"
#include "ir/builder.h"
#include "ir/infer.h"

using namespace pelton;
using namespace pelton::backend::cuda;

namespace {

constexpr double kBytesPerUs = 4.24e6, kOperationsPerUs = 796e6;

struct Total {
  double us = 0, floor_us = 0;
  int launches = 0;
};

class Bench {
 public:
  explicit Bench(const device::Target& target) : target_(target) { backend::register_cuda(registry_); }

  // A body built by `make` from inputs of these types; those named constant are weights.
  template <class F>
  double time(const std::string& name, const std::string& kind, const std::vector<ir::Type>& types,
              const std::vector<bool>& constant, double flops, int count, F make) {
    ir::Graph g("bench");
    std::vector<ir::ValueId> inputs;
    for (const ir::Type& t : types) inputs.push_back(g.add_input(t));
    ir::NodeId id;
    ir::Layout layout;
    if (kind.empty()) {
      ir::Builder b(g);
      id = g[make(b, inputs)].producer;
    } else {
      auto body = std::make_shared<ir::Graph>("body");
      std::vector<ir::ValueId> inner;
      for (ir::Type t : types) {
        t.layout = {};
        inner.push_back(body->add_input(t));
      }
      ir::Builder b(*body);
      body->add_output(make(b, inner));
      id = g.add_node(ir::op("fused"), inputs, {{"body", ir::GraphPtr(body)}, {"kind", kind}}, 1);
      ir::infer(g, id);
    }
    const bool rows = kind == "attention" || kind.empty();
    if (!rows || types[0].layout.kind == ir::Layout::Kind::channels_last)
      g.edit(g[id].outputs[0]).type.layout = {ir::Layout::Kind::channels_last, 0};
    SymbolValues symbols;
    backend::Instance instance{g, id, {}, {}, {}, symbols, 1};
    std::vector<DeviceBuffer> memory;
    std::vector<const void*> in;
    double bytes = 0;
    auto buffer = [&](const backend::TensorSpec& s) {
      memory.emplace_back(std::max<int64_t>(s.bytes(), 1), "a benchmark");
      PELTON_CUDA(fill_noise(memory.back().get(), elem(s.dtype), s.count(), nullptr));
      bytes += static_cast<double>(s.bytes());
      return memory.back().get();
    };
    for (size_t i = 0; i < types.size(); ++i) {
      const backend::TensorSpec spec{types[i].dtype, pelton::eval(types[i].shape, symbols), types[i].layout};
      instance.inputs.push_back(spec);
      Tensor weights;
      if (constant[i]) {
        weights = Tensor::zeros(spec.dtype, spec.dims);
        for (int64_t k = 0; k < weights.count(); ++k) weights.set_double(k, ((k * 7919) % 257 - 128) / 512.0);
      }
      instance.constants.push_back(weights);
      in.push_back(buffer(spec));
    }
    const ir::Type& y = g.type(g[id].outputs[0]);
    instance.outputs.push_back({y.dtype, pelton::eval(y.shape, symbols), y.layout});
    std::vector<void*> out = {buffer(instance.outputs[0])};
    std::unique_ptr<backend::Kernel> kernel;
    for (const backend::Implementation* item : registry_.candidates(g[id].op->name, device::Kind::cuda)) {
      if (!item->refuse(g, id, target_).empty()) continue;
      kernel = item->prepare(instance, target_);
      break;
    }
    if (!kernel) {
      std::printf("%-44s no implementation\n", name.c_str());
      return 0;
    }
    DeviceBuffer scratch(kernel->scratch_bytes(), "a benchmark");
    StreamHandle stream = make_stream();
    const double us = microseconds(
        [&](cudaStream_t s) {
          kernel->run({in, out, scratch.get(), {}, s});
        },
        stream.get());
    const double floor = std::max(bytes / kBytesPerUs, flops / kOperationsPerUs);
    std::printf("%-44s x%d %8.2f us, floor %7.2f (%4.0f%%)\n", name.c_str(), count, us, floor,
                100 * floor / us);
    total.us += us * count;
    total.floor_us += floor * count;
    total.launches += count;
    return us;
  }
  Total total;

 private:
  device::Target target_;
  backend::Registry registry_;
};

ir::Type type_of(Dims dims, bool channels_last = false) {
  ir::Type t = ir::Type::tensor(DType::f16, to_shape(dims));
  if (channels_last) t.layout = {ir::Layout::Kind::channels_last, 0};
  return t;
}

struct Conv {
  int64_t c, size, k, window, stride;
  const char* act;  // "": none
  bool residual, depthwise, plain_input = false;
};
void conv(Bench& bench, int64_t n, const Conv& v, int count) {
  const int64_t out = v.size / v.stride, groups = v.depthwise ? v.c : 1, pad = v.window / 2;
  std::vector<ir::Type> types = {type_of({n, v.c, v.size, v.size}, !v.plain_input),
                                 type_of({v.k, v.c / groups, v.window, v.window}), type_of({v.k})};
  if (v.residual) types.push_back(type_of({n, v.k, out, out}, true));
  const double flops = 2.0 * static_cast<double>(n * out * out * v.k * v.c / groups * v.window * v.window);
  bench.time(cat(v.depthwise ? "depthwise " : "conv ", v.c, "@", v.size, " -> ", v.k, ", ", v.window, "x",
                 v.window, "/", v.stride, " ", v.act, v.residual ? " + residual" : ""),
             "conv", types, {false, true, true, false}, flops, count,
             [&](ir::Builder& b, const std::vector<ir::ValueId>& in) {
               ir::ValueId y = b.op("conv", {in[0], in[1], in[2]},
                                    {{"strides", ir::Ints{v.stride, v.stride}},
                                     {"low", Shape{Dim(pad), Dim(pad)}},
                                     {"high", Shape{Dim(pad), Dim(pad)}},
                                     {"groups", groups}});
               if (v.residual) y = b.op("add", {y, in[3]});
               if (*v.act) y = b.op(v.act, {y});
               return y;
             });
}
void excite(Bench& bench, int64_t n, int64_t c, int64_t size, int64_t hidden, int count) {
  bench.time(cat("squeeze-excite ", c, "@", size), "squeeze_excite",
             {type_of({n, c, size, size}, true), type_of({hidden, c, 1, 1}), type_of({hidden}),
              type_of({c, hidden, 1, 1}), type_of({c})},
             {false, true, true, true, true}, 0, count,
             [&](ir::Builder& b, const std::vector<ir::ValueId>& in) {
               ir::ValueId m = b.op("reduce_mean", {in[0]}, {{"axes", ir::Ints{2, 3}}, {"keep_dims", true}});
               ir::ValueId h = b.op("silu", {b.op("conv", {m, in[1], in[2]})});
               return b.op("mul", {in[0], b.op("sigmoid", {b.op("conv", {h, in[3], in[4]})})});
             });
}

void efficientnet(Bench& bench, int64_t n) {
  conv(bench, n, {3, 224, 32, 3, 2, "silu", false, false, true}, 1);
  struct Block {
    int64_t in, inner, out, size, window, stride, hidden;
    bool residual;
    int count;
  };
  const Block blocks[] = {{32, 32, 16, 112, 3, 1, 8, false, 1},   {16, 96, 24, 112, 3, 2, 4, false, 1},
                          {24, 144, 24, 56, 3, 1, 6, true, 1},    {24, 144, 40, 56, 5, 2, 6, false, 1},
                          {40, 240, 40, 28, 5, 1, 10, true, 1},   {40, 240, 80, 28, 3, 2, 10, false, 1},
                          {80, 480, 80, 14, 3, 1, 20, true, 2},   {80, 480, 112, 14, 5, 1, 20, false, 1},
                          {112, 672, 112, 14, 5, 1, 28, true, 2}, {112, 672, 192, 14, 5, 2, 28, false, 1},
                          {192, 1152, 192, 7, 5, 1, 48, true, 3}, {192, 1152, 320, 7, 3, 1, 48, false, 1}};
  for (const Block& b : blocks) {
    if (b.inner != b.in) conv(bench, n, {b.in, b.size, b.inner, 1, 1, "silu", false, false}, b.count);
    conv(bench, n, {b.inner, b.size, b.inner, b.window, b.stride, "silu", false, true}, b.count);
    excite(bench, n, b.inner, b.size / b.stride, b.hidden, b.count);
    conv(bench, n, {b.inner, b.size / b.stride, b.out, 1, 1, "", b.residual, false}, b.count);
  }
  conv(bench, n, {320, 7, 1280, 1, 1, "silu", false, false}, 1);
}

void resnet(Bench& bench, int64_t n) {
  conv(bench, n, {3, 224, 64, 7, 2, "relu", false, false, true}, 1);
  bench.time("max_pool 64@112", "", {type_of({n, 64, 112, 112}, true)}, {false}, 0, 1,
             [](ir::Builder& b, const std::vector<ir::ValueId>& in) {
               return b.op("max_pool", {in[0]},
                           {{"kernel", ir::Ints{3, 3}},
                            {"strides", ir::Ints{2, 2}},
                            {"low", Shape{Dim(1), Dim(1)}},
                            {"high", Shape{Dim(1), Dim(1)}}});
             });
  int64_t in = 64, size = 56;
  const int64_t widths[] = {64, 128, 256, 512};
  const int depths[] = {3, 4, 6, 3};
  for (int s = 0; s < 4; ++s) {
    const int64_t w = widths[s], stride = s ? 2 : 1, after = size / stride;
    conv(bench, n, {in, size, w, 1, 1, "relu", false, false}, 1);
    conv(bench, n, {w, size, w, 3, stride, "relu", false, false}, 1);
    conv(bench, n, {in, size, 4 * w, 1, stride, "", false, false}, 1);
    conv(bench, n, {4 * w, after, w, 1, 1, "relu", false, false}, depths[s] - 1);
    conv(bench, n, {w, after, w, 3, 1, "relu", false, false}, depths[s] - 1);
    conv(bench, n, {w, after, 4 * w, 1, 1, "relu", true, false}, depths[s]);
    in = 4 * w;
    size = after;
  }
}

void bert(Bench& bench, int64_t n) {
  const Dims d = {n, 12, 128, 64};
  bench.time("attention 12 x 128 x 64", "", {type_of(d), type_of(d), type_of(d)}, {false, false, false},
             4.0 * static_cast<double>(n) * 12 * 128 * 128 * 64, 12,
             [](ir::Builder& b, const std::vector<ir::ValueId>& in) {
               return b.op("attention", {in[0], in[1], in[2]});
             });
  const Dims l = {n, 12, 1024, 64};
  bench.time("attention 12 x 1024 x 64, causal", "", {type_of(l), type_of(l), type_of(l)},
             {false, false, false}, 2.0 * static_cast<double>(n) * 12 * 1024 * 1024 * 64, 1,
             [](ir::Builder& b, const std::vector<ir::ValueId>& in) {
               return b.op("attention", {in[0], in[1], in[2]}, {{"causal", true}});
             });
}

}  // namespace

int main(int argc, char** argv) {
  std::string why;
  const std::vector<device::Target> gpus = backend::cuda_devices(why);
  if (gpus.empty()) {
    std::printf("no GPU: %s\n", why.c_str());
    return 1;
  }
  PELTON_CUDA(cudaSetDevice(gpus[0].ordinal));
  set_log_level(LogLevel::debug);
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 1;
  const std::string wanted = argc > 2 ? argv[2] : "";
  const std::map<std::string, void (*)(Bench&, int64_t)> models = {
      {"bert", bert}, {"efficientnet", efficientnet}, {"resnet", resnet}};
  for (const auto& [name, run] : models) {
    if (!wanted.empty() && wanted != name) continue;
    std::printf("%s, batch %lld\n", name.c_str(), static_cast<long long>(n));
    Bench bench(gpus[0]);
    run(bench, n);
    std::printf("all: %d launches, %.1f us, floor %.1f us\n", bench.total.launches, bench.total.us,
                bench.total.floor_us);
  }
  return 0;
}
