// SPDX-License-Identifier: Apache-2.0
#include "serve/core/model.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "serve/core/sequence.h"

namespace pelton::serve {
namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
    at = end + 1;
  }
  return lines;
}

std::string names_of(const std::vector<TensorSpec>& specs) {
  constexpr size_t kShown = 16;
  std::string out;
  for (size_t i = 0; i < std::min(specs.size(), kShown); ++i) out += cat(i ? ", '" : "'", specs[i].name, "'");
  return specs.size() > kShown ? out + ", ..." : out;
}

// Kernels take a byte of a boolean for 0 or 1.
bool has_other_than_flags(const Blob& b) {
  unsigned char all = 0;
  for (size_t i = 0; i < b.size; ++i) all |= static_cast<unsigned char>(b.data[i]);
  return all > 1;
}

// dims against a pattern in which -1 takes anything.
bool matches(const int64_t* dims, size_t n, const Dims& pattern) {
  if (n != pattern.size()) return false;
  for (size_t i = 0; i < n; ++i)
    if (pattern[i] != -1 && pattern[i] != dims[i]) return false;
  return true;
}

// `dims` of shape `from` rewritten to shape `to`: the k-th -1 keeps its value, `lead` dimensions stay in
// front.
void apply_reshape(Dims& dims, size_t lead, const Dims& from, const Dims& to) {
  std::vector<int64_t> wild;
  for (size_t i = 0; i < from.size() && lead + i < dims.size(); ++i)
    if (from[i] == -1) wild.push_back(dims[lead + i]);
  Dims out(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(std::min(lead, dims.size())));
  size_t k = 0;
  for (int64_t d : to) out.push_back(d == -1 && k < wild.size() ? wild[k++] : d);
  dims = std::move(out);
}

}  // namespace

Dims client_dims(const ModelConfig& config, const TensorSpec& spec) {
  Dims d;
  if (config.max_batch > 0) d.push_back(-1);
  d.insert(d.end(), spec.dims.begin(), spec.dims.end());
  return d;
}

Model::Model(ModelConfig config, int64_t version, const ModelDir& dir, std::shared_ptr<ModelStats> stats,
             std::shared_ptr<Tracer> tracer)
    : config_(std::move(config)),
      version_(version),
      version_text_(cat(version)),
      stats_(std::move(stats)),
      tracer_(std::move(tracer)) {
  static std::atomic<uint64_t> loads{0};
  load_ = ++loads;
  stats_->configure(config_.metric_tags, config_.decoupled, config_.first_response_buckets_ms);
  for (const TensorSpec& o : config_.outputs)
    if (!o.label_file.empty()) labels_[o.name] = split_lines(dir.read(o.label_file, 16 << 20));
}

Model::Model(ModelConfig config, int64_t version, const ModelDir& dir, std::shared_ptr<Engine> engine,
             std::shared_ptr<ModelStats> stats, Limits limits)
    : Model(std::move(config), version, dir, std::move(stats), limits.tracer) {
  cache_ = config_.cached ? limits.cache : nullptr;
  if (!cache_) limits.cache = nullptr;
  if (config_.sequence)
    scheduler_ =
        std::make_unique<SequenceScheduler>(config_, dir, std::move(engine), stats_, limits, finisher());
  else
    scheduler_ = std::make_unique<InstanceScheduler>(config_, std::move(engine), stats_, limits, finisher());
}

bool Model::answer_from_cache(RequestPtr& request) const {
  request->cache_key = ResponseCache::key(*request, load_);
  auto found = cache_->find(request->cache_key);
  if (!found) return false;
  const auto now = Clock::now();
  request->enqueued = request->compute_start = request->input_end = request->infer_end =
      request->compute_end = now;
  request->cache_key.clear();
  Response response;
  response.outputs = std::move(*found);
  try {
    finish(*request, response);
    stats_->record_success(*request, now);
    stats_->record_cache(true, ns_between(request->arrival, Clock::now()));
  } catch (const Error& e) {
    stats_->record_failure(fail_reason(e.code()), ns_between(request->arrival, now));
    response.outputs.clear();
    response.error = e;
  }
  RequestPtr answered = std::move(request);
  answered->respond(std::move(response));
  return true;
}

FinishResponse Model::finisher() const {
  return [this](const Request& request, Response& response) { finish(request, response); };
}

void Model::infer(RequestPtr request) const {
  request->target = shared_from_this();
  request->model = config_.name;
  request->version = version_text_;
  try {
    check(*request);
  } catch (const Error& e) {
    stats_->record_failure(fail_reason(e.code()), ns_between(request->arrival, Clock::now()));
    return request->respond(e);
  }
  if (tracer_ && request->counted && (request->parent_trace || tracer_->active())) tracer_->begin(*request);
  if (cache_ && request->counted && answer_from_cache(request)) return;
  scheduler_->submit(std::move(request));
}

void Model::check(Request& request) const {
  const std::string& m = config_.name;
  const bool batched = config_.max_batch > 0;
  request.rows = 1;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    TensorValue& t = request.inputs[i];
    const TensorSpec* spec = config_.input(t.name);
    if (!spec)
      fail(ErrorCode::bad_name, cat("unexpected inference input '", t.name, "' for model '", m, "'"), "",
           cat("it has ", names_of(config_.inputs)));
    for (size_t j = 0; j < i; ++j)
      if (request.inputs[j].name == t.name)
        fail(ErrorCode::bad_name, cat("input '", t.name, "' for model '", m, "' is given twice"));
    if (t.dtype != spec->dtype)
      fail(ErrorCode::bad_type, cat("input '", t.name, "' for model '", m, "' has data type ",
                                    wire_name(t.dtype), ", expected ", wire_name(spec->dtype)));
    const auto count = checked_count(t.dims);
    const size_t lead = batched ? 1 : 0;
    if (!count || t.dims.size() < lead || !matches(t.dims.data() + lead, t.dims.size() - lead, spec->dims))
      fail(ErrorCode::bad_shape, cat("unexpected shape for input '", t.name, "' for model '", m,
                                     "': expected ", client_dims(config_, *spec), ", got ", t.dims));
    if (t.dtype == DType::string) {
      const auto elements = bytes_elements(t.data.data, t.data.size);
      if (!elements)
        fail(ErrorCode::bad_format,
             cat("input '", t.name, "' for model '", m, "': a BYTES element runs past the end of its ",
                 t.data.size, " bytes"));
      if (*elements != *count)
        fail(ErrorCode::bad_shape, cat("input '", t.name, "' for model '", m, "' holds ", *elements,
                                       " BYTES elements, shape ", t.dims, " needs ", *count));
    } else if (t.dtype == DType::boolean && has_other_than_flags(t.data)) {
      fail(ErrorCode::bad_format,
           cat("input '", t.name, "' for model '", m, "' of type BOOL holds a byte that is neither 0 nor 1"));
    } else if (int64_t need = 0;
               __builtin_mul_overflow(*count, static_cast<int64_t>(bits(t.dtype) / 8), &need) ||
               static_cast<uint64_t>(need) != t.data.size) {
      fail(ErrorCode::bad_shape, cat("input '", t.name, "' for model '", m, "' holds ", t.data.size,
                                     " bytes, shape ", t.dims, " of ", wire_name(t.dtype), " needs ",
                                     need > 0 || *count == 0 ? cat(need) : "more than 2^63"));
    }
    if (batched) {
      const int64_t rows = t.dims[0];
      if (rows < 1 || rows > config_.max_batch)
        fail(ErrorCode::bad_shape,
             cat("batch size ", rows, " for model '", m, "' is outside 1 to ", config_.max_batch));
      if (i > 0 && rows != request.rows)
        fail(ErrorCode::bad_shape, cat("input '", t.name, "' for model '", m, "' has batch size ", rows,
                                       ", the inputs before it ", request.rows));
      request.rows = rows;
    }
    if (spec->reshape) apply_reshape(t.dims, lead, spec->dims, *spec->reshape);
  }
  size_t required = 0;
  for (const TensorSpec& spec : config_.inputs) {
    if (spec.optional) continue;
    ++required;
    if (!request.input(spec.name))
      fail(ErrorCode::bad_name,
           cat("expected ", config_.inputs.size(), " inputs but got ", request.inputs.size(),
               " inputs for model '", m, "': '", spec.name, "' is missing"));
  }
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const RequestedOutput& o = request.outputs[i];
    if (!config_.output(o.name))
      fail(ErrorCode::bad_name, cat("unexpected inference output '", o.name, "' for model '", m, "'"), "",
           cat("it has ", names_of(config_.outputs)));
    for (size_t j = 0; j < i; ++j)  // else a small request could ask for an answer of any size
      if (request.outputs[j].name == o.name)
        fail(ErrorCode::bad_name, cat("output '", o.name, "' for model '", m, "' is asked for twice"));
    if (o.classes < 0)
      fail(ErrorCode::bad_format,
           cat("classification of output '", o.name, "' asks for ", o.classes, " classes"));
  }
}

void Model::finish(const Request& request, Response& response) const {
  response.model = config_.name;
  response.version = version_text_;
  const size_t lead = config_.max_batch > 0 ? 1 : 0;
  for (TensorValue& t : response.outputs) {
    const TensorSpec* spec = config_.output(t.name);
    if (!spec)
      fail(ErrorCode::internal,
           cat("the engine returned an output '", t.name, "' that the configuration lacks"), config_.name);
    if (spec->reshape) apply_reshape(t.dims, lead, *spec->reshape, spec->dims);
  }
  if (request.outputs.empty()) return;
  std::vector<TensorValue> picked;
  for (const RequestedOutput& o : request.outputs) {
    auto it = std::find_if(response.outputs.begin(), response.outputs.end(),
                           [&](const TensorValue& t) { return t.name == o.name; });
    if (it == response.outputs.end())
      fail(ErrorCode::internal, cat("the engine did not return output '", o.name, "'"), config_.name);
    if (o.classes > 0) {
      static const std::vector<std::string> kNone;
      auto labels = labels_.find(o.name);
      picked.push_back(classify(*it, o.classes, lead > 0, labels == labels_.end() ? kNone : labels->second));
    } else {
      picked.push_back(*it);
    }
  }
  response.outputs = std::move(picked);
}

}  // namespace pelton::serve
