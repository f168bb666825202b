// SPDX-License-Identifier: Apache-2.0
#include "train/loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/lower.h"

namespace pelton::train {

using data::Pipeline;

namespace {

// The same rows, then zeros.
Tensor padded(const Tensor& t, int64_t rows) {
  if (t.dims()[0] == rows) return t;
  Dims dims = t.dims();
  dims[0] = rows;
  Tensor out = Tensor::zeros(t.dtype(), dims);
  std::memcpy(out.mutable_data(), t.data(), static_cast<size_t>(t.bytes()));
  return out;
}

std::string field_list(const data::Batch& b) {
  std::string out;
  for (const auto& [name, t] : b.fields) append(out, cat(out.empty() ? "" : ", ", name, " ", t.str()));
  return out;
}

Dims sample_dims(const Tensor& t) {
  return Dims(t.dims().begin() + 1, t.dims().end());
}

constexpr const char* kLabelNames[] = {"label", "labels", "y", "target"};

bool is_label(const std::string& name) {
  return std::find(std::begin(kLabelNames), std::end(kLabelNames), name) != std::end(kLabelNames);
}

// The data's own name for an input, or the one field that is no label.
std::string find_field(const data::Batch& b, const std::string& wanted, bool only) {
  if (b.find(wanted)) return wanted;
  std::string found;
  for (const auto& [name, t] : b.fields) {
    if (is_label(name) || name.ends_with(".size")) continue;
    if (!found.empty()) only = false;
    found = name;
  }
  if (only && !found.empty()) return found;
  fail(ErrorCode::bad_name, cat("the data has no field for the model's input '", wanted, "'"),
       cat("fields: ", field_list(b)), cat("name one of them '", wanted, "'"));
}

bool fits(const Dims& have, const Dims& want) {
  if (have == want) return true;
  bool rotated = want.size() == 3 && have == Dims{want[1], want[2], want[0]};
  return rotated || element_count(have) == element_count(want);
}

}  // namespace

Loader::Loader(std::unique_ptr<Pipeline> pipeline, Wanted wanted, int64_t rows)
    : pipeline_(std::move(pipeline)), wanted_(std::move(wanted)), rows_(rows) {
  data::PipelineState start = pipeline_->state();
  data::Batch first;
  if (!pipeline_->next(first))
    fail(ErrorCode::not_found, "the data holds no samples", pipeline_->spec().name);
  first.bring_to_host();
  pipeline_->restore(start);
  const std::string where = cat("data of ", pipeline_->spec().name);
  in_step_ = !pipeline_->graph_part().stages.empty();
  for (const nn::ModelInput& in : wanted_.inputs) {
    fields_.push_back(find_field(first, in.name, wanted_.inputs.size() == 1));
    const Tensor& t = first.at(fields_.back());
    const Dims sample = finished(fields_.back(), t);
    if (!fits(sample, in.sample))
      fail(ErrorCode::bad_shape,
           cat("a sample of field '", fields_.back(), "' is ", sample, ", the model's input '", in.name,
               "' takes ", in.sample),
           where, "change the model's options, or resize and crop in the pipeline");
    if (t.dtype() == DType::string || (is_int(in.dtype) && is_float(t.dtype())))
      fail(ErrorCode::bad_type,
           cat("field '", fields_.back(), "' is ", t.str(), ", the model takes ", in.dtype), where);
  }
  for (const char* name : kLabelNames)
    if (target_field_.empty() && first.find(name)) target_field_ = name;
  if (target_field_.empty() && wanted_.target == "label")
    fail(ErrorCode::bad_name, "the data has no labels", cat(where, ", fields: ", field_list(first)),
         "name the label's field 'label'");
  if (wanted_.target == "label") {
    const Tensor& t = first.at(target_field_);
    soft_ = wanted_.soft && is_float(t.dtype()) && shares_of_classes(t);
  }
}

// Dims of a sample as the model sees it: behind the stages that the step holds.
Dims Loader::finished(const std::string& field, const Tensor& t) const {
  if (!in_step_ || field != pipeline_->graph_field()) return sample_dims(t);
  ir::Graph probe;
  const auto given = probe.add_input(ir::Type::tensor(t.dtype(), to_shape(t.dims())), field);
  const auto epoch = probe.add_input(ir::Type::tensor(DType::i64, {}), "epoch");
  const auto indices = probe.add_input(ir::Type::tensor(DType::i64, {t.dims()[0]}), "indices");
  ir::Builder b(probe);
  const ir::ValueId made = data::lower_training(b, pipeline_->graph_part(), given, epoch, indices);
  const Shape& shape = b.shape(made);
  return *as_dims(Shape(shape.begin() + 1, shape.end()));
}

// One share for each class of a model with one label a sample.
bool Loader::shares_of_classes(const Tensor& t) const {
  return wanted_.classes > 0 && wanted_.target_sample.empty() && sample_dims(t) == Dims{wanted_.classes};
}

std::vector<std::optional<InputForm>> Loader::forms(const std::vector<double>& mean,
                                                    const std::vector<double>& std) const {
  std::vector<std::optional<InputForm>> out;
  data::PipelineState start = pipeline_->state();
  data::Batch first;
  pipeline_->next(first);
  first.bring_to_host();
  pipeline_->restore(start);
  for (size_t i = 0; i < fields_.size(); ++i) {
    const nn::ModelInput& in = wanted_.inputs[i];
    const Tensor& t = first.at(fields_[i]);
    const bool in_step = in_step_ && fields_[i] == pipeline_->graph_field();
    bool normalised = !mean.empty() && in.dtype == DType::f32;
    if (normalised && (in.sample.empty() || static_cast<int64_t>(mean.size()) != in.sample[0]))
      fail(ErrorCode::bad_shape, cat("data.mean has ", mean.size(), " numbers for samples of ", in.sample));
    if (t.dtype() == in.dtype && sample_dims(t) == in.sample && !normalised && !in_step) {
      out.emplace_back();
      continue;
    }
    InputForm form{t.dtype(), sample_dims(t), {}, {}, {}};
    if (in_step) form.stages = pipeline_->graph_part();
    if (normalised) form.mean = mean, form.std = std;
    out.emplace_back(std::move(form));
  }
  return out;
}

Tensor Loader::label_rows(const data::Batch& batch, const Tensor& given) const {
  Tensor t = given;
  if (is_float(t.dtype()) && shares_of_classes(t)) {  // counts as its largest class
    const std::vector<double> shares = to_doubles(t);
    std::vector<int64_t> largest;
    for (auto row = shares.begin(); row != shares.end(); row += wanted_.classes)
      largest.push_back(std::max_element(row, row + wanted_.classes) - row);
    t = Tensor::from<int64_t>({std::ssize(largest)}, largest);
  }
  if (is_float(t.dtype()))
    fail(ErrorCode::bad_type,
         cat("labels are ", t.str(), ", expected whole numbers, or a share for each of ", wanted_.classes,
             " classes"),
         pipeline_->spec().name);
  std::vector<int64_t> labels = to_ints(t);
  int64_t row = t.dims()[0] ? t.count() / t.dims()[0] : 1;
  for (size_t i = 0; i < labels.size(); ++i) {
    size_t sample = i / static_cast<size_t>(std::max<int64_t>(row, 1));
    if (sample < batch.valid.size() && !batch.valid[sample]) labels[i] = wanted_.ignore;
    if (labels[i] == wanted_.ignore || wanted_.classes == 0) continue;
    if (labels[i] < 0 || labels[i] >= wanted_.classes)
      fail(ErrorCode::bad_format, cat("label ", labels[i], " is outside 0 .. ", wanted_.classes - 1),
           cat("sample ", batch.indices[sample], " of ", pipeline_->spec().name),
           "set the model's number of classes, or step.ignore to the label that marks what does not count");
  }
  return from_ints(DType::i64, t.dims(), labels);
}

bool Loader::next(TrainBatch& out) {
  data::Batch batch;
  if (!pipeline_->next(batch)) return false;
  out.inputs.clear();
  out.on_device.clear();
  out.valid = batch.count() - batch.padding;
  if (target_field_.empty() || batch.count() != rows_) batch.bring_to_host();
  for (const std::string& field : fields_) {
    if (const data::DeviceField* there = batch.find_on_device(field)) {
      out.on_device[out.inputs.size()] = *there;
      out.inputs.emplace_back();
    } else {
      out.inputs.push_back(padded(batch.at(field), rows_));
    }
  }
  if (in_step_) {
    out.inputs.push_back(Tensor::scalar<int64_t>(batch.epoch));
    out.inputs.push_back(padded(Tensor::from<int64_t>({batch.count()}, batch.indices), rows_));
  }
  Tensor target = target_field_.empty() ? batch.at(fields_[0]) : batch.at(target_field_);
  if (wanted_.target == "label" && !soft_)
    target = label_rows(batch, target);
  else if (target.dtype() != DType::f32)
    target = from_doubles(DType::f32, target.dims(), to_doubles(target));
  Dims dims = soft_ ? Dims{wanted_.classes} : wanted_.target_sample;
  dims.insert(dims.begin(), target.dims()[0]);
  if (target.dims() != dims) {
    if (element_count(dims) != target.count())
      fail(
          ErrorCode::bad_shape,
          cat("a ", wanted_.target, " is ", sample_dims(target), ", the model needs ", wanted_.target_sample),
          pipeline_->spec().name);
    target = target.reshaped(dims);
  }
  out.target = padded(target, rows_);
  return true;
}

Loaders make_loaders(const Recipe& r, const Wanted& wanted, const std::shared_ptr<device::Device>& device) {
  const DataRecipe& d = r.data;
  int64_t eval_rows = d.eval_batch ? d.eval_batch : d.batch;
  data::RunOptions train_options{.batch = d.batch, .for_graph = true, .device = device, .on_device = true};
  if (d.drop_last) train_options.last = data::LastBatch::drop;
  data::RunOptions eval_options{.batch = eval_rows, .evaluation = true, .device = device};
  data::PipelineSpec spec;
  std::shared_ptr<const data::Source> source, eval_source;
  if (d.train) {
    spec = *d.train;
  } else if (!d.tokens.empty()) {
    spec.name = d.tokens[0];
    spec.seed = r.seed;
    spec.source.shuffle = true;
    if (wanted.inputs.size() != 1 || wanted.inputs[0].sample.size() != 1)
      fail(ErrorCode::usage, "data.tokens is for models of one line of tokens", r.name);
    int64_t length = wanted.inputs[0].sample[0];
    source = token_source(d.tokens, d.token_type, length, d.token_stride ? d.token_stride : length);
    if (!d.eval_tokens.empty()) eval_source = token_source(d.eval_tokens, d.token_type, length, length);
  } else {
    spec.name = "synthetic";
    spec.seed = r.seed;
    std::vector<double> dims(d.synthetic.begin(), d.synthetic.end());
    bool floats = !wanted.inputs.empty() && is_float(wanted.inputs[0].dtype);
    spec.source = {"synthetic",
                   {{"dims", dims},
                    {"count", static_cast<double>(d.synthetic_count)},
                    {"dtype", std::string(floats ? "f32" : "u8")},
                    {"class_count", static_cast<double>(std::max<int64_t>(wanted.classes, 1))}},
                   {},
                   true};
  }
  auto pipeline = [](const data::PipelineSpec& s, std::shared_ptr<const data::Source> from,
                     const data::RunOptions& o) {
    return from ? std::make_unique<Pipeline>(s, std::move(from), o) : std::make_unique<Pipeline>(s, o);
  };
  Loaders out;
  if (d.holdout > 0) {
    // Which samples are held out depends on the seed and their number alone.
    if (!source && !spec.source.parts.empty())
      fail(ErrorCode::usage, cat("data.holdout does not split a source of kind ", spec.source.kind), r.name,
           "name data.eval instead");
    if (!source) source = data::make_source(spec.source.kind, spec.source.options, spec.folder, spec.name);
    int64_t n = source->size(), held = std::llround(static_cast<double>(n) * d.holdout);
    if (held < 1 || held >= n)
      fail(ErrorCode::usage, cat("data.holdout of ", d.holdout, " leaves ", n - held, " of ", n, " samples"),
           r.name);
    data::Permutation order(r.seed, 0x686F6C64, n);
    std::vector<int64_t> kept, out_of;
    for (int64_t i = 0; i < n; ++i) (i < held ? out_of : kept).push_back(order(i));
    std::sort(kept.begin(), kept.end());
    std::sort(out_of.begin(), out_of.end());
    eval_source = subset(source, out_of, cat("held out ", d.holdout));
    source = subset(source, kept, cat("kept ", d.holdout));
  }
  Wanted for_training = wanted;
  for_training.soft = true;  // evaluation counts classes
  out.train = std::make_unique<Loader>(pipeline(spec, source, train_options), for_training, d.batch);
  if (out.train->needs_whole()) {
    train_options.for_graph = false;
    out.train.reset();  // and what it has cached
    out.train = std::make_unique<Loader>(pipeline(spec, source, train_options), for_training, d.batch);
  }
  data::PipelineSpec eval_spec = d.eval ? *d.eval : spec;
  eval_spec.source.shuffle = false;
  if (d.eval || eval_source)
    out.eval = std::make_unique<Loader>(pipeline(eval_spec, eval_source, eval_options), wanted, eval_rows);
  return out;
}

}  // namespace pelton::train
