// SPDX-License-Identifier: Apache-2.0
// A device for tests, in host memory: its streams do nothing until they are waited for, so that whoever reads
// a result or reuses memory too early is found; recordings are played in the order that is furthest from the
// one they were made in, as far as their events allow; addresses outside of its memory are refused; memory is
// limited; it can be lost. Its one implementation runs any op by the reference function, except those that it
// leaves to the host.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "backend/kernel.h"
#include "base/clock.h"
#include "interp/interpreter.h"
#include "ir/op.h"
#include "ir/physical.h"

namespace pelton::test {

struct FakeCounts {
  std::atomic<int> kernels{0};  // enqueued one by one or recorded
  std::atomic<int> plays{0};    // of recordings
  std::atomic<int> forks{0};    // streams that joined a recording
  std::atomic<int> uploads{0}, downloads{0};
  std::atomic<int64_t> limit_bytes{int64_t{1} << 40};
  std::atomic<bool> lost{false};
};
inline FakeCounts& fake() {
  static FakeCounts counts;
  return counts;
}

class FakeMemory {
 public:
  void* allocate(int64_t bytes, std::string_view what) {
    std::lock_guard lock(mutex_);
    if (used_ + bytes > fake().limit_bytes)
      fail(ErrorCode::out_of_memory, cat("no ", bytes, " bytes of device memory for ", what, " (",
                                         fake().limit_bytes - used_, " are free)"));
    void* at = std::aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256));
    std::memset(at, 0xAB, static_cast<size_t>(bytes));
    blocks_[static_cast<std::byte*>(at)] = bytes;
    used_ += bytes;
    return at;
  }
  void release(void* at) {
    std::lock_guard lock(mutex_);
    auto it = blocks_.find(static_cast<std::byte*>(at));
    used_ -= it->second;
    blocks_.erase(it);
    std::free(at);
  }
  void expect(const void* at, int64_t bytes) {
    std::lock_guard lock(mutex_);
    auto p = static_cast<const std::byte*>(at);
    auto it = blocks_.upper_bound(const_cast<std::byte*>(p));
    bool inside = it != blocks_.begin() && (--it, p + bytes <= it->first + it->second);
    PELTON_CHECK(inside, "an address that is not the device's, ", bytes, " bytes");
  }
  int64_t used() {
    std::lock_guard lock(mutex_);
    return used_;
  }

 private:
  std::mutex mutex_;
  std::map<std::byte*, int64_t> blocks_;
  int64_t used_ = 0;
};
inline FakeMemory& fake_memory() {
  static FakeMemory memory;
  return memory;
}

using Work = std::function<void()>;

// What is recorded: work, and which work each piece starts after.
struct FakeTape {
  struct Piece {
    Work work;
    std::vector<size_t> after;
  };
  std::vector<Piece> pieces;
  bool ended = false;  // streams that joined have left
};
using Marks = std::vector<size_t>;  // the last pieces of a line

class FakeEvent : public device::Event {
 public:
  void synchronize() override { wait(); }
  double ms_since(const device::Event& earlier) const override {
    return static_cast<double>(at - static_cast<const FakeEvent&>(earlier).at) * 1e-6;
  }
  int64_t at = 0;
  Work wait = [] {};
  std::shared_ptr<FakeTape> tape;  // that it is a point of, at `marks`
  Marks marks;
};

struct FakeRecording : device::Recording {
  std::vector<Work> work;
};

class FakeStream : public device::Stream {
 public:
  FakeStream() = default;
  // The same line of work under another owner.
  explicit FakeStream(void* native) : line_(static_cast<FakeStream*>(native)->line_) {}
  void* native() const override { return const_cast<FakeStream*>(this); }
  void push(Work work) {
    leave_ended();
    if (!line_->tape) return line_->queue.push_back(std::move(work));
    line_->tape->pieces.push_back({std::move(work), line_->marks});
    line_->marks = {line_->tape->pieces.size() - 1};
  }
  void upload(void* to, const void* host, int64_t bytes) override {
    ++fake().uploads;
    move(to, host, bytes, to);
  }
  void download(void* host, const void* from, int64_t bytes) override {
    ++fake().downloads;
    move(host, from, bytes, from);
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    fake_memory().expect(from, bytes);
    move(to, from, bytes, to);
  }
  void fill(void* to, uint8_t byte, int64_t bytes) override {
    fake_memory().expect(to, bytes);
    push([=] { std::memset(to, byte, static_cast<size_t>(bytes)); });
  }
  void record(device::Event& event) override {
    auto& e = static_cast<FakeEvent&>(event);
    leave_ended();
    e.tape = line_->tape;
    e.marks = line_->marks;
    if (e.tape) return;
    e.wait = [line = line_] { drain(*line); };
    push([&e] { e.at = now_ns(); });
  }
  // An event of a recording takes this stream into it.
  void wait(const device::Event& event) override {
    const auto& e = static_cast<const FakeEvent&>(event);
    if (!e.tape) return e.wait();
    leave_ended();
    if (!line_->tape) {
      ++fake().forks;
      line_->tape = e.tape;
      line_->marks.clear();
    }
    PELTON_CHECK(line_->tape == e.tape, "an event of another recording");
    line_->marks.insert(line_->marks.end(), e.marks.begin(), e.marks.end());
  }
  void synchronize() override {
    leave_ended();
    drain(*line_);
  }
  void begin_recording() override {
    leave_ended();
    line_->tape = std::make_shared<FakeTape>();
    line_->marks.clear();
  }
  std::unique_ptr<device::Recording> end_recording() override {
    const std::vector<FakeTape::Piece> pieces = std::move(line_->tape->pieces);
    expect_joined(pieces, line_->marks);
    abandon_recording();
    auto out = std::make_unique<FakeRecording>();
    std::vector<bool> done(pieces.size(), false);
    while (out->work.size() < pieces.size())
      for (size_t i = pieces.size(); i-- > 0;) {
        bool ready = !done[i];
        for (size_t before : pieces[i].after) ready &= done[before];
        if (!ready) continue;
        done[i] = true;
        out->work.push_back(pieces[i].work);
        break;
      }
    return out;
  }
  // Other streams leave with it.
  void abandon_recording() noexcept override {
    line_->tape->ended = true;
    line_->tape.reset();
    line_->marks.clear();
  }
  void play(const device::Recording& recording) override {
    ++fake().plays;
    for (const Work& w : static_cast<const FakeRecording&>(recording).work) push(w);
  }

 private:
  void leave_ended() {
    if (!line_->tape || !line_->tape->ended) return;
    line_->tape.reset();
    line_->marks.clear();
  }
  void move(void* to, const void* from, int64_t bytes, const void* on_device) {
    if (bytes == 0) return;
    fake_memory().expect(on_device, bytes);
    push([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  struct Line {
    std::shared_ptr<FakeTape> tape;  // of the recording that goes on
    Marks marks;
    std::vector<Work> queue;
  };
  // Whoever ends a recording has waited for all that is in it.
  static void expect_joined(const std::vector<FakeTape::Piece>& pieces, Marks marks) {
    std::vector<bool> seen(pieces.size(), false);
    while (!marks.empty()) {
      const size_t at = marks.back();
      marks.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      marks.insert(marks.end(), pieces[at].after.begin(), pieces[at].after.end());
    }
    for (bool s : seen) PELTON_CHECK(s, "a stream of the recording was not waited for");
  }
  static void drain(Line& line) {
    PELTON_CHECK(!line.tape, "waits while recording");
    std::vector<Work> queue = std::move(line.queue);
    line.queue.clear();
    if (fake().lost) fail(ErrorCode::device_lost, "FakeSynchronize failed: the device is gone");
    for (const Work& w : queue) w();
  }
  std::shared_ptr<Line> line_ = std::make_shared<Line>();
};

class FakeDevice : public device::Device {
 public:
  explicit FakeDevice(device::Target target) : target_(std::move(target)) {}
  const device::Target& target() const override { return target_; }
  void activate() const override {}
  void* allocate(int64_t bytes, std::string_view what) override {
    return fake_memory().allocate(bytes, what);
  }
  void release(void* memory) noexcept override { fake_memory().release(memory); }
  void* allocate_pinned(int64_t bytes, std::string_view) override {
    return std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64));
  }
  void release_pinned(void* memory) noexcept override { std::free(memory); }
  int64_t free_bytes() const override { return fake().limit_bytes - fake_memory().used(); }
  int64_t peak_bytes() const override { return fake_memory().used(); }
  std::unique_ptr<device::Stream> make_stream() override { return std::make_unique<FakeStream>(); }
  std::unique_ptr<device::Stream> adopt_stream(void* native) override {
    return std::make_unique<FakeStream>(native);
  }
  std::unique_ptr<device::Event> make_event(bool) override { return std::make_unique<FakeEvent>(); }

 private:
  device::Target target_;
};

class FakeKernel : public backend::Kernel {
 public:
  explicit FakeKernel(const backend::Instance& i)
      : graph_(i.graph), id_(i.id), inputs_(i.inputs), outputs_(i.outputs), symbols_(i.symbols) {}
  int64_t scratch_bytes() const override { return 128; }
  void run(const backend::RunArgs& args) const override {
    ++fake().kernels;
    std::vector<const void*> in(args.in.begin(), args.in.end());
    std::vector<void*> out(args.out.begin(), args.out.end());
    for (size_t i = 0; i < in.size(); ++i)
      if (graph_[id_].inputs[i]) fake_memory().expect(in[i], inputs_[i].bytes());
    for (size_t i = 0; i < out.size(); ++i) fake_memory().expect(out[i], outputs_[i].bytes());
    fake_memory().expect(args.scratch, 128);
    void* scratch = args.scratch;
    const uint64_t* key = args.random_on_device;
    bool draws = graph_.op(id_).effects == ir::Effects::random;
    if (draws) fake_memory().expect(key, 16);
    static_cast<FakeStream*>(args.stream)->push([=, this] {
      std::memset(scratch, 0xCD, 128);
      compute(in, out, draws ? ir::RandomKey{key[0], key[1]} : ir::RandomKey{});
    });
  }

 private:
  void compute(const std::vector<const void*>& in, const std::vector<void*>& out,
               const ir::RandomKey& random) const {
    std::vector<ir::HostValue> inputs, results(out.size());
    for (size_t i = 0; i < in.size(); ++i) {
      const backend::TensorSpec& spec = inputs_[i];
      Tensor t;
      if (graph_[id_].inputs[i])
        t = ir::from_physical(Tensor::borrow(spec.dtype, spec.dims, in[i], nullptr), spec.dtype, spec.dims,
                              spec.layout)
                .clone();
      inputs.emplace_back(std::move(t));
    }
    std::function<std::vector<ir::HostValue>(const ir::Graph&, std::vector<ir::HostValue>)> body =
        [&](const ir::Graph& g, std::vector<ir::HostValue> args) {
          interp::Options options;
          options.symbols = symbols_;
          return interp::run(g, args, {}, options).outputs;
        };
    ir::EvalContext context{graph_, graph_[id_], inputs, results, symbols_, random, body};
    graph_[id_].op->eval(context);
    for (size_t i = 0; i < out.size(); ++i)
      std::memcpy(out[i], ir::to_physical(results[i].tensor, outputs_[i].layout).data(),
                  static_cast<size_t>(outputs_[i].bytes()));
  }
  const ir::Graph& graph_;
  ir::NodeId id_;
  std::vector<backend::TensorSpec> inputs_, outputs_;
  SymbolValues symbols_;
};

inline std::shared_ptr<device::Device> open_fake(const device::Target& target) {
  static auto* const device = new std::shared_ptr<device::Device>(std::make_shared<FakeDevice>(target));
  return *device;
}

inline void add_fake_kernels(backend::Registry& registry) {
  registry.add_device(device::Kind::cuda, open_fake);
  backend::Implementation any;
  any.name = "fake.any";
  any.ops = {"add", "neg", "mul", "concat", "reduce_sum", "slice", "gather", "random_uniform"};
  any.refuse = [](const ir::Graph&, ir::NodeId, const device::Target&) { return std::string(); };
  any.prepare = [](const backend::Instance& i, const device::Target&) -> std::unique_ptr<backend::Kernel> {
    return std::make_unique<FakeKernel>(i);
  };
  any.device = device::Kind::cuda;
  registry.add(std::move(any));
}

}  // namespace pelton::test
