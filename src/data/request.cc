// SPDX-License-Identifier: Apache-2.0
#include "data/request.h"

#include "data/evaluation.h"
#include "data/ops/stage.h"
#include "ir/ops/picture.h"

namespace pelton::data {
namespace {

class Reader final : public runtime::PictureReader {
 public:
  explicit Reader(const PipelineSpec& spec) {
    const Match match = ir::match_from_name(spec.match).value_or(Match::none);
    for (size_t i = 0; i < spec.stages.size(); ++i) {
      const StageSpec& s = spec.stages[i];
      const std::string where = stage_place(spec, i);
      const StageKind& kind = stage_kind(s.op, where);
      const Args args(kind.schema, s.options, where);
      if (s.op == "decode") field_ = args.text("field");
      stages_.push_back(kind.make(args, match));
    }
  }

  Tensor read(std::string_view file) const override {
    Sample s;
    s.set(field_, Tensor::borrow(DType::u8, {static_cast<int64_t>(file.size())}, file.data(), nullptr));
    const Draw draw(0, 0, 0, 0);  // an evaluation form draws nothing
    for (const StageFn& stage : stages_) stage(s, draw);
    LazyImage& picture = s.picture();
    Tensor out(s.format.dtype, picture.dims(s.format));
    picture.finish(s.format, out.mutable_data());
    return out;
  }

 private:
  std::vector<StageFn> stages_;
  std::string field_ = "image";
};

}  // namespace

PipelineSpec request_form(const PipelineSpec& given) {
  PipelineSpec spec = evaluation_form(given);
  std::erase_if(spec.stages, [](const StageSpec& s) { return leaves_picture(s.op); });
  for (StageSpec& s : spec.stages) s.options.erase("device");
  spec.source = {};
  spec.source.kind = "request";
  return spec;
}

std::string pipeline_text(const PipelineSpec& spec) {
  std::string out = cat("version = ", spec.version, "\nmatch = \"", spec.match, "\"\nsource = { kind = \"",
                        spec.source.kind, "\" }\n");
  for (const StageSpec& s : spec.stages) {
    append(out, cat("[[stage]]\nop = \"", s.op, "\"\n"));
    for (const auto& [key, value] : s.options) append(out, cat(key, " = ", value.str(), "\n"));
  }
  return out;
}

std::unique_ptr<const runtime::PictureReader> make_picture_reader(const runtime::Preprocess& p) {
  return std::make_unique<Reader>(request_form(parse_pipeline(p.pipeline, p.name, "")));
}

}  // namespace pelton::data
