// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <chrono>
#include <optional>

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

// From the first update that is missing to the end, an early stop or an interruption.
class Trainer::Impl::RunLoop {
 public:
  explicit RunLoop(Impl& impl) : m_(impl), folder_(impl.recipe.output, impl.options.resume) {
    m_.start();
    if (m_.options.resume) m_.restore(newest_checkpoint(folder_.checkpoints()));
    folder_.describe(m_.recipe, m_.model->name(), m_.loaders.train->classes());
    metrics_.emplace(folder_.metrics(), m_.done);
    if (m_.recipe.tensorboard) events_.emplace(folder_.path(), wall_time(), m_.done);
    writer_.emplace(folder_.checkpoints(), m_.recipe.keep);
    first_ = m_.done;
    saved_ = m_.options.resume ? m_.done : -1;
    result_.folder = m_.recipe.output;
    result_.stopped = "done";
    whole_ = Stopwatch();
  }

  RunResult run() {
    try {
      TrainBatch batch;
      while (m_.done < m_.updates) {
        throw_if_interrupted();
        if (!m_.loaders.train->next(batch)) continue;
        update(batch);
        if (!judge_and_save()) break;
      }
      finish_all();
      writer_->wait();
    } catch (const Error& e) {
      m_.check_memory_message(e);
      if (!interrupted() || e.code() != ErrorCode::cancelled) throw;
      finish_all();
      save(false);
      writer_->wait();
      report();
      throw Error(e.code(), cat("interrupted after update ", m_.done, "; the checkpoint is written"),
                  m_.recipe.output, "pelton train --resume goes on from it");
    }
    result_.updates = m_.done;
    result_.epochs = epochs(m_.done);
    result_.seconds = whole_.seconds();
    result_.samples_per_s = samples(m_.done - first_) / std::max(result_.seconds, 1e-9);
    report();
    return result_;
  }

 private:
  double epochs(int64_t updates) const {
    return static_cast<double>(updates) / static_cast<double>(m_.epoch_updates);
  }
  double samples(int64_t updates) const { return static_cast<double>(updates * m_.recipe.data.batch); }

  void update(const TrainBatch& batch) {
    while (!m_.may_start(batch)) finish();
    m_.start_update(batch);
    m_.data_state = m_.loaders.train->state();
    if (m_.active().most_running() == 1) finish_all();
  }
  // The results of the oldest update that is on its way.
  void finish() {
    Finished f = m_.finish_update();
    measure(f.update);
    if (f.update % m_.recipe.log_every == 0 || f.update == m_.updates)
      tell("train", f.update, std::move(f.values));
  }
  void finish_all() {
    while (!m_.on_way.empty()) finish();
  }

  // What is due after an update. False: the run stops here.
  bool judge_and_save() {
    const Recipe& recipe = m_.recipe;
    const bool last = m_.done == m_.updates, judged = m_.loaders.eval && (every(recipe.eval_every) || last),
               due = every(recipe.checkpoint_every) || last ||
                     (recipe.checkpoint_steps && m_.done % recipe.checkpoint_steps == 0);
    if (judged || due) finish_all();
    bool best = false;
    if (judged) {
      result_.last = m_.evaluate();
      best = m_.judge(result_.last);
      result_.best = m_.best_values;
      tell("eval", m_.done, result_.last);
    }
    if (due || best) save(best);
    if (!recipe.patience || m_.since_best < recipe.patience) return true;
    result_.stopped = "early";
    save(false);
    return false;
  }
  bool every(double epochs) const {
    auto span = static_cast<int64_t>(std::llround(epochs * static_cast<double>(m_.epoch_updates)));
    return epochs > 0 && m_.done % std::max<int64_t>(span, 1) == 0;
  }
  void save(bool best) {
    if (saved_ == m_.done && !best) return;
    writer_->write(m_.snapshot(), best && m_.recipe.keep_best);
    saved_ = m_.done;
  }

  void measure(int64_t update) {
    window_.emplace_back(now_ns(), update);
    auto seconds = [&] { return static_cast<double>(window_.back().first - window_.front().first) * 1e-9; };
    while (window_.size() > 2 && seconds() > kRateSeconds) window_.pop_front();
    if (seconds() > 0) rate_ = samples(window_.back().second - window_.front().second) / seconds();
  }
  void tell(const std::string& kind, int64_t update, Values values) {
    Moment moment{kind, update, m_.updates, epochs(update), std::move(values), rate_, 0, m_.memory_bytes()};
    if (rate_ > 0) moment.seconds_left = samples(m_.updates - update) / rate_;
    metrics_->add(kind, update, moment.values);
    if (events_) events_->add(kind, update, moment.values, wall_time());
    if (m_.options.on_moment) m_.options.on_moment(moment);
  }
  void report() {
    if (!m_.recipe.html) return;
    Values facts = {{"updates", static_cast<double>(m_.done)},
                    {"epochs", epochs(m_.done)},
                    {"seconds", whole_.seconds()},
                    {"samples per second", rate_}};
    for (const auto& v : result_.best) facts.emplace_back(cat("best ", v.first), v.second);
    write_file(folder_.html(), report_html(cat(m_.recipe.name, ": ", m_.model->name()),
                                           read_file(folder_.metrics()), m_.recipe.text, facts));
  }

  Impl& m_;
  RunFolder folder_;
  std::optional<MetricsFile> metrics_;
  std::optional<EventFile> events_;
  std::optional<CheckpointWriter> writer_;
  RunResult result_;
  Stopwatch whole_;
  int64_t first_ = 0, saved_ = -1;                  // updates before this run; of the newest checkpoint
  std::deque<std::pair<int64_t, int64_t>> window_;  // ends of the last seconds' updates, and their numbers
  double rate_ = 0;                                 // samples a second
};

Trainer::Trainer(Recipe recipe, TrainerOptions options, const backend::Registry& registry)
    : impl_(std::make_unique<Impl>(std::move(recipe), std::move(options), registry)) {}
Trainer::~Trainer() = default;

RunResult Trainer::run() {
  return Impl::RunLoop(*impl_).run();
}

}  // namespace pelton::train
