// SPDX-License-Identifier: Apache-2.0
// Loading: one model with its versions, and the steps of ensembles before them.
#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "serve/core/ensemble.h"
#include "serve/core/model_plan.h"
#include "serve/core/repository.h"
#include "serve/core/upload.h"

namespace pelton::serve {
namespace {

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

}  // namespace pelton::serve
