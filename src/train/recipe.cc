// SPDX-License-Identifier: Apache-2.0
#include "train/recipe.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "base/nearest.h"
#include "base/toml.h"

namespace pelton::train {

using data::Args;
using data::Options;
using data::Param;
using data::Schema;

namespace {

const Schema& section_schema(std::string_view name) {
  for (const auto& [n, schema] : recipe_sections())
    if (n == name) return schema;
  PELTON_CHECK(false, "no recipe section ", name);
  return recipe_sections()[0].second;
}

std::string text_of(const toml::table& t) {
  std::ostringstream out;
  out << t << "\n";
  return out.str();
}

class Reader {
 public:
  Reader(const toml::table& root, std::string name, std::string folder)
      : root_(root), name_(std::move(name)), folder_(std::move(folder)) {}

  Recipe read() {
    std::vector<std::string> known = {"version", "seed", "optimizer"};
    for (const auto& section : recipe_sections()) known.push_back(section.first);
    check_keys(root_, known, "a recipe");
    const auto version = root_["version"].value<int64_t>();
    if (!version)
      fail(ErrorCode::bad_format, "the recipe has no version", name_, "start it with: version = 1");
    if (*version != 1)
      fail(ErrorCode::unsupported_version, cat("recipe version ", *version, " is not known"), name_,
           "this release reads version 1");
    r_.name = std::filesystem::path(name_).stem().string();
    r_.folder = folder_;
    r_.text = text_of(root_);
    if (const toml::node* seed = root_.get("seed")) {
      auto v = seed->value_exact<int64_t>();
      if (!v || *v < 0) fail(ErrorCode::usage, "'seed' is not a whole number of at least 0", place(*seed));
      r_.seed = static_cast<uint64_t>(*v);
    }
    model();
    data();
    step();
    optimizer();
    rest();
    return std::move(r_);
  }

 private:
  std::string place(const toml::node& n) const {
    return n.source().begin.line ? cat(name_, " line ", n.source().begin.line) : name_;
  }
  std::string below(const std::string& path) const {
    return std::filesystem::path(path).is_absolute() || folder_.empty() ? path : cat(folder_, "/", path);
  }

  void check_keys(const toml::table& t, const std::vector<std::string>& known, std::string_view what) const {
    for (const auto& [key, value] : t) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      std::string near = nearest(key.str(), known);
      fail(ErrorCode::usage, cat(what, " has no key '", key.str(), "'"), place(value),
           near.empty() ? "see pelton train --schema" : cat("did you mean '", near, "'?"));
    }
  }

  Param param(const toml::node& n, std::string_view key) const {
    if (auto v = n.value_exact<bool>()) return *v;
    if (auto v = n.value_exact<std::string>()) return *v;
    if (n.is_number()) return *n.value<double>();
    if (const auto* list = n.as_array()) {
      std::vector<double> numbers;
      std::vector<std::string> texts;
      for (const auto& v : *list) {
        if (v.is_number())
          numbers.push_back(*v.value<double>());
        else if (v.is_string())
          texts.push_back(*v.value<std::string>());
        else
          fail(ErrorCode::usage, cat("'", key, "' holds something that is neither number nor text"),
               place(n));
      }
      if (!numbers.empty() && !texts.empty())
        fail(ErrorCode::usage, cat("'", key, "' mixes numbers and texts"), place(n));
      if (!texts.empty()) return texts;
      return numbers;
    }
    fail(ErrorCode::usage, cat("'", key, "' has a value of a kind that no option takes"), place(n));
  }

  const toml::table* table(const char* key) const {
    const toml::node* n = root_.get(key);
    if (!n) return nullptr;
    if (!n->as_table()) fail(ErrorCode::usage, cat("'", key, "' is not a table"), place(*n));
    return n->as_table();
  }

  Options options(const toml::table* t, const std::vector<std::string>& leave_out = {}) const {
    Options out;
    if (!t) return out;
    for (const auto& [key, value] : *t)
      if (std::find(leave_out.begin(), leave_out.end(), key.str()) == leave_out.end())
        out[std::string(key.str())] = param(value, key.str());
    return out;
  }

  Args args(const char* section, const std::vector<std::string>& leave_out = {}) const {
    const toml::table* t = table(section);
    return Args(section_schema(section), options(t, leave_out), t ? place(*t) : name_);
  }

  ir::Attr model_option(const toml::node& n, std::string_view key) const {
    if (auto v = n.value_exact<bool>()) return *v;
    if (auto v = n.value_exact<int64_t>()) return *v;
    if (auto v = n.value_exact<double>()) return *v;
    if (auto v = n.value_exact<std::string>()) return *v;
    ir::Ints list;
    if (const auto* a = n.as_array()) {
      for (const auto& v : *a) {
        auto i = v.value_exact<int64_t>();
        if (!i) fail(ErrorCode::usage, cat("'", key, "' is not a list of whole numbers"), place(n));
        list.push_back(*i);
      }
      return list;
    }
    fail(ErrorCode::usage, cat("'", key, "' has a value of a kind that no option takes"), place(n));
  }

  void model() {
    const toml::table* t = table("model");
    if (!t) fail(ErrorCode::usage, "the recipe has no model", name_, "add: model = { name = \"mlp\" }");
    const Schema& schema = section_schema("model");
    Options own;
    for (const auto& [key, value] : *t) {
      bool ours = std::find_if(schema.options.begin(), schema.options.end(), [&](const data::OptionSpec& o) {
                    return o.name == key.str();
                  }) != schema.options.end();
      if (ours)
        own[std::string(key.str())] = param(value, key.str());
      else
        r_.model_options[std::string(key.str())] = model_option(value, key.str());
    }
    Args a(schema, own, place(*t));
    r_.model = a.text("name");
    if (!a.text("onnx").empty()) r_.onnx = below(a.text("onnx"));
    if (!a.text("weights").empty()) r_.weights = below(a.text("weights"));
    r_.fresh = a.texts("fresh");
    if (r_.model.empty() == r_.onnx.empty())
      fail(ErrorCode::usage, "the model needs a name or an onnx file, one of the two", place(*t));
  }

  // A pipeline file, or a source with its stages in place.
  std::optional<data::PipelineSpec> pipeline(const toml::table& t, const char* key) const {
    const toml::node* n = t.get(key);
    if (!n) return {};
    if (auto path = n->value_exact<std::string>()) return data::load_pipeline(below(*path));
    const toml::table* source = n->as_table();
    if (!source)
      fail(ErrorCode::usage, cat("'", key, "' is neither a pipeline file nor a source"), place(*n));
    toml::table out, inner = *source;
    out.insert("version", int64_t{1});
    out.insert("seed", static_cast<int64_t>(r_.seed));
    for (const char* top : {"seed", "match", "bad_samples", "bad_limit"})
      if (const toml::node* v = inner.get(top)) {
        out.insert_or_assign(top, *v);
        inner.erase(top);
      }
    if (const toml::node* stages = inner.get("stages")) {
      out.insert("stage", *stages);
      inner.erase("stages");
    }
    out.insert("source", inner);
    return data::parse_pipeline(text_of(out), cat(name_, " data.", key), folder_);
  }

  void data() {
    const toml::table* t = table("data");
    if (!t)
      fail(ErrorCode::usage, "the recipe has no data", name_, "add: data = { train = \"pipeline.toml\" }");
    const std::vector<std::string> pipelines = {"train", "eval"};
    std::vector<std::string> known = pipelines;
    for (const auto& o : section_schema("data").options) known.push_back(o.name);
    check_keys(*t, known, "data");
    Args a = args("data", pipelines);
    DataRecipe& d = r_.data;
    d.train = pipeline(*t, "train");
    d.eval = pipeline(*t, "eval");
    for (double v : a.numbers("synthetic")) d.synthetic.push_back(static_cast<int64_t>(v));
    d.synthetic_count = a.integer("synthetic_count");
    for (const std::string& path : a.texts("tokens")) d.tokens.push_back(below(path));
    for (const std::string& path : a.texts("eval_tokens")) d.eval_tokens.push_back(below(path));
    d.token_type = a.text("token_type");
    d.token_stride = a.integer("token_stride");
    d.holdout = a.number("holdout");
    d.batch = a.integer("batch");
    d.eval_batch = a.integer("eval_batch");
    d.mean = a.numbers("mean");
    d.std = a.numbers("std");
    d.drop_last = a.boolean("drop_last");
    int sources = d.train.has_value() + !d.synthetic.empty() + !d.tokens.empty();
    if (sources != 1)
      fail(ErrorCode::usage, cat("data names ", sources, " of train, synthetic and tokens; it takes one"),
           place(*t));
    if (d.mean.size() != d.std.size())
      fail(ErrorCode::usage, cat("data.mean has ", d.mean.size(), " numbers, data.std ", d.std.size()),
           place(*t));
    for (double v : d.std)
      if (!(v > 0)) fail(ErrorCode::usage, cat("data.std holds ", v, ", but divides"), place(*t));
  }

  void step() {
    Args a = args("step");
    r_.precision = a.text("precision");
    r_.full_precision = a.texts("full_precision");
    read_scaling(a);
    r_.epochs = a.number("epochs");
    r_.steps = a.integer("steps");
    if ((r_.epochs > 0) == (r_.steps > 0))
      fail(ErrorCode::usage, "the step section needs epochs or steps, one of the two", a.where(),
           "add: step = { epochs = 10 }");
    r_.loss.kind = a.text("loss");
    r_.loss.label_smoothing = a.number("label_smoothing");
    r_.loss.ignore = a.integer("ignore");
    r_.accumulate = a.integer("accumulate");
    r_.clip_norm = a.number("clip_norm");
    r_.memory_budget_gib = a.number("memory_budget");
    r_.average = a.number("average");
    r_.mixup = a.number("mixup");
    if (r_.average >= 1) fail(ErrorCode::usage, "step.average must be below 1", a.where());
    if (r_.mixup > 0 && r_.loss.kind != "cross_entropy")
      fail(ErrorCode::usage, "mixup needs loss cross_entropy", a.where());
  }

  void read_scaling(const Args& a) {
    LossScaling& s = r_.scaling;
    s.on = r_.precision == "fp16";
    s.initial = a.number("loss_scale");
    s.floor = a.number("loss_scale_floor");
    s.ceiling = a.number("loss_scale_ceiling");
    s.interval = a.integer("loss_scale_interval");
    if (!(s.floor > 0 && s.floor <= s.initial && s.initial <= s.ceiling))
      fail(ErrorCode::usage,
           cat("step.loss_scale is ", s.initial, ", not between its floor ", s.floor, " and ceiling ",
               s.ceiling),
           a.where());
  }

  void optimizer() {
    const toml::table* t = table("optimizer");
    if (!t) {
      fail(ErrorCode::usage, "the recipe has no optimizer", name_,
           "add: optimizer = { name = \"adamw\", lr = 1e-3 }");
    }
    const toml::node* n = t->get("name");
    auto name = n ? n->value_exact<std::string>() : std::optional<std::string>();
    if (!name) fail(ErrorCode::usage, "the optimizer has no name", place(*t), "add: name = \"sgd\"");
    r_.optimizer = *name;
    r_.optimizer_options = options(t, {"name"});
    const OptimizerDef& def =
        with_place(place(*t), [&]() -> const OptimizerDef& { return find_optimizer(*name); });
    Args check(def.schema, r_.optimizer_options, place(*t));
  }

  void rest() {
    args("schedule");
    r_.schedule_options = options(table("schedule"), {});
    r_.schedule = args("schedule").text("name");
    Args eval = args("eval");
    r_.eval_every = eval.number("every");
    r_.best_metric = eval.text("best");
    r_.patience = eval.integer("patience");
    Args c = args("checkpoint");
    r_.checkpoint_every = c.number("every");
    r_.checkpoint_steps = c.integer("steps");
    r_.keep = c.integer("keep");
    r_.keep_best = c.boolean("keep_best");
    Args o = args("output");
    r_.output = o.text("folder").empty() ? cat("runs/", r_.name) : o.text("folder");
    r_.tensorboard = o.boolean("tensorboard");
    r_.html = o.boolean("html");
    r_.log_every = o.integer("every");
    const toml::node* groups = root_.get("group");
    if (!groups) return;
    if (!groups->as_array())
      fail(ErrorCode::usage, "'group' is not a list of tables", place(*groups), "write each as [[group]]");
    for (const auto& g : *groups->as_array()) {
      const toml::table* t = g.as_table();
      if (!t) fail(ErrorCode::usage, "a group is not a table", place(g), "write each as [[group]]");
      Args a(section_schema("group"), options(t), place(*t));
      ParameterGroup group;
      group.match = a.texts("match");
      group.lr_scale = a.number("lr_scale");
      if (a.has("weight_decay")) group.weight_decay = a.number("weight_decay");
      group.frozen = a.boolean("frozen");
      group.from_epoch = a.integer("from_epoch");
      if (group.match.empty())
        fail(ErrorCode::usage, "the group matches nothing", place(*t), "add: match = [\"fc.*\"]");
      r_.groups.push_back(std::move(group));
    }
  }

  const toml::table& root_;
  std::string name_, folder_;
  Recipe r_;
};

// "a.b=c": the value is TOML, or a text where it is not.
void apply_set(toml::table& root, const std::string& set) {
  size_t eq = set.find('=');
  if (eq == set.npos || eq == 0)
    fail(ErrorCode::usage, cat("'", set, "' is no assignment"), "--set", "write --set optimizer.lr=0.1");
  std::string key = set.substr(0, eq), value = set.substr(eq + 1);
  toml::table parsed;
  try {
    parsed = parse_toml(cat("x = ", value), "--set");
  } catch (const Error&) {
    parsed = {};
    parsed.insert("x", value);
  }
  toml::table* at = &root;
  size_t begin = 0;
  for (size_t dot; (dot = key.find('.', begin)) != key.npos; begin = dot + 1) {
    std::string part = key.substr(begin, dot - begin);
    if (!at->get(part)) at->insert(part, toml::table{});
    at = at->get(part)->as_table();
    if (!at) fail(ErrorCode::usage, cat("'", part, "' is not a table"), cat("--set ", set));
  }
  at->insert_or_assign(key.substr(begin), *parsed.get("x"));
}

}  // namespace

Recipe parse_recipe(const std::string& text, const std::string& name, const std::string& folder,
                    const std::vector<std::string>& sets) {
  toml::table root = parse_toml(text, name);
  std::string changed;  // told beside lines of the file, which need not be what is wrong then
  for (const std::string& set : sets) {
    apply_set(root, set);
    append(changed, cat(", with --set ", set));
  }
  try {
    return Reader(root, name, folder).read();
  } catch (const Error& e) {
    if (changed.empty() || !e.where().starts_with(name)) throw;
    throw Error(e.code(), e.message(), e.where() + changed, e.fix());
  }
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& sets) {
  const std::filesystem::path p(path);
  return parse_recipe(read_file(path, 1 << 20), p.filename().string(), p.parent_path().string(), sets);
}

Schedule make_schedule(const Recipe& r, int64_t total, int64_t epoch_updates) {
  Args a(section_schema("schedule"), r.schedule_options, cat(r.name, " schedule"));
  Args optimizer(find_optimizer(r.optimizer).schema, r.optimizer_options, cat(r.name, " optimizer"));
  Schedule s;
  s.name = r.schedule;
  s.lr = optimizer.number("lr");
  s.total = total;
  double warmup = a.number("warmup");
  s.warmup = std::llround(warmup < 1 ? warmup * static_cast<double>(total) : warmup);
  s.warmup_from = a.number("warmup_from");
  s.end = a.number("end");
  s.power = a.number("power");
  s.gamma = a.number("gamma");
  for (double epoch : a.numbers("at"))
    s.at.push_back(std::llround(epoch * static_cast<double>(epoch_updates)));
  if (!std::is_sorted(s.at.begin(), s.at.end()))
    fail(ErrorCode::usage, "schedule.at is not in rising order", a.where());
  s.rise = a.number("rise");
  s.start = a.number("start");
  s.final = a.number("final");
  return s;
}

}  // namespace pelton::train
