// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <chrono>

#include "base/clock.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "train/run_folder.h"
#include "train/trainer_impl.h"

namespace pelton::train {

namespace {

constexpr double kRateSeconds = 5;  // throughput and time left are those of about the last seconds

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Trainer::Trainer(Recipe recipe, TrainerOptions options, const backend::Registry& registry)
    : impl_(std::make_unique<Impl>(std::move(recipe), std::move(options), registry)) {}
Trainer::~Trainer() = default;

RunResult Trainer::run() {
  Impl& m = *impl_;
  const Recipe& recipe = m.recipe;
  RunFolder folder(recipe.output, m.options.resume);
  m.start();
  if (m.options.resume) m.restore(newest_checkpoint(folder.checkpoints()));
  folder.describe(recipe, m.model->name(), m.loaders.train->classes());
  MetricsFile metrics(folder.metrics(), m.done);
  std::unique_ptr<EventFile> events;
  if (recipe.tensorboard) events = std::make_unique<EventFile>(folder.path(), wall_time(), m.done);
  CheckpointWriter writer(folder.checkpoints(), recipe.keep);

  RunResult result;
  result.folder = recipe.output;
  result.stopped = "done";
  Stopwatch whole;
  int64_t first = m.done, saved = m.options.resume ? m.done : -1;
  // Updates of the last seconds, with the time when each ended.
  std::deque<std::pair<int64_t, int64_t>> window;
  double rate = 0;
  auto measure = [&](int64_t update) {
    window.emplace_back(now_ns(), update);
    while (window.size() > 2 &&
           static_cast<double>(window.back().first - window.front().first) * 1e-9 > kRateSeconds)
      window.pop_front();
    double seconds = static_cast<double>(window.back().first - window.front().first) * 1e-9;
    if (seconds > 0)
      rate =
          static_cast<double>((window.back().second - window.front().second) * recipe.data.batch) / seconds;
  };
  auto tell = [&](const std::string& kind, int64_t update, Values values) {
    Moment moment{kind,
                  update,
                  m.updates,
                  static_cast<double>(update) / static_cast<double>(m.epoch_updates),
                  std::move(values),
                  rate,
                  0,
                  m.memory_bytes()};
    if (rate > 0) moment.seconds_left = static_cast<double>((m.updates - update) * recipe.data.batch) / rate;
    metrics.add(kind, update, moment.values);
    if (events) events->add(kind, update, moment.values, wall_time());
    if (m.options.on_moment) m.options.on_moment(moment);
  };
  auto every = [&](double epochs) {
    auto span = static_cast<int64_t>(std::llround(epochs * static_cast<double>(m.epoch_updates)));
    return epochs > 0 && m.done % std::max<int64_t>(span, 1) == 0;
  };
  auto save = [&](bool best) {
    if (saved == m.done && !best) return;
    writer.write(m.snapshot(), best && recipe.keep_best);
    saved = m.done;
  };
  auto finish_report = [&] {
    if (!recipe.html) return;
    Values facts = {{"updates", static_cast<double>(m.done)},
                    {"epochs", static_cast<double>(m.done) / static_cast<double>(m.epoch_updates)},
                    {"seconds", whole.seconds()},
                    {"samples per second", rate}};
    for (const auto& v : result.best) facts.emplace_back(cat("best ", v.first), v.second);
    write_file(folder.html(), report_html(cat(recipe.name, ": ", m.model->name()),
                                          read_file(folder.metrics()), recipe.text, facts));
  };

  auto finish = [&] {
    Impl::Finished f = m.finish_update();
    measure(f.update);
    if (f.update % recipe.log_every == 0 || f.update == m.updates)
      tell("train", f.update, std::move(f.values));
  };
  auto finish_all = [&] {
    while (!m.on_way.empty()) finish();
  };

  TrainBatch batch;
  try {
    while (m.done < m.updates) {
      throw_if_interrupted();
      if (!m.loaders.train->next(batch)) continue;
      while (!m.may_start(batch)) finish();
      m.start_update(batch);
      m.data_state = m.loaders.train->state();
      if (m.active().most_running() == 1) finish_all();
      bool last = m.done == m.updates, judged = m.loaders.eval && (every(recipe.eval_every) || last);
      bool due = every(recipe.checkpoint_every) || last ||
                 (recipe.checkpoint_steps && m.done % recipe.checkpoint_steps == 0);
      if (judged || due) finish_all();
      bool best = false;
      if (judged) {
        result.last = m.evaluate();
        best = m.judge(result.last);
        result.best = m.best_values;
        tell("eval", m.done, result.last);
      }
      if (due || best) save(best);
      if (recipe.patience && m.since_best >= recipe.patience) {
        result.stopped = "early";
        save(false);
        break;
      }
    }
    finish_all();
    writer.wait();
  } catch (const Error& e) {
    m.check_memory_message(e);
    if (!interrupted() || e.code() != ErrorCode::cancelled) throw;
    finish_all();
    save(false);
    writer.wait();
    finish_report();
    throw Error(e.code(), cat("interrupted after update ", m.done, "; the checkpoint is written"),
                recipe.output, "pelton train --resume goes on from it");
  }
  result.updates = m.done;
  result.epochs = static_cast<double>(m.done) / static_cast<double>(m.epoch_updates);
  result.seconds = whole.seconds();
  result.samples_per_s =
      static_cast<double>((m.done - first) * recipe.data.batch) / std::max(result.seconds, 1e-9);
  finish_report();
  return result;
}

}  // namespace pelton::train
