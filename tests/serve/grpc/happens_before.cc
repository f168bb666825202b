// SPDX-License-Identifier: Apache-2.0
// Tells the thread sanitizer of the order that gRPC keeps. Its libraries are built without the sanitizer,
// which therefore sees neither their queues nor their counters; the functions below stand in front of the
// library's own and name what those are: a batch is started before its callback runs, a closure handed to the
// executor before the executor runs it, a mutex is left before it is entered, and a call ends after the last
// of those that used it. Linked into test_serve_grpc in builds with the thread sanitizer, itself without it.
// Every tag has to be a callback's: the clients of the test use the callback interface too.
#include <absl/status/status.h>
#include <absl/synchronization/mutex.h>
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <unordered_map>

#define IN_FRONT __attribute__((visibility("default")))

extern "C" void __tsan_acquire(void* at);
extern "C" void __tsan_release(void* at);
// What the libraries themselves do to memory, in copying for instance, is not looked at.
extern "C" IN_FRONT const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1";
}

namespace {

using Functor = grpc_completion_queue_functor;
using Run = void (*)(Functor*, int);

// The callbacks under way. Not a mutex: the sanitizer would take it for an order between all of them.
class Pending {
 public:
  void add(Functor* f) {
    const Guard guard(busy_);
    runs_[f] = f->functor_run;
  }
  Run take(Functor* f) {
    const Guard guard(busy_);
    const auto at = runs_.find(f);
    const Run run = at->second;
    runs_.erase(at);
    return run;
  }

 private:
  struct Guard {
    explicit Guard(std::atomic_flag& b) : busy(b) {
      while (busy.test_and_set(std::memory_order_acquire)) {
      }
    }
    ~Guard() { busy.clear(std::memory_order_release); }
    std::atomic_flag& busy;
  };
  std::atomic_flag busy_;
  std::unordered_map<Functor*, Run> runs_;
};

Pending& pending() {
  static auto* const all = new Pending;
  return *all;
}

void run_functor(Functor* f, int ok) {
  __tsan_acquire(f);
  f->functor_run = pending().take(f);
  f->functor_run(f, ok);
}

// The library's function behind `own`, which stands in front of it.
template <class F>
F library(F, void* own) {
  Dl_info info{};
  ::dladdr(own, &info);
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, info.dli_sname));
}
// Of a member function, in the form in which the library can be called.
template <class Object, class... Args>
auto library(void (Object::*member)(Args...)) {
  void* address = nullptr;
  std::memcpy(&address, &member, sizeof address);
  return library(static_cast<void (*)(Object*, Args...)>(nullptr), address);
}

}  // namespace

extern "C" IN_FRONT grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count,
                                                          void* tag, void* reserved) {
  static const auto start = library(&grpc_call_start_batch, reinterpret_cast<void*>(&grpc_call_start_batch));
  auto* const f = static_cast<Functor*>(tag);
  pending().add(f);
  f->functor_run = run_functor;
  __tsan_release(f);
  const grpc_call_error error = start(call, ops, count, tag, reserved);
  if (error != GRPC_CALL_OK) f->functor_run = pending().take(f);
  return error;
}

// The library's closure, as its ABI has it.
struct grpc_closure {
  void* next;
  void (*run)(void* of, absl::Status error);
  void* of;
  uintptr_t error;
};

namespace grpc_core {

enum class ExecutorType;
enum class ExecutorJobType;

class Executor {
 public:
  IN_FRONT static void Run(grpc_closure* closure, absl::Status error, ExecutorType type, ExecutorJobType job);
};

void Executor::Run(grpc_closure* closure, absl::Status error, ExecutorType type, ExecutorJobType job) {
  static const auto run = library(&Executor::Run, reinterpret_cast<void*>(&Executor::Run));
  struct Handed {
    grpc_closure* closure;
    void (*run)(void*, absl::Status);
    void* of;
  };
  auto* const handed = new Handed{closure, closure->run, closure->of};
  closure->of = handed;
  closure->run = [](void* of, absl::Status e) {
    const Handed h = *static_cast<Handed*>(of);
    delete static_cast<Handed*>(of);
    __tsan_acquire(h.closure);
    h.closure->run = h.run;
    h.closure->of = h.of;
    h.run(h.of, std::move(e));
  };
  __tsan_release(closure);
  run(closure, std::move(error), type, job);
}

}  // namespace grpc_core

IN_FRONT void absl::Mutex::Lock() {
  static const auto lock = library(&absl::Mutex::Lock);
  lock(this);
  __tsan_acquire(this);
}

IN_FRONT void absl::Mutex::Unlock() {
  static const auto unlock = library(&absl::Mutex::Unlock);
  __tsan_release(this);
  unlock(this);
}

namespace grpc {

// What was done before an alarm was set comes before its callback.
IN_FRONT void Alarm::SetInternal(gpr_timespec deadline, std::function<void(bool)> f) {
  using Member = void (Alarm::*)(gpr_timespec, std::function<void(bool)>);
  static const auto set = library(static_cast<Member>(&Alarm::SetInternal));
  const auto order = std::make_shared<char>();
  __tsan_release(order.get());
  set(this, deadline, [order, f = std::move(f)](bool ok) {
    __tsan_acquire(order.get());
    f(ok);
  });
}

}  // namespace grpc

namespace grpc::internal {

// The count of those that use the call, behind its table of functions and the count of what holds up
// OnCancel.
static void* users_of(ServerCallbackCall* call) {
  return reinterpret_cast<char*>(call) + sizeof(void*) + sizeof(std::atomic_int);
}

IN_FRONT void ServerCallbackCall::ScheduleOnDone(bool here) {
  static const auto schedule = library(&ServerCallbackCall::ScheduleOnDone);
  __tsan_acquire(users_of(this));
  schedule(this, here);
}

IN_FRONT void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  static const auto cancel = library(&ServerCallbackCall::CallOnCancel);
  struct Cancelled final : ServerReactor {
    Cancelled(ServerCallbackCall* c, ServerReactor* r) : call(c), of(r) {}
    void OnDone() override {}
    void OnCancel() override {
      of->OnCancel();
      __tsan_release(users_of(call));  // given up right after this, out of the sanitizer's sight
      delete this;
    }
    ServerCallbackCall* const call;
    ServerReactor* const of;
  };
  __tsan_acquire(reinterpret_cast<char*>(this) + sizeof(void*));
  cancel(this, new Cancelled(this, reactor));
}

}  // namespace grpc::internal
