// SPDX-License-Identifier: Apache-2.0
#include "serve/core/model_config.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace pelton::serve {
namespace {

// Fields that change what a model computes or how it is scheduled and that this server lacks. A dotted path
// descends through messages; a value equal to the default is no request and passes.
struct Refused {
  const char* path;
  const char* fix;
};
constexpr Refused kRefused[] = {
    {"model_repository_agents", "check the repository before it is served"},
    {"model_operations", "load plug-ins with --plugin"},
    {"ensemble_scheduling.step.model_namespace", "give models distinct names"},
    {"input.is_shape_tensor", "shape inputs are read from the model file"},
    {"input.is_non_linear_format_io", "store tensors in row-major layout"},
    {"output.is_shape_tensor", "shape outputs are read from the model file"},
    {"output.is_non_linear_format_io", "store tensors in row-major layout"},
    {"instance_group.secondary_devices", "remove the field"},
    {"instance_group.profile", "shapes are tuned by range at compile time"},
    {"instance_group.passive", "remove the group"},
    {"optimization.execution_accelerators", "the plan already holds the fastest kernels found"},
    {"cc_model_filenames", "use default_model_filename"},
    {"runtime", "remove the field: 'backend' says which engine runs the model"},
    {"instance_group.host_policy", "bind the process with taskset or a cpuset"},
    {"optimization.cuda.busy_wait_events", "remove the field"},
    {"optimization.cuda.graph_spec",
     "remove the field, and list the shapes under model_warmup: each is recorded when it first runs"},
    {"optimization.cuda.output_copy_stream", "remove the field"},
    {"optimization.gather_kernel_buffer_threshold", "remove the field: requests are joined on the host"},
    {"optimization.eager_batching", "remove the field: a batch is formed when an instance is free"},
    {"sequence_batching.state.use_same_buffer_for_input_output",
     "remove the field: a state goes on to the next request without a copy"},
    {"sequence_batching.state.use_growable_memory",
     "remove the field: a state has the memory that its last size needs"},
};

bool is_default(const Item& i) {
  if (i.message) return i.message->items().empty() && i.field->card == Card::single && i.field->oneof.empty();
  if (i.field->card == Card::repeated) return false;
  return std::visit([](const auto& v) { return v == std::decay_t<decltype(v)>{}; }, i.scalar);
}

bool path_is_set(const Node& node, std::string_view path) {
  const size_t dot = path.find('.');
  const std::string_view head = path.substr(0, dot);
  for (const Item& i : node.items()) {
    if (i.field->name != head) continue;
    if (dot == path.npos ? !is_default(i) : i.message && path_is_set(*i.message, path.substr(dot + 1)))
      return true;
  }
  return false;
}

DType read_dtype(const Node& n, std::string_view what) {
  auto t = dtype_from_config(n.enum_name("data_type"));
  if (!t) fail(ErrorCode::bad_type, cat(what, " '", n.string("name"), "' has no data_type"));
  return *t;
}

Dims check_dims(Dims dims, std::string_view what) {
  for (int64_t d : dims)
    if (d < -1 || d == 0)
      fail(ErrorCode::bad_shape,
           cat(what, " has the dimension ", d, "; dimensions are positive, or -1 for any"));
  return dims;
}

TensorSpec read_tensor(const Node& n, bool is_input) {
  TensorSpec t;
  t.name = n.string("name");
  const std::string what = cat(is_input ? "input" : "output", " '", t.name, "'");
  if (t.name.empty()) fail(ErrorCode::bad_name, cat("an ", is_input ? "input" : "output", " has no name"));
  t.dtype = read_dtype(n, is_input ? "input" : "output");
  t.dims = check_dims(n.integers("dims"), what);
  if (const Node* r = n.message("reshape")) {
    t.reshape = check_dims(r->integers("shape"), cat(what, " reshape"));
    auto from = checked_count(t.dims), to = checked_count(*t.reshape);
    if (from && to && *from != *to)
      fail(ErrorCode::bad_shape,
           cat(what, " reshapes ", t.dims, " to ", *t.reshape, ", which has another number of elements"));
    if (std::count(t.dims.begin(), t.dims.end(), -1) != std::count(t.reshape->begin(), t.reshape->end(), -1))
      fail(ErrorCode::bad_shape,
           cat(what, " reshapes ", t.dims, " to ", *t.reshape, ": both need the same number of -1"));
  }
  if (is_input) {
    const std::string format = n.enum_name("format");
    if ((format == "FORMAT_NHWC" || format == "FORMAT_NCHW") && t.dims.size() != 3)
      fail(ErrorCode::bad_shape, cat(what, " of format ", format, " has ", t.dims.size(), " dims, not 3"));
    t.optional = n.boolean("optional");
    t.ragged = n.boolean("allow_ragged_batch");
  } else {
    t.label_file = n.string("label_filename");
  }
  return t;
}

QueuePolicy read_policy(const Node& n) {
  QueuePolicy p;
  p.delay_on_timeout = n.enum_name("timeout_action") == "DELAY";
  p.default_timeout_us = static_cast<uint64_t>(n.integer("default_timeout_microseconds"));
  p.allow_override = n.boolean("allow_timeout_override");
  p.max_queue_size = static_cast<uint32_t>(n.integer("max_queue_size"));
  return p;
}

BatchingConfig read_batching(const Node& n, int64_t max_batch) {
  BatchingConfig b;
  b.preferred = n.integers("preferred_batch_size");
  std::sort(b.preferred.begin(), b.preferred.end());
  for (int64_t p : b.preferred)
    if (p < 1 || p > max_batch)
      fail(ErrorCode::bad_format,
           cat("preferred_batch_size ", p, " is outside 1 to max_batch_size ", max_batch));
  b.max_delay_us = static_cast<uint64_t>(n.integer("max_queue_delay_microseconds"));
  b.preserve_ordering = n.boolean("preserve_ordering");
  b.priority_levels = static_cast<uint64_t>(n.integer("priority_levels"));
  b.default_priority = static_cast<uint64_t>(n.integer("default_priority_level"));
  if (b.priority_levels > 1024)
    fail(ErrorCode::limit, cat("priority_levels ", b.priority_levels, " is above 1024"));
  if (b.priority_levels && (b.default_priority < 1 || b.default_priority > b.priority_levels))
    fail(ErrorCode::bad_format, cat("default_priority_level ", b.default_priority,
                                    " is outside 1 to priority_levels ", b.priority_levels));
  if (const Node* p = n.message("default_queue_policy")) b.default_policy = read_policy(*p);
  for (const Node* e : n.messages("priority_queue_policy")) {
    const auto level = static_cast<uint64_t>(e->integer("key"));
    if (level < 1 || level > b.priority_levels)
      fail(ErrorCode::bad_format, cat("priority_queue_policy for level ", level,
                                      " is outside 1 to priority_levels ", b.priority_levels));
    if (const Node* p = e->message("value")) b.priority_policies[level] = read_policy(*p);
  }
  return b;
}

EnsembleStep read_step(const Node& n) {
  EnsembleStep s;
  s.model = n.string("model_name");
  s.version = n.has("model_version") ? n.integer("model_version") : -1;
  s.inputs = read_config_map(n, "input_map");
  s.outputs = read_config_map(n, "output_map");
  if (s.model.empty()) fail(ErrorCode::bad_format, "an ensemble step has no model_name");
  if (s.inputs.empty() || s.outputs.empty())
    fail(ErrorCode::bad_format, cat("ensemble step '", s.model, "' needs input_map and output_map"));
  return s;
}

WarmupSample read_warmup(const Node& n) {
  WarmupSample w;
  w.name = n.string("name");
  w.batch = n.integer("batch_size");
  w.count = n.integer("count") == 0 ? 1u : static_cast<uint32_t>(n.integer("count"));
  if (w.count > 100000)
    fail(ErrorCode::limit, cat("model_warmup '", w.name, "' count ", w.count, " is above 100000"));
  for (const Node* e : n.messages("inputs")) {
    WarmupInput in;
    in.name = e->string("key");
    const Node* v = e->message("value");
    if (!v)
      fail(ErrorCode::bad_format, cat("model_warmup '", w.name, "' input '", in.name, "' has no value"));
    auto t = dtype_from_config(v->enum_name("data_type"));
    if (!t)
      fail(ErrorCode::bad_type, cat("model_warmup '", w.name, "' input '", in.name, "' has no data_type"));
    in.dtype = *t;
    in.dims = v->integers("dims");
    auto count = checked_count(in.dims);
    if (!count || *count > kMaxConfigTensor)
      fail(ErrorCode::bad_shape,
           cat("model_warmup '", w.name, "' input '", in.name, "' has unusable dims ", in.dims));
    in.file = v->string("input_data_file");
    in.source = !in.file.empty()            ? WarmupInput::Source::file
                : v->boolean("random_data") ? WarmupInput::Source::random
                                            : WarmupInput::Source::zero;
    w.inputs.push_back(std::move(in));
  }
  return w;
}

VersionPolicy read_versions(const Node& n) {
  VersionPolicy p;
  if (n.message("all")) p.kind = VersionPolicy::Kind::all;
  if (const Node* s = n.message("specific"))
    p.kind = VersionPolicy::Kind::specific, p.specific = s->integers("versions");
  if (const Node* l = n.message("latest"))
    p.latest = std::max<uint32_t>(1, static_cast<uint32_t>(l->integer("num_versions")));
  return p;
}

void read_model_metrics(const Node& tree, ModelConfig& c) {
  const Node* metrics = tree.message("model_metrics");
  if (!metrics) return;
  for (const Node* control : metrics->messages("metric_control")) {
    const Node* id = control->message("metric_identifier");
    const std::string family = id ? id->string("family") : "";
    if (family != "nv_inference_first_response_histogram_ms")
      fail(ErrorCode::unsupported_op, cat("model_metrics for '", family, "' is not supported"), "",
           "buckets of nv_inference_first_response_histogram_ms can be chosen");
    const Node* options = control->message("histogram_options");
    if (!options) continue;
    c.first_response_buckets_ms = options->reals("buckets");
    if (!std::is_sorted(c.first_response_buckets_ms.begin(), c.first_response_buckets_ms.end()))
      fail(ErrorCode::bad_format, "the buckets of model_metrics are not in ascending order");
    if (c.first_response_buckets_ms.size() > 64)
      fail(ErrorCode::limit, "model_metrics has more than 64 buckets");
  }
}

std::vector<InstancePlace> read_places(const Node& tree) {
  using Kind = InstancePlace::Kind;
  std::vector<InstancePlace> places;
  const auto groups = tree.messages("instance_group");
  for (const Node* g : groups) {
    const int64_t count = g->has("count") ? g->integer("count") : 1;
    if (count < 1) fail(ErrorCode::bad_format, cat("instance_group.count ", count, " is not positive"));
    const std::string kind = g->enum_name("kind");
    InstancePlace p;
    p.group = g->string("name");
    if (kind == "KIND_GPU") p.kind = Kind::gpu;
    if (kind == "KIND_CPU") p.kind = Kind::cpu;
    if (kind == "KIND_MODEL") p.kind = Kind::model;
    const std::vector<int64_t> gpus = g->integers("gpus");
    if (!gpus.empty() && (p.kind == Kind::cpu || p.kind == Kind::model))
      fail(ErrorCode::bad_format, cat("instance_group of kind ", kind, " lists gpus"));
    for (int64_t gpu : gpus)
      if (gpu < 0 || gpu > 1023) fail(ErrorCode::bad_format, cat("instance_group.gpus holds ", gpu));
    const auto all =
        static_cast<int64_t>(places.size()) + count * std::max<int64_t>(1, static_cast<int64_t>(gpus.size()));
    if (count > kMaxInstances || all > kMaxInstances)
      fail(ErrorCode::limit, cat("instance_group asks for ", std::max(count, all), " instances, at most ",
                                 kMaxInstances, " are allowed"));
    for (int64_t i = 0; i < count; ++i) {
      if (gpus.empty()) places.push_back(p);
      for (int64_t gpu : gpus) places.push_back({Kind::gpu, static_cast<int>(gpu), p.group});
    }
  }
  if (groups.empty()) places.push_back({});
  return places;
}

Optimization read_optimization(const Node& tree) {
  Optimization out;
  const Node* n = tree.message("optimization");
  if (!n) return out;
  for (const char* field : {"input_pinned_memory", "output_pinned_memory"})
    if (const Node* p = n->message(field); p && !p->boolean("enable"))
      fail(ErrorCode::unsupported_op, cat("field 'optimization.", field, "' is not supported with false"), "",
           "remove the field: small tensors reach a GPU through pinned memory");
  const std::string priority = n->enum_name("priority");
  if (priority == "PRIORITY_MAX") out.priority = Priority::high;
  if (priority == "PRIORITY_MIN") out.priority = Priority::low;
  if (const Node* g = n->message("graph")) out.graph_level = g->integer("level");
  return out;
}

void check_unique(const std::vector<TensorSpec>& specs, std::string_view what) {
  std::set<std::string> names;
  for (const TensorSpec& t : specs)
    if (!names.insert(t.name).second)
      fail(ErrorCode::bad_name, cat(what, " '", t.name, "' is declared twice"));
}

}  // namespace

std::map<std::string, std::string> read_config_map(const Node& n, std::string_view field) {
  std::map<std::string, std::string> out;
  for (const Node* e : n.messages(field)) {
    const Field* value = e->type().find("value");
    std::string text = value->kind != Kind::message ? e->string("value")
                       : e->message("value")        ? e->message("value")->string("string_value")
                                                    : "";
    if (!out.emplace(e->string("key"), std::move(text)).second)
      fail(ErrorCode::bad_format, cat("key '", e->string("key"), "' appears twice in ", field));
  }
  return out;
}

const TensorSpec* ModelConfig::input(std::string_view name) const {
  for (const TensorSpec& t : inputs)
    if (t.name == name) return &t;
  return nullptr;
}
const TensorSpec* ModelConfig::output(std::string_view name) const {
  for (const TensorSpec& t : outputs)
    if (t.name == name) return &t;
  return nullptr;
}

void check_engine_fields(const ModelConfig& c, const std::function<bool(std::string_view)>& honours) {
  // What an engine may do: the field, and what to say where it does not.
  constexpr Refused kOfEngines[] = {
      {"optimization.graph", "remove the field: plans are optimized in full when they are compiled"},
      {"optimization.cuda.graphs", "remove the field"},
      {"optimization.priority", "remove the field"},
  };
  for (const Refused& r : kOfEngines)
    if (path_is_set(*c.tree, r.path) && !honours(r.path))
      fail(ErrorCode::unsupported_op,
           cat("field '", r.path, "' is not supported ",
               c.backend.empty() ? std::string("for ensembles") : cat("by backend '", c.backend, "'")),
           "", r.fix);
}

ModelConfig read_model_config(std::shared_ptr<const Node> tree) {
  const Node& n = *tree;
  for (const Refused& r : kRefused)
    if (path_is_set(n, r.path))
      fail(ErrorCode::unsupported_op, cat("field '", r.path, "' is not supported"), "", r.fix);

  ModelConfig c;
  c.name = n.string("name");
  c.platform = n.string("platform");
  c.backend = n.string("backend");
  c.default_file = n.string("default_model_filename");
  c.max_batch = n.integer("max_batch_size");
  if (c.max_batch < 0) fail(ErrorCode::bad_format, cat("max_batch_size ", c.max_batch, " is negative"));
  for (const Node* t : n.messages("input")) c.inputs.push_back(read_tensor(*t, true));
  for (const Node* t : n.messages("output")) c.outputs.push_back(read_tensor(*t, false));
  check_unique(c.inputs, "input");
  check_unique(c.outputs, "output");
  if (const Node* v = n.message("version_policy")) c.versions = read_versions(*v);
  c.places = read_places(n);
  c.instances = static_cast<int>(c.places.size());
  if (const Node* b = n.message("dynamic_batching")) {
    if (c.max_batch == 0) fail(ErrorCode::bad_format, "dynamic_batching needs max_batch_size of at least 1");
    c.batching = read_batching(*b, c.max_batch);
  }
  if (const Node* p = n.message("model_transaction_policy")) c.decoupled = p->boolean("decoupled");
  if (const Node* s = n.message("sequence_batching"))
    c.sequence = read_sequence_config(*s, read_config_map(n, "parameters"), c.max_batch);
  read_ragged_config(n, c);
  c.rate_needs = read_rate_needs(n);
  c.optimization = read_optimization(n);
  if (const Node* r = n.message("response_cache")) c.cached = r->boolean("enable");
  if (c.cached && (c.decoupled || c.sequence))
    fail(ErrorCode::bad_format, "response_cache cannot be used with sequences or a decoupled model");
  read_model_metrics(n, c);
  if (const Node* e = n.message("ensemble_scheduling")) {
    for (const Node* s : e->messages("step")) c.steps.push_back(read_step(*s));
    c.max_inflight = static_cast<uint32_t>(e->integer("max_inflight_requests"));
    if (c.steps.empty()) fail(ErrorCode::bad_format, "ensemble_scheduling has no step");
  }
  if (c.platform == "ensemble" && c.steps.empty())
    fail(ErrorCode::bad_format, "an ensemble needs ensemble_scheduling");
  for (const Node* w : n.messages("model_warmup")) c.warmups.push_back(read_warmup(*w));
  c.parameters = read_config_map(n, "parameters");
  c.metric_tags = read_config_map(n, "metric_tags");
  c.tree = std::move(tree);
  return c;
}

}  // namespace pelton::serve
