// SPDX-License-Identifier: Apache-2.0
#include "serve/core/repository.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace pelton::serve {
namespace {

bool hidden(std::string_view name) {
  return name.empty() || name[0] == '.';
}

}  // namespace

Repository::Repository(RepositoryOptions options, const BackendTable& backends, StatsTable& stats)
    : options_(std::move(options)), backends_(backends), stats_(stats), reaper_(std::make_shared<Reaper>()) {
  // What start() will load is wanted from now on: the server is not ready before it is there.
  const auto& chosen = options_.load_models;
  for (const auto& [name, path] : scan())
    if (options_.mode != ControlMode::explicit_control ||
        std::any_of(chosen.begin(), chosen.end(),
                    [&, &n = name](const auto& c) { return c == "*" || c == n; }))
      entry(name)->wanted = true;
}

Repository::~Repository() {
  stop();
}

std::map<std::string, std::string> Repository::scan() const {
  std::map<std::string, std::string> found;
  for (const std::string& path : options_.paths) {
    DIR* d = ::opendir(path.c_str());
    if (!d)
      fail(ErrorCode::not_found, "cannot open the model repository", path,
           "name an existing folder with --model-repository");
    while (const dirent* e = ::readdir(d)) {
      if (hidden(e->d_name)) continue;
      std::string folder = cat(path, "/", e->d_name);
      struct stat st {};
      if (::stat(folder.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) continue;
      if (!found.emplace(e->d_name, folder).second) {
        ::closedir(d);
        fail(ErrorCode::bad_name, cat("model '", e->d_name, "' is in two repositories"), folder,
             "rename one of them");
      }
    }
    ::closedir(d);
  }
  return found;
}

void Repository::refuse_if_stopping(const std::string& name) const {
  if (refuses_loads_) fail(ErrorCode::busy, "the server is stopping: no model is loaded any more", name);
}

void Repository::refuse_loads() {
  std::unique_lock lock(mutex_);
  refuses_loads_ = true;
}

std::shared_ptr<Repository::Entry> Repository::entry(const std::string& name) {
  std::unique_lock lock(mutex_);
  refuse_if_stopping(name);
  auto& e = entries_[name];
  if (!e) e = std::make_shared<Entry>();
  return e;
}

std::map<std::string, std::string> Repository::load_all(const std::map<std::string, std::string>& models,
                                                        Clock::time_point since) {
  std::map<std::string, std::string> errors;
  std::mutex errors_mutex;
  Executor pool(std::max(1, options_.load_threads));
  for (const auto& [name, path] : models)
    pool.post([this, &errors, &errors_mutex, since, name = name, path = path] {
      try {
        load_checked(name, path, {}, since);
      } catch (const Error& e) {
        std::lock_guard lock(errors_mutex);
        errors[name] = e.what();
      }
    });
  pool.finish();
  return errors;
}

std::map<std::string, std::string> Repository::start() {
  const auto begin = Clock::now();
  std::map<std::string, std::string> models = scan();
  if (options_.mode == ControlMode::explicit_control) {
    std::map<std::string, std::string> chosen;
    std::map<std::string, std::string> errors;
    for (const std::string& wanted : options_.load_models) {
      if (wanted == "*") {
        chosen = models;
      } else if (auto it = models.find(wanted); it != models.end()) {
        chosen.insert(*it);
      } else {
        errors[wanted] = "no such model in the repository";
        log_error("model ", wanted, " failed to load: ", errors[wanted]);
      }
    }
    auto more = load_all(chosen, begin);
    errors.insert(more.begin(), more.end());
    return errors;
  }
  auto errors = load_all(models, begin);
  if (options_.mode == ControlMode::poll) poller_ = std::thread([this] { poll_until_stopped(); });
  return errors;
}

void Repository::stop() {
  {
    std::lock_guard lock(poll_mutex_);
    stopping_ = true;
  }
  poll_wake_.notify_all();
  refuse_loads();  // before the poller is waited for, which may load just now
  if (poller_.joinable()) poller_.join();
  std::vector<std::shared_ptr<const Model>> models;
  {
    // A load that is still under way finds at its end that it is refused.
    std::unique_lock lock(mutex_);
    for (auto& [name, e] : entries_)
      for (auto& [version, info] : e->versions)
        if (info.model) models.push_back(std::move(info.model));
    entries_.clear();
  }
  for (const auto& model : models) model->stop();
  models.clear();
  reaper_->wait();
  reaper_->finish();
}

void Repository::load(const std::string& name, const LoadOverride& changes) {
  if (options_.mode != ControlMode::explicit_control)
    fail(ErrorCode::busy, cat("cannot load '", name, "': model control is off"), "",
         "start the server with --model-control-mode=explicit");
  if (!changes.files.empty() && !options_.allow_upload)
    fail(ErrorCode::usage, cat("cannot load '", name, "' from files in the request"), "",
         "start the server with --allow-model-upload");
  if (!changes.files.empty() && !changes.config_json)
    fail(ErrorCode::usage, cat("loading '", name, "' from files needs the parameter 'config'"));
  auto models = scan();
  auto it = models.find(name);
  if (it == models.end() && changes.files.empty())
    fail(ErrorCode::not_found, cat("failed to load '", name, "': no such model in the repository"));
  load_checked(name, it == models.end() ? "" : it->second, changes, kAlways);
}

void Repository::unload(const std::string& name, bool dependents) {
  if (options_.mode != ControlMode::explicit_control)
    fail(ErrorCode::busy, cat("cannot unload '", name, "': model control is off"), "",
         "start the server with --model-control-mode=explicit");
  std::shared_ptr<Entry> e;
  {
    std::shared_lock lock(mutex_);
    if (auto it = entries_.find(name); it != entries_.end()) e = it->second;
  }
  if (!e) fail(ErrorCode::not_found, cat("failed to unload '", name, "': it was never loaded"));
  std::vector<std::string> steps;
  std::map<int64_t, VersionInfo> gone;  // destroyed after the locks are free
  {
    std::lock_guard one_at_a_time(e->loading);
    std::unique_lock lock(mutex_);
    e->wanted = false;
    e->failure.reset();
    steps.swap(e->steps);
    for (auto& [v, info] : e->versions) {
      gone[v].model = std::move(info.model);
      info = {ModelState::unavailable, "unloaded", nullptr};
    }
  }
  gone.clear();
  log_info("model ", name, " unloaded");
  if (!dependents) return;
  for (const std::string& step : steps)
    if (ready(step, "")) unload(step, true);
}

}  // namespace pelton::serve
