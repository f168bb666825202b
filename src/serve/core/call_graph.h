// SPDX-License-Identifier: Apache-2.0
// Which executions wait for which: a model may ask other models, or itself, while it holds an instance. When
// every instance that could serve such an inner request is held by an execution that waits, directly or
// through others, for that very request, nobody would ever answer: the request that would close the circle is
// refused instead.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"

namespace pelton::serve {

class CallSite;

// The sites of a server and what they wait for.
class CallGraph : public std::enable_shared_from_this<CallGraph> {
 public:
  // An instance whose executions ask further models; `engine` identifies the model version it belongs to.
  std::shared_ptr<CallSite> site(const void* engine);

 private:
  friend class CallSite;
  friend class CallWait;
  bool stuck(const CallSite* site) const;  // holds the lock

  std::mutex mutex_;
  std::set<CallSite*> sites_;
};

// The wait of one inner request, from its start to its answer.
class CallWait {
 public:
  explicit CallWait(std::shared_ptr<CallSite> caller) : caller_(std::move(caller)) {}
  ~CallWait() { done(); }
  // For a request that stands for this one in part (a step of an ensemble).
  std::shared_ptr<CallWait> fork() const { return std::make_shared<CallWait>(caller_); }

  // The request waits for one of `instances` of `engine`. Busy error if none can ever come to it.
  std::optional<Error> queued(const void* engine, int instances, const std::string& model);
  void running(std::shared_ptr<CallSite> site);  // an instance that may itself wait has taken it
  void done();                                   // it is answered, or runs where nothing waits further

 private:
  friend class CallGraph;
  const std::shared_ptr<CallSite> caller_;
  const void* engine_ = nullptr;  // queued
  int instances_ = 0;
  std::shared_ptr<CallSite> at_;  // running
};

class CallSite : public std::enable_shared_from_this<CallSite> {
 public:
  CallSite(std::shared_ptr<CallGraph> graph, const void* engine);
  ~CallSite();
  void hold(bool held);  // true while an execution is under way
  std::shared_ptr<CallWait> wait() { return std::make_shared<CallWait>(shared_from_this()); }

 private:
  friend class CallGraph;
  friend class CallWait;
  const std::shared_ptr<CallGraph> graph_;
  const void* const engine_;
  bool held_ = false;
  std::set<const CallWait*> waits_;
};

}  // namespace pelton::serve
