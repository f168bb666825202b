// SPDX-License-Identifier: Apache-2.0
// The parts of a configuration that say how requests are grouped: sequences, ragged batches, rate limits.
#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "serve/core/model_config.h"

namespace pelton::serve {
namespace {

DType dtype_of(const Node& n, const std::string& what) {
  const auto t = dtype_from_config(n.enum_name("data_type"));
  if (!t) fail(ErrorCode::bad_type, cat(what, " has no data_type"));
  return *t;
}

ControlInput read_control(const Node& n) {
  ControlInput c;
  c.name = n.string("name");
  const auto controls = n.messages("control");
  if (c.name.empty() || controls.size() != 1)
    fail(ErrorCode::unsupported_op,
         cat("sequence_batching.control_input '", c.name, "' has ", controls.size(), " controls"), "",
         "give each control a tensor of its own");
  const Node& control = *controls[0];
  const std::string kind = control.enum_name("kind");
  if (kind == "CONTROL_SEQUENCE_CORRID") {
    c.kind = ControlInput::Kind::correlation;
    for (const char* flag : {"int32_false_true", "fp32_false_true", "bool_false_true"})
      if (control.has(flag))
        fail(ErrorCode::bad_format, cat("control_input '", c.name, "' of kind ", kind, " has no ", flag));
    c.dtype = dtype_of(control, cat("control_input '", c.name, "'"));
    constexpr DType kIds[] = {DType::u64, DType::i64, DType::u32, DType::i32, DType::string};
    if (std::find(std::begin(kIds), std::end(kIds), c.dtype) == std::end(kIds))
      fail(ErrorCode::bad_type,
           cat("control_input '", c.name, "' of kind ", kind, " is a 32 or 64 bit integer or a string"));
    return c;
  }
  c.kind = kind == "CONTROL_SEQUENCE_START"   ? ControlInput::Kind::start
           : kind == "CONTROL_SEQUENCE_READY" ? ControlInput::Kind::ready
                                              : ControlInput::Kind::end;
  std::vector<double> values;
  int forms = 0;
  if (control.has("int32_false_true")) {
    ++forms, c.dtype = DType::i32;
    for (int64_t v : control.integers("int32_false_true")) values.push_back(static_cast<double>(v));
  }
  if (control.has("fp32_false_true")) {
    ++forms, c.dtype = DType::f32;
    values = control.reals("fp32_false_true");
  }
  if (control.has("bool_false_true")) {
    ++forms, c.dtype = DType::boolean;
    for (bool v : control.booleans("bool_false_true")) values.push_back(v ? 1 : 0);
  }
  if (forms != 1 || values.size() != 2)
    fail(ErrorCode::bad_format, cat("control_input '", c.name,
                                    "' needs two values in one of int32_false_true, fp32_false_true and "
                                    "bool_false_true"));
  c.off = values[0], c.on = values[1];
  if (const auto t = dtype_from_config(control.enum_name("data_type")); t && *t != c.dtype)
    fail(ErrorCode::bad_type, cat("control_input '", c.name, "' has another data_type than its values"));
  return c;
}

StateSpec read_state(const Node& n) {
  StateSpec s;
  s.input = n.string("input_name");
  s.output = n.string("output_name");
  if (s.input.empty() || s.output.empty())
    fail(ErrorCode::bad_name, "a sequence_batching.state needs input_name and output_name");
  s.dtype = dtype_of(n, cat("state '", s.input, "'"));
  s.dims = n.integers("dims");
  for (int64_t d : s.dims) {
    if (d < -1 || d == 0) fail(ErrorCode::bad_shape, cat("state '", s.input, "' has the dimension ", d));
    s.initial_dims.push_back(d == -1 ? 1 : d);
  }
  const auto initial = n.messages("initial_state");
  if (initial.size() > 1)
    fail(ErrorCode::bad_format, cat("state '", s.input, "' has ", initial.size(), " initial states"));
  for (const Node* i : initial) {
    const std::string what = cat("the initial state '", i->string("name"), "' of '", s.input, "'");
    if (dtype_of(*i, what) != s.dtype)
      fail(ErrorCode::bad_type, cat(what, " has another type than the state"));
    s.initial_dims = i->integers("dims");
    s.data_file = i->string("data_file");
    bool fits = s.initial_dims.size() == s.dims.size();
    for (size_t k = 0; fits && k < s.dims.size(); ++k)
      fits = s.initial_dims[k] >= 0 && (s.dims[k] == -1 || s.dims[k] == s.initial_dims[k]);
    if (!fits) fail(ErrorCode::bad_shape, cat(what, " has shape ", s.initial_dims, ", the state ", s.dims));
  }
  return s;
}

BatchInput::Kind batch_kind(const std::string& name) {
  using K = BatchInput::Kind;
  if (name == "BATCH_ELEMENT_COUNT") return K::element_count;
  if (name == "BATCH_ACCUMULATED_ELEMENT_COUNT") return K::accumulated_element_count;
  if (name == "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO") return K::accumulated_element_count_with_zero;
  if (name == "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE") return K::max_element_count_as_shape;
  if (name == "BATCH_ITEM_SHAPE") return K::item_shape;
  return K::item_shape_flatten;
}

uint32_t parse_count(const std::string& text, std::string_view what) {
  uint32_t v = 0;
  auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size() || v == 0 || v > 1'000'000)
    fail(ErrorCode::bad_format, cat("parameter '", what, "' is '", text, "', expected 1 to 1000000"));
  return v;
}

// How many dimensions a tensor made for the batch has beyond its first.
Dims batch_input_dims(const ModelConfig& c, const BatchInput& b) {
  if (b.kind != BatchInput::Kind::item_shape) return {-1};
  return {-1, static_cast<int64_t>(c.input(b.source)->dims.size())};
}

}  // namespace

const ControlInput* SequenceConfig::control(ControlInput::Kind kind) const {
  for (const ControlInput& c : controls)
    if (c.kind == kind) return &c;
  return nullptr;
}

SequenceConfig read_sequence_config(const Node& n, const std::map<std::string, std::string>& parameters,
                                    int64_t max_batch) {
  SequenceConfig s;
  if (uint64_t idle = static_cast<uint64_t>(n.integer("max_sequence_idle_microseconds"))) s.idle_us = idle;
  s.iterative = n.boolean("iterative_sequence");
  std::set<std::string> names;
  for (const Node* c : n.messages("control_input")) {
    s.controls.push_back(read_control(*c));
    const ControlInput& added = s.controls.back();
    for (size_t i = 0; i + 1 < s.controls.size(); ++i)
      if (s.controls[i].kind == added.kind)
        fail(ErrorCode::bad_format, cat("control_input '", added.name, "' repeats a kind of control"));
    if (!names.insert(added.name).second)
      fail(ErrorCode::bad_name, cat("control_input '", added.name, "' is declared twice"));
  }
  for (const Node* st : n.messages("state")) {
    s.states.push_back(read_state(*st));
    if (!names.insert(s.states.back().input).second)
      fail(ErrorCode::bad_name, cat("state '", s.states.back().input, "' is declared twice"));
  }
  if (const Node* d = n.message("direct")) {
    s.max_delay_us = static_cast<uint64_t>(d->integer("max_queue_delay_microseconds"));
    s.minimum_utilization = d->real("minimum_slot_utilization");
    if (s.minimum_utilization < 0 || s.minimum_utilization > 1)
      fail(ErrorCode::bad_format,
           cat("minimum_slot_utilization ", s.minimum_utilization, " is outside 0 to 1"));
  }
  if (const Node* o = n.message("oldest")) {
    s.oldest = true;
    s.max_candidates = static_cast<uint32_t>(o->integer("max_candidate_sequences"));
    if (s.max_candidates < 1 || s.max_candidates > 1'000'000)
      fail(ErrorCode::bad_format, cat("max_candidate_sequences ", o->integer("max_candidate_sequences"),
                                      " is outside 1 to 1000000"));
    s.preferred = o->integers("preferred_batch_size");
    std::sort(s.preferred.begin(), s.preferred.end());
    for (int64_t p : s.preferred)
      if (p < 1 || p > max_batch)
        fail(ErrorCode::bad_format,
             cat("preferred_batch_size ", p, " is outside 1 to max_batch_size ", max_batch));
    s.max_delay_us = static_cast<uint64_t>(o->integer("max_queue_delay_microseconds"));
    s.preserve_ordering = o->boolean("preserve_ordering");
  }
  if (auto p = parameters.find("iterative_done_output"); p != parameters.end()) s.done_output = p->second;
  if (auto p = parameters.find("iterative_max_steps"); p != parameters.end())
    s.max_steps = parse_count(p->second, p->first);
  return s;
}

void read_ragged_config(const Node& tree, ModelConfig& c) {
  bool any = false;
  const auto parameters = read_config_map(tree, "parameters");
  for (TensorSpec& t : c.inputs) {
    any = any || t.ragged;
    const auto pad = parameters.find("pad." + t.name);
    if (pad == parameters.end()) continue;
    if (!t.ragged || t.dtype == DType::string)
      fail(ErrorCode::bad_format,
           cat("parameter '", pad->first, "' wants a numeric input with allow_ragged_batch"));
    double value = 0;
    const std::string& text = pad->second;
    auto r = std::from_chars(text.data(), text.data() + text.size(), value);
    if (r.ec != std::errc() || r.ptr != text.data() + text.size())
      fail(ErrorCode::bad_format, cat("parameter '", pad->first, "' is '", text, "', expected a number"));
    t.padding = value;
  }
  if (any && c.max_batch == 0)
    fail(ErrorCode::bad_format, "allow_ragged_batch needs max_batch_size of at least 1");
  for (const Node* n : tree.messages("batch_input")) {
    BatchInput b;
    b.kind = batch_kind(n->enum_name("kind"));
    const auto targets = n->strings("target_name"), sources = n->strings("source_input");
    if (targets.size() != 1 || sources.size() != 1)
      fail(ErrorCode::bad_format, "a batch_input needs one target_name and one source_input");
    b.target = targets[0], b.source = sources[0];
    b.dtype = dtype_of(*n, cat("batch_input '", b.target, "'"));
    if (b.dtype != DType::i32 && b.dtype != DType::f32)
      fail(ErrorCode::bad_type, cat("batch_input '", b.target, "' is TYPE_INT32 or TYPE_FP32"));
    if (!c.input(b.source))
      fail(ErrorCode::bad_name,
           cat("batch_input '", b.target, "' refers to the unknown input '", b.source, "'"));
    c.batch_inputs.push_back(std::move(b));
  }
  for (const Node* n : tree.messages("batch_output")) {
    const auto targets = n->strings("target_name"), sources = n->strings("source_input");
    if (sources.size() != 1 || targets.empty())
      fail(ErrorCode::bad_format, "a batch_output needs target_name and one source_input");
    for (const std::string& target : targets) {
      if (!c.output(target) || !c.input(sources[0]))
        fail(ErrorCode::bad_name,
             cat("batch_output '", target, "' with source '", sources[0], "' names no output and input"));
      c.batch_outputs.push_back({target, sources[0]});
    }
  }
}

std::vector<RateNeed> read_rate_needs(const Node& tree) {
  std::vector<RateNeed> out;
  bool any = false;
  for (const Node* g : tree.messages("instance_group")) {
    RateNeed need;
    if (const Node* r = g->message("rate_limiter")) {
      any = true;
      need.priority = std::max<uint32_t>(1, static_cast<uint32_t>(r->integer("priority")));
      for (const Node* res : r->messages("resources")) {
        need.resources.push_back(
            {res->string("name"), res->boolean("global"), static_cast<uint32_t>(res->integer("count"))});
        if (need.resources.back().name.empty() || need.resources.back().count == 0)
          fail(ErrorCode::bad_format, "a rate_limiter resource needs a name and a count");
      }
    }
    const int64_t count = (g->has("count") ? g->integer("count") : 1) *
                          std::max<int64_t>(1, static_cast<int64_t>(g->integers("gpus").size()));
    for (int64_t i = 0; i < count; ++i) out.push_back(need);
  }
  return any ? out : std::vector<RateNeed>();
}

bool is_added_tensor(const Node& tree, std::string_view name) {
  if (const Node* s = tree.message("sequence_batching")) {
    for (const Node* c : s->messages("control_input"))
      if (c->string("name") == name) return true;
    for (const Node* st : s->messages("state"))
      if (st->string("input_name") == name || st->string("output_name") == name) return true;
  }
  for (const Node* b : tree.messages("batch_input"))
    for (const std::string& t : b->strings("target_name"))
      if (t == name) return true;
  return false;
}

std::vector<ModelConfig::EngineTensor> ModelConfig::engine_inputs() const {
  std::vector<EngineTensor> out;
  for (const TensorSpec& t : inputs) {
    out.push_back({t, false});
    if (t.ragged && !t.padding) {  // joined flat
      out.back().flat = true;
      out.back().spec.dims = {-1};
      out.back().spec.reshape.reset();
    }
  }
  auto add = [&](const std::string& name, DType dtype, Dims dims, bool flat) {
    TensorSpec t;
    t.name = name, t.dtype = dtype, t.dims = std::move(dims);
    out.push_back({std::move(t), flat});
  };
  if (sequence) {
    for (const ControlInput& c : sequence->controls) add(c.name, c.dtype, {1}, false);
    for (const StateSpec& s : sequence->states) add(s.input, s.dtype, s.dims, false);
  }
  for (const BatchInput& b : batch_inputs) add(b.target, b.dtype, batch_input_dims(*this, b), true);
  return out;
}

std::vector<ModelConfig::EngineTensor> ModelConfig::engine_outputs() const {
  std::vector<EngineTensor> out;
  for (const TensorSpec& t : outputs) {
    const bool scattered = std::any_of(batch_outputs.begin(), batch_outputs.end(),
                                       [&](const BatchOutput& b) { return b.target == t.name; });
    out.push_back({t, scattered});
    if (scattered) out.back().spec.dims = {-1}, out.back().spec.reshape.reset();
  }
  if (sequence)
    for (const StateSpec& s : sequence->states) {
      if (output(s.output)) continue;
      TensorSpec t;
      t.name = s.output, t.dtype = s.dtype, t.dims = s.dims;
      out.push_back({std::move(t), false});
    }
  return out;
}

}  // namespace pelton::serve
