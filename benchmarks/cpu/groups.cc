// SPDX-License-Identifier: Apache-2.0
// Twelve generated groups on the CPU: beyond L2 against the STREAM-copy rate of the same run, in L1 against a
// hand-written Highway loop of the same group. Prints one JSON object.
//
//   bench_cpu_groups [threads]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/register.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "cpu/hand_written.h"
#include "interp/interpreter.h"
#include "ir/text.h"

using namespace pelton;

namespace {

struct Group {
  const char* name;
  // Inputs and body in terms of R rows and C columns; {x} is f32[R,C], {v} f32[C], {r} f32[R,1].
  const char *inputs, *names, *body, *result, *kind;
  bench::HandWritten by_hand;
};

const Group kGroups[] = {
    {"add_relu", "%a: {x}, %b: {x}", "%a, %b", "%0 = add(%a, %b) : {x} %1 = relu(%0) : {x} return %1", "{x}",
     "pointwise", bench::add_relu},
    {"bias_gelu", "%a: {x}, %b: {v}", "%a, %b", "%0 = add(%a, %b) : {x} %1 = gelu(%0) : {x} return %1", "{x}",
     "pointwise", bench::bias_gelu},
    {"silu_mul", "%a: {x}, %b: {x}", "%a, %b", "%0 = silu(%a) : {x} %1 = mul(%0, %b) : {x} return %1", "{x}",
     "pointwise", bench::silu_mul},
    {"scale_shift", "%a: {x}, %b: {r}, %c: {r}", "%a, %b, %c",
     "%0 = mul(%a, %b) : {x} %1 = add(%0, %c) : {x} return %1", "{x}", "pointwise", bench::scale_shift},
    {"hard_swish_add", "%a: {x}, %b: {x}", "%a, %b",
     "%0 = hard_swish(%a) : {x} %1 = add(%0, %b) : {x} return %1", "{x}", "pointwise", bench::hard_swish_add},
    {"sub_square", "%a: {x}, %b: {x}", "%a, %b", "%0 = sub(%a, %b) : {x} %1 = square(%0) : {x} return %1",
     "{x}", "pointwise", bench::sub_square},
    {"lerp", "%a: {x}, %b: {x}, %c: {x}", "%a, %b, %c",
     "%0 = sub(%b, %a) : {x} %1 = mul(%0, %c) : {x} %2 = add(%1, %a) : {x} return %2", "{x}", "pointwise",
     bench::lerp},
    {"gate_rows", "%a: {x}, %b: {r}", "%a, %b", "%0 = sigmoid(%b) : {r} %1 = mul(%a, %0) : {x} return %1",
     "{x}", "pointwise", bench::gate_rows},
    {"tanh_scale", "%a: {x}, %b: {v}", "%a, %b", "%0 = tanh(%a) : {x} %1 = mul(%0, %b) : {x} return %1",
     "{x}", "pointwise", bench::tanh_scale},
    {"softmax", "%a: {x}, %b: {x}", "%a, %b",
     "%0 = add(%a, %b) : {x} %1 = softmax(%0) {axis = 1} : {x} return %1", "{x}", "reduce", bench::softmax},
    {"add_layer_norm", "%a: {x}, %b: {x}, %c: {v}, %d: {v}", "%a, %b, %c, %d",
     "%0 = add(%a, %b) : {x} %1 = layer_norm(%0, %c, %d) {axis = 1, eps = 1e-5} : {x} return %1", "{x}",
     "reduce", bench::add_layer_norm},
    {"add_rms_norm", "%a: {x}, %b: {x}, %c: {v}", "%a, %b, %c",
     "%0 = add(%a, %b) : {x} %1 = rms_norm(%0, %c) {axis = 1, eps = 1e-5} : {x} return %1", "{x}", "reduce",
     bench::add_rms_norm},
};

std::string at_sizes(std::string text, int64_t rows, int64_t columns) {
  auto put = [&](const char* key, const std::string& value) {
    for (size_t at; (at = text.find(key)) != text.npos;) text.replace(at, 3, value);
  };
  put("{x}", cat("f32", Dims{rows, columns}));
  put("{v}", cat("f32", Dims{columns}));
  put("{r}", cat("f32", Dims{rows, 1}));
  return text;
}

// Seconds of one call of each, the best of several batches, which alternate: other work on the machine meets
// both.
template <class F, class G>
std::pair<double, double> best_of(F f, G g, int calls) {
  std::pair<double, double> best = {1e30, 1e30};
  auto batch = [calls](auto& call, double& least) {
    Stopwatch watch;
    for (int i = 0; i < calls; ++i) call();
    least = std::min(least, watch.seconds() / calls);
  };
  f();
  g();
  for (int round = 0; round < 25; ++round) {
    batch(f, best.first);
    batch(g, best.second);
  }
  return best;
}

struct Prepared {
  ir::Graph graph;
  SymbolValues symbols;
  std::vector<Tensor> buffers;
  std::unique_ptr<backend::Kernel> kernel;
  std::vector<const void*> in;
  std::vector<void*> out;
  Tensor scratch;
  int64_t bytes = 0;
  void run() { kernel->run({in, out, scratch.count() ? scratch.mutable_data() : nullptr, {}}); }
};

Prepared prepare(const Group& g, const backend::Registry& registry, const device::Target& target,
                 int64_t rows, int64_t columns) {
  const std::string head = at_sizes(g.inputs, rows, columns), result = at_sizes(g.result, rows, columns);
  Prepared p;
  p.graph = ir::parse_graph(cat("graph \"g\"(", head, ") { %out = fused(", g.names, ") {body = graph \"b\"(",
                                head, ") { ", at_sizes(g.body, rows, columns), " }, kind = \"", g.kind,
                                "\"} : ", result, " return %out }"));
  const ir::NodeId id = p.graph.order()[0];
  const backend::Implementation* tile = registry.find("cpu.tile");
  if (const std::string why = tile->refuse(p.graph, id, target); !why.empty())
    fail(ErrorCode::internal, cat(g.name, ": ", why));
  backend::Instance instance{p.graph, id, {}, {}, {}, p.symbols, target.threads};
  auto add = [&](ir::ValueId v, std::vector<backend::TensorSpec>& to) {
    const Dims dims = *as_dims(p.graph.type(v).shape);
    to.push_back({DType::f32, dims, {}});
    Tensor t = Tensor::full(DType::f32, dims, 0.5);
    for (int64_t i = 0; i < t.count(); ++i)
      static_cast<float*>(t.mutable_data())[i] = 0.01f * static_cast<float>(i % 200 - 100);
    p.bytes += t.bytes();
    p.buffers.push_back(t);
  };
  for (ir::ValueId v : p.graph[id].inputs) {
    add(v, instance.inputs);
    instance.constants.emplace_back();
  }
  add(p.graph[id].outputs[0], instance.outputs);
  p.kernel = tile->prepare(instance, target);
  for (size_t i = 0; i + 1 < p.buffers.size(); ++i) p.in.push_back(p.buffers[i].data());
  p.out.push_back(p.buffers.back().mutable_data());
  p.scratch = Tensor(DType::u8, {p.kernel->scratch_bytes()});
  return p;
}

class StreamCopy {
 public:
  explicit StreamCopy(int64_t bytes) : a_(static_cast<size_t>(bytes) / 8, 1.0), b_(a_.size(), 0.0) {}
  double bytes() const { return 2.0 * 8 * static_cast<double>(a_.size()); }
  void operator()() {
    const auto n = static_cast<int64_t>(a_.size());
    parallel_for(0, n, n / 16 + 1, [this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) b_[static_cast<size_t>(i)] = a_[static_cast<size_t>(i)];
    });
  }

 private:
  std::vector<double> a_, b_;
};

// The loop by hand, its rows on the pool's threads.
double by_hand_seconds(const Group& g, const Prepared& p, int64_t rows, int64_t columns) {
  auto run = [&] {
    parallel_for(0, rows, rows / 16, [&](int64_t begin, int64_t end) {
      const float* in[4] = {};
      for (size_t i = 0; i < p.in.size(); ++i) {
        const int64_t count = p.buffers[i].count(), row = count == columns ? 0 : count / rows;
        in[i] = static_cast<const float*>(p.in[i]) + begin * row;
      }
      g.by_hand(in, static_cast<float*>(p.out[0]) + begin * columns, end - begin, columns);
    });
  };
  return best_of(
             run, [] {}, 1)
      .first;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) set_threads(std::atoi(argv[1]));
  backend::Registry registry;
  backend::register_cpu(registry);
  const device::Target target = device::detect_cpu();
  // Three arrays of this size are well beyond the last cache.
  constexpr int64_t kColumns = 1024, kLarge = (int64_t{32} << 20) / 4 / kColumns, kSmallRows = 2;
  StreamCopy copy(int64_t{64} << 20);
  std::printf("{\"target\": \"%s\", \"threads\": %d, \"groups\": [", target.name.c_str(), threads());
  const char* comma = "\n";
  for (const Group& g : kGroups) {
    Prepared large = prepare(g, registry, target, kLarge, kColumns);
    const auto [group_s, copy_s] = best_of([&] { large.run(); }, copy, 1);
    const double rate = static_cast<double>(large.bytes) / group_s, copied = copy.bytes() / copy_s;
    const double hand_rate = static_cast<double>(large.bytes) / by_hand_seconds(g, large, kLarge, kColumns);
    Prepared small = prepare(g, registry, target, kSmallRows, kColumns);
    const float* in[4] = {};
    for (size_t i = 0; i < small.in.size(); ++i) in[i] = static_cast<const float*>(small.in[i]);
    auto* out = static_cast<float*>(small.out[0]);
    const auto [own, hand] =
        best_of([&] { small.run(); }, [&] { g.by_hand(in, out, kSmallRows, kColumns); }, 2000);
    std::printf(
        "%s  {\"group\": \"%s\", \"gb_s\": %.2f, \"stream_copy_gb_s\": %.2f, \"of_copy\": %.3f, "
        "\"by_hand_gb_s\": %.2f, \"l1_us\": %.3f, \"by_hand_us\": %.3f, \"l1_ratio\": %.2f}",
        comma, g.name, rate / 1e9, copied / 1e9, rate / copied, hand_rate / 1e9, own * 1e6, hand * 1e6,
        own / hand);
    comma = ",\n";
    std::fflush(stdout);
  }
  std::printf("\n]}\n");
}
