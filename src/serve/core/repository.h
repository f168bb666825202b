// SPDX-License-Identifier: Apache-2.0
// The models of one or more repository folders: which versions serve, loading, unloading, polling. A new
// version replaces the old one only once it is ready; requests under way keep the version they began with.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "serve/core/model.h"
#include "serve/core/reaper.h"

namespace pelton::serve {

enum class ControlMode : uint8_t { none, explicit_control, poll };

struct RepositoryOptions {
  std::vector<std::string> paths;
  ControlMode mode = ControlMode::none;
  double poll_seconds = 15;
  std::vector<std::string> load_models;  // explicit control: loaded at start; "*" is all
  int load_threads = 4;
  bool complete_configs = true;
  bool allow_upload = false;  // load requests may bring files
  Limits limits;
};

enum class ModelState : uint8_t { unavailable, loading, ready, unloading };
std::string_view to_string(ModelState s);  // "READY", ...

struct IndexEntry {
  std::string name, version;  // version empty: no version was ever loaded
  std::optional<ModelState> state;
  std::string reason;
};

// What a load request changes.
struct LoadOverride {
  std::optional<std::string> config_json;
  std::map<std::string, std::string> files;  // relative path -> content
};

struct ModelPlan;

class Repository {
 public:
  Repository(RepositoryOptions options, const BackendTable& backends, StatsTable& stats);
  ~Repository();

  // Loads what the mode asks for; returns the errors by model. Polling starts in its own thread.
  std::map<std::string, std::string> start();
  // Any thread: begins no further load, so that a start() under way returns soon.
  void refuse_loads();
  // Answers waiting requests, unloads everything, ends the threads.
  void stop();

  // The version asked for, or the newest served one if `version` is empty. busy while it is being loaded, so
  // that clients come again; not_found for what is not there, was unloaded or failed to load.
  std::shared_ptr<const Model> find(std::string_view name, std::string_view version) const;
  bool ready(std::string_view name, std::string_view version) const;
  std::vector<std::string> served_versions(std::string_view name) const;
  std::vector<IndexEntry> index(bool ready_only) const;
  std::vector<std::string> names() const;  // all models that were found or loaded
  // True when every model that should be loaded is.
  bool all_ready() const;

  // Explicit control. These block until the model is ready or has failed.
  void load(const std::string& name, const LoadOverride& changes = {});
  void unload(const std::string& name, bool dependents);
  // One round of polling: loads what is new or changed, unloads what is gone.
  void poll();
  ControlMode mode() const { return options_.mode; }

 private:
  struct VersionInfo {
    ModelState state = ModelState::unavailable;
    std::string reason;
    std::shared_ptr<const Model> model;  // set while it serves
  };
  // Whoever has it goes on, the others wait. Not a mutex, whose holders must agree on an order: an ensemble
  // has its turn while it loads its steps, and load_step() keeps circles out.
  class Turn {
   public:
    void lock() {
      std::unique_lock lock(mutex_);
      free_.wait(lock, [&] { return !taken_; });
      taken_ = true;
    }
    void unlock() {
      std::lock_guard lock(mutex_);
      taken_ = false;
      free_.notify_one();
    }

   private:
    std::mutex mutex_;
    std::condition_variable free_;
    bool taken_ = false;
  };
  struct Entry {
    Turn loading;                             // one load or unload of a model at a time
    std::map<int64_t, VersionInfo> versions;  // guarded by mutex_
    std::optional<Error> failure;             // why the last load failed; guarded by mutex_
    std::string path;
    uint64_t fingerprint = 0;
    bool wanted = false;
    bool under_way = false;            // a load is; guarded by mutex_
    std::vector<std::string> steps;    // models that the ensemble in `versions` uses
    std::vector<std::string> needs;    // those that its last load asked for
    Clock::time_point tried = kNever;  // when the last load began; guarded by mutex_
  };
  static constexpr Clock::time_point kNever = Clock::time_point::min();
  static constexpr Clock::time_point kAlways = Clock::time_point::max();  // load, whatever was tried before

  std::map<std::string, std::string> scan() const;  // model -> folder
  std::shared_ptr<Entry> entry(const std::string& name);
  void refuse_if_stopping(const std::string& name) const;  // with mutex_ held
  void poll_until_stopped();
  void load_entry(const std::string& name, Entry& e, const std::string& path, const LoadOverride& changes,
                  Clock::time_point since);
  void load_folder(const std::string& name, Entry& e, const std::string& path, const std::string& folder,
                   const LoadOverride& changes, Clock::time_point since);
  void load_step(const std::string& ensemble, const std::string& step, Clock::time_point since);
  void check_override(const std::string& name, const std::string& path, const LoadOverride& changes,
                      const Node& wanted) const;
  // What came of a load that began after `since` stands: a step is loaded once, by its ensemble or by itself.
  void load_checked(const std::string& name, const std::string& path, const LoadOverride& changes,
                    Clock::time_point since);
  std::shared_ptr<const Model> load_version(const ModelPlan& plan, const ModelDir& dir, int64_t version);
  std::map<std::string, std::string> load_all(const std::map<std::string, std::string>& models,
                                              Clock::time_point since);
  std::map<std::string, std::string> mended_ensembles(const std::map<std::string, std::string>& models,
                                                      Clock::time_point since);

  const RepositoryOptions options_;
  const BackendTable& backends_;
  StatsTable& stats_;
  std::shared_ptr<Reaper> reaper_;
  mutable std::shared_mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>, std::less<>> entries_;
  std::mutex steps_mutex_;
  std::map<std::string, std::string>
      step_of_;  // ensembles that are being loaded: the step that they load now
  std::mutex poll_mutex_;
  std::condition_variable poll_wake_;
  std::thread poller_;
  bool stopping_ = false;       // ends the poller
  bool refuses_loads_ = false;  // guarded by mutex_
};

}  // namespace pelton::serve
