// SPDX-License-Identifier: Apache-2.0
#include "serve/core/call_graph.h"

namespace pelton::serve {

std::shared_ptr<CallSite> CallGraph::site(const void* engine) {
  return std::make_shared<CallSite>(shared_from_this(), engine);
}

CallSite::CallSite(std::shared_ptr<CallGraph> graph, const void* engine)
    : graph_(std::move(graph)), engine_(engine) {
  std::lock_guard lock(graph_->mutex_);
  graph_->sites_.insert(this);
}

CallSite::~CallSite() {
  std::lock_guard lock(graph_->mutex_);
  graph_->sites_.erase(this);
}

void CallSite::hold(bool held) {
  std::lock_guard lock(graph_->mutex_);
  held_ = held;
}

// The largest set of held sites each of which waits for a model all of whose instances are in the set, or for
// a site of the set: found by taking away, from all that wait, those that somebody can still serve.
bool CallGraph::stuck(const CallSite* site) const {
  std::set<const CallSite*> left;
  for (const CallSite* s : sites_)
    if (s->held_ && !s->waits_.empty()) left.insert(s);
  auto never_served = [&](const CallWait& w) {
    if (w.at_) return left.contains(w.at_.get());
    int taken = 0;
    for (const CallSite* s : left) taken += s->engine_ == w.engine_;
    return taken >= w.instances_;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = left.begin(); it != left.end();) {
      bool waits_for_ever = false;
      for (const CallWait* w : (*it)->waits_) waits_for_ever = waits_for_ever || never_served(*w);
      changed = changed || !waits_for_ever;
      it = waits_for_ever ? std::next(it) : left.erase(it);
    }
  }
  return left.contains(site);
}

std::optional<Error> CallWait::queued(const void* engine, int instances, const std::string& model) {
  CallGraph& graph = *caller_->graph_;
  std::lock_guard lock(graph.mutex_);
  at_.reset();
  engine_ = engine;
  instances_ = instances;
  caller_->waits_.insert(this);
  if (!graph.stuck(caller_.get())) return std::nullopt;
  caller_->waits_.erase(this);
  return Error(ErrorCode::busy,
               cat("a call of model '", model, "' would wait for ever: its ", instances,
                   instances == 1 ? " instance is" : " instances are",
                   " held by the execution that makes the call", instances == 1 ? "" : " and others like it"),
               model, "give the model more instances (instance_group), or do not call back into it");
}

void CallWait::running(std::shared_ptr<CallSite> site) {
  std::lock_guard lock(caller_->graph_->mutex_);
  at_.swap(site);
  caller_->waits_.insert(this);
}

void CallWait::done() {
  std::shared_ptr<CallSite> at;  // released outside the lock: it may be the last to hold its site
  std::lock_guard lock(caller_->graph_->mutex_);
  at.swap(at_);
  caller_->waits_.erase(this);
}

}  // namespace pelton::serve
