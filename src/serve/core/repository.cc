// SPDX-License-Identifier: Apache-2.0
#include "serve/core/repository.h"

#include <dirent.h>
#include <malloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "serve/core/ensemble.h"
#include "serve/core/upload.h"

namespace pelton::serve {
namespace {

bool hidden(std::string_view name) {
  return name.empty() || name[0] == '.';
}

Error as_error(const std::string& name) {
  try {
    throw;
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::out_of_memory, "not enough memory to load the model", name);
  } catch (const std::exception& e) {
    return Error(ErrorCode::internal, cat("loading failed: ", e.what()), name);
  }
}

std::string replaced(std::string text, const std::string& what, std::string_view with) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}

}  // namespace

std::string_view to_string(ModelState s) {
  static constexpr std::string_view kNames[] = {"UNAVAILABLE", "LOADING", "READY", "UNLOADING"};
  return kNames[static_cast<size_t>(s)];
}

std::shared_ptr<const Model> Reaper::adopt(std::shared_ptr<Reaper> self, std::unique_ptr<Model> model) {
  {
    std::lock_guard lock(mutex_);
    ++live_;
  }
  return {model.release(), [self](const Model* m) {
            self->executor_.post([self, m] {
              delete m;
              ::malloc_trim(0);  // what the model held goes back to the system, not to a thread's arena
              std::lock_guard lock(self->mutex_);
              --self->live_;
              self->changed_.notify_all();
            });
          }};
}

void Reaper::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return live_ == 0; });
}

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
  if (options_.mode == ControlMode::poll)
    poller_ = std::thread([this] {
      std::unique_lock lock(poll_mutex_);
      while (!stopping_) {
        poll_wake_.wait_for(lock, std::chrono::duration<double>(options_.poll_seconds));
        if (stopping_) return;
        lock.unlock();
        try {
          poll();
        } catch (const std::exception& e) {
          lock.lock();
          if (!stopping_) log_warn("polling the model repository: ", e.what());
          continue;
        }
        lock.lock();
      }
    });
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

// An ensemble holds its lock while it loads its steps. Ensembles that use each other would wait for each
// other for ever, whichever threads load them: the one that would close the circle fails.
void Repository::load_step(const std::string& ensemble, const std::string& step, Clock::time_point since) {
  const auto models = scan();
  const auto it = models.find(step);
  if (it == models.end())
    fail(ErrorCode::not_found, cat("ensemble step '", step, "' is not in the repository"), ensemble);
  struct Mark {
    Repository& r;
    const std::string& ensemble;
    Mark(Repository& repository, const std::string& name, const std::string& wanted)
        : r(repository), ensemble(name) {
      std::lock_guard lock(r.steps_mutex_);
      for (const std::string* at = &wanted;;) {
        if (*at == name)
          fail(ErrorCode::bad_format, cat("ensemble '", name, "' uses itself through its steps"), name);
        const auto next = r.step_of_.find(*at);
        if (next == r.step_of_.end()) break;
        at = &next->second;
      }
      r.step_of_[name] = wanted;
    }
    ~Mark() {
      std::lock_guard lock(r.steps_mutex_);
      r.step_of_.erase(ensemble);
    }
  } mark(*this, ensemble, step);
  load_checked(step, it->second, {}, since);
}

void Repository::load_checked(const std::string& name, const std::string& path, const LoadOverride& changes,
                              Clock::time_point since) {
  auto e = entry(name);
  std::lock_guard one_at_a_time(e->loading);
  {
    std::unique_lock lock(mutex_);
    if (e->tried >= since) {
      if (!e->failure) return;
      throw Error(*e->failure);
    }
    refuse_if_stopping(name);
    e->tried = Clock::now();
    e->under_way = true;
  }
  struct UnderWay {
    Repository& r;
    Entry& e;
    ~UnderWay() {
      std::unique_lock lock(r.mutex_);
      e.under_way = false;
    }
  } under_way{*this, *e};
  try {
    load_entry(name, *e, path, changes, since);
  } catch (...) {
    const Error error = as_error(name);
    std::unique_lock lock(mutex_);
    e->failure = error;
    e->path = path;
    e->wanted = true;
    bool serving = false;
    for (auto& [v, info] : e->versions) {
      if (info.model)
        serving = true, info.state = ModelState::ready,
        info.reason = cat("a newer load failed: ", error.what());
      else
        info.state = ModelState::unavailable, info.reason = error.what();
    }
    if (e->versions.empty()) e->versions[1] = {ModelState::unavailable, error.what(), nullptr};
    lock.unlock();
    log_error("model ", name,
              serving ? " keeps its old version, the new one failed: " : " failed to load: ", error.what());
    throw error;
  }
}

// Refuses a load request that would decide what code runs: a backend that runs code is used only as the
// model's own folder says, and never with files or another model file or parameters from the request.
void Repository::check_override(const std::string& name, const std::string& path, const LoadOverride& changes,
                                const Node& wanted) const {
  const std::string backend = wanted.string("backend");
  auto refuse = [&](std::string_view what) {
    fail(ErrorCode::usage, cat("a load request may not ", what, " backend '", backend, "', which runs code"),
         name, "change the model's folder");
  };
  if (!changes.files.empty()) refuse("bring files for");
  if (path.empty()) refuse("switch to");
  const ModelConfig own =
      plan_model(name, ModelDir(path), std::nullopt, options_.complete_configs, backends_).config;
  if (own.backend != backend) refuse("switch to");
  const std::string file = wanted.string("default_model_filename");
  if ((file != own.default_file && (!own.default_file.empty() || file != own.model_file)) ||
      read_config_map(wanted, "parameters") != own.parameters ||
      wanted.string("runtime") != own.tree->string("runtime"))
    refuse("set parameters or the model file of");
}

void Repository::load_entry(const std::string& name, Entry& e, const std::string& path,
                            const LoadOverride& changes, Clock::time_point since) {
  if (changes.files.empty()) return load_folder(name, e, path, path, changes, since);
  const UploadFolder upload(name, changes.files);
  try {
    load_folder(name, e, path, upload.path(), changes, since);
  } catch (...) {  // where uploads lie is the server's own business
    const Error error = as_error(name);
    throw Error(error.code(), replaced(error.message(), upload.path(), "the upload"),
                replaced(error.where(), upload.path(), "the upload"),
                replaced(error.fix(), upload.path(), "the upload"));
  }
}

void Repository::load_folder(const std::string& name, Entry& e, const std::string& path,
                             const std::string& folder, const LoadOverride& changes,
                             Clock::time_point since) {
  Stopwatch watch;
  const ModelDir dir(folder, !changes.files.empty());
  const uint64_t fingerprint = ModelDir(path.empty() ? folder : path).fingerprint();
  const bool overridden = changes.config_json || !changes.files.empty();
  const ModelPlan plan = plan_model(name, dir, changes.config_json, options_.complete_configs, backends_,
                                    [&](const Node& wanted, const Backend& backend) {
                                      if (overridden && backend.runs_code())
                                        check_override(name, path, changes, wanted);
                                    });
  if (plan.config.cached && !options_.limits.cache)
    log_warn("model ", name,
             ": field 'response_cache' has no effect: the server has no cache (--cache-config)");
  if (!plan.config.rate_needs.empty() && !options_.limits.limiter)
    log_warn("model ", name,
             ": field 'rate_limiter' has no effect: start the server with --rate-limit=execution_count");

  std::vector<std::string> steps;
  for (const EnsembleStep& s : plan.config.steps)
    if (std::find(steps.begin(), steps.end(), s.model) == steps.end()) steps.push_back(s.model);
  {
    std::unique_lock lock(mutex_);
    e.needs = steps;
  }
  for (const EnsembleStep& s : plan.config.steps)
    if (!ready(s.model, s.version > 0 ? cat(s.version) : "")) load_step(name, s.model, since);

  std::map<int64_t, VersionInfo> loaded;
  for (int64_t v : plan.versions) {
    const int64_t shown = std::max<int64_t>(v, 1);
    {
      std::unique_lock lock(mutex_);
      VersionInfo& info = e.versions[shown];
      if (!info.model) info.state = ModelState::loading, info.reason.clear();
    }
    loaded[shown] = {ModelState::ready, "", load_version(plan, dir, v)};
    stats_.set_load_seconds(name, cat(shown), watch.seconds());
  }
  std::map<int64_t, VersionInfo> old;
  {
    std::unique_lock lock(mutex_);
    refuse_if_stopping(name);  // else nobody would unload it
    old.swap(e.versions);
    e.versions = std::move(loaded);
    for (auto& [v, info] : old)
      if (!e.versions.contains(v) && info.model)
        e.versions[v] = {ModelState::unavailable, "unloaded", nullptr};
    e.failure.reset();
    e.path = path;
    e.fingerprint = fingerprint;
    e.wanted = true;
    e.steps = std::move(steps);
  }
  log_info("model ", name, " ready in ", duration_text(watch.seconds()));
}

std::shared_ptr<const Model> Repository::load_version(const ModelPlan& plan, const ModelDir& dir,
                                                      int64_t version) {
  const ModelConfig& config = plan.config;
  const int64_t shown = std::max<int64_t>(version, 1);
  auto stats = stats_.get(config.name, cat(shown));
  std::unique_ptr<Model> made;
  if (!config.steps.empty()) {
    made = std::make_unique<Model>(config, shown, dir, stats, options_.limits.tracer);
    auto resolve = [this](const EnsembleStep& s) {
      return find(s.model, s.version > 0 ? cat(s.version) : "");
    };
    made->set_scheduler(
        make_ensemble_scheduler(made->config(), stats, options_.limits, made->finisher(), resolve));
  } else {
    auto engine = backends_.get(config.backend)
                      .load(config, dir, version, version == plan.prepared_version ? plan.prepared : nullptr);
    made = std::make_unique<Model>(config, shown, dir, std::move(engine), stats, options_.limits);
  }
  auto model = reaper_->adopt(reaper_, std::move(made));
  with_place(config.name, [&] { model->warm_up(dir); });
  return model;
}

std::shared_ptr<const Model> Repository::find(std::string_view name, std::string_view version) const {
  std::shared_lock lock(mutex_);
  auto it = entries_.find(name);
  if (it == entries_.end())
    fail(ErrorCode::not_found, cat("request for unknown model: '", name, "' is not found"));
  const Entry& e = *it->second;
  const auto& versions = e.versions;
  const bool coming = e.under_way || (e.wanted && versions.empty());
  if (version.empty()) {
    for (auto v = versions.rbegin(); v != versions.rend(); ++v)
      if (v->second.model) return v->second.model;
    if (coming) fail(ErrorCode::busy, cat("model '", name, "' is not ready: it is being loaded"));
    fail(ErrorCode::not_found, cat("request for unknown model: '", name, "' has no available versions",
                                   e.failure ? cat(": ", e.failure->what()) : ""));
  }
  int64_t wanted = 0;
  auto r = std::from_chars(version.data(), version.data() + version.size(), wanted);
  if (r.ec != std::errc() || r.ptr != version.data() + version.size())
    fail(ErrorCode::bad_name, cat("version '", version, "' of model '", name, "' is not a number"));
  auto v = versions.find(wanted);
  const bool known = v != versions.end();
  if (known && v->second.model) return v->second.model;
  if (coming && (known || versions.empty()))
    fail(ErrorCode::busy, cat("model '", name, "' version ", wanted, " is not ready: it is being loaded"));
  fail(ErrorCode::not_found,
       cat("request for unknown model: '", name, "' version ", wanted, " is not ",
           known ? "available" : "found", known && !v->second.reason.empty() ? ": " : "",
           known ? std::string_view(v->second.reason) : std::string_view()));
}

bool Repository::ready(std::string_view name, std::string_view version) const {
  try {
    return find(name, version) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> Repository::served_versions(std::string_view name) const {
  std::shared_lock lock(mutex_);
  std::vector<std::string> out;
  if (auto it = entries_.find(name); it != entries_.end())
    for (const auto& [v, info] : it->second->versions)
      if (info.model) out.push_back(cat(v));
  return out;
}

std::vector<std::string> Repository::names() const {
  std::shared_lock lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [name, e] : entries_) out.push_back(name);
  return out;
}

std::vector<IndexEntry> Repository::index(bool ready_only) const {
  std::vector<IndexEntry> out;
  std::set<std::string> on_disk;
  if (!ready_only)
    for (const auto& [name, path] : scan()) on_disk.insert(name);
  std::shared_lock lock(mutex_);
  for (const auto& [name, e] : entries_) {
    on_disk.erase(name);
    if (!ready_only && e->versions.empty()) out.push_back({name, "", std::nullopt, ""});
    for (const auto& [v, info] : e->versions)
      if (!ready_only || info.state == ModelState::ready)
        out.push_back({name, cat(v), info.state, info.reason});
  }
  for (const std::string& name : on_disk) out.push_back({name, "", std::nullopt, ""});
  std::sort(out.begin(), out.end(), [](const IndexEntry& a, const IndexEntry& b) { return a.name < b.name; });
  return out;
}

bool Repository::all_ready() const {
  std::shared_lock lock(mutex_);
  for (const auto& [name, e] : entries_) {
    if (!e->wanted) continue;
    if (e->failure) return false;
    if (std::none_of(e->versions.begin(), e->versions.end(),
                     [](const auto& v) { return v.second.model != nullptr; }))
      return false;
  }
  return true;
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

// Ensembles whose last load failed and of which a step has been loaded since `since`.
std::map<std::string, std::string> Repository::mended_ensembles(
    const std::map<std::string, std::string>& models, Clock::time_point since) {
  std::map<std::string, std::string> out;
  std::shared_lock lock(mutex_);
  for (const auto& [name, path] : models) {
    const auto it = entries_.find(name);
    if (it == entries_.end() || !it->second->failure) continue;
    for (const std::string& step : it->second->needs) {
      const auto s = entries_.find(step);
      if (s != entries_.end() && !s->second->failure && s->second->tried >= since) out[name] = path;
    }
  }
  return out;
}

void Repository::poll() {
  const auto begin = Clock::now();
  const auto models = scan();
  std::map<std::string, std::string> changed;
  for (const auto& [name, path] : models) {
    auto e = entry(name);
    uint64_t now = 0;
    try {
      now = ModelDir(path).fingerprint();
    } catch (const Error&) {
      continue;  // removed while we look; the next round sees it
    }
    std::unique_lock lock(mutex_);
    if (e->wanted && e->fingerprint == now) continue;
    e->fingerprint = now;  // a broken model is tried again only when it changes
    changed[name] = path;
  }
  load_all(changed, begin);
  // A mended step mends the ensembles over it, whose own files did not change, and so on upwards.
  for (auto since = begin;;) {
    const auto mended = mended_ensembles(models, since);
    if (mended.empty()) break;
    since = Clock::now();
    load_all(mended, since);
  }
  std::map<int64_t, VersionInfo> gone;
  std::unique_lock lock(mutex_);
  for (auto& [name, e] : entries_)
    if (!models.contains(name) && e->wanted) {
      e->wanted = false;
      e->failure.reset();
      for (auto& [v, info] : e->versions) {
        gone[static_cast<int64_t>(gone.size())].model = std::move(info.model);
        info = {ModelState::unavailable, "removed from the repository", nullptr};
      }
    }
  lock.unlock();
}

}  // namespace pelton::serve
