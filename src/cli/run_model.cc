// SPDX-License-Identifier: Apache-2.0
#include "cli/run_model.h"

#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "base/interrupt.h"
#include "cli/command.h"
#include "ir/verify.h"
#include "nn/model.h"
#include "train/trainer.h"

namespace pelton::cli {
namespace {

constexpr std::string_view kZoo = "zoo:";

template <class T>
bool parsed(std::string_view text, T& value) {
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
  return r.ec == std::errc() && r.ptr == text.data() + text.size();
}

// The value as the model's option has it. Lists cannot be spelled here.
ir::Attr option_value(const nn::ModelDef& model, std::string_view name, std::string_view text) {
  ir::AttrKind kind = ir::AttrKind::text;  // of an unknown name, which is refused with the model's options
  for (const ir::AttrDef& def : model.options)
    if (def.name == name) kind = def.kind;
  int64_t integer = 0;
  double real = 0;
  if (kind == ir::AttrKind::integer && parsed(text, integer)) return integer;
  if (kind == ir::AttrKind::real && parsed(text, real)) return real;
  if (kind == ir::AttrKind::boolean && (text == "true" || text == "false")) return text == "true";
  if (kind == ir::AttrKind::text) return std::string(text);
  fail(ErrorCode::usage, cat("option ", name, " of model ", model.name, " cannot be '", text, "'"), "",
       "pelton train --models lists the options");
}

Model zoo_model(std::string_view spec) {
  std::string_view rest = spec.substr(kZoo.size());
  auto next = [&] {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return part;
  };
  const nn::ModelDef& def = nn::find_model(next());
  ir::Attrs given;
  while (!rest.empty()) {
    const std::string_view part = next();
    const size_t equals = part.find('=');
    if (equals == part.npos)
      fail(ErrorCode::usage, cat("'", part, "' is no OPTION=VALUE"), std::string(spec),
           "write zoo:NAME,OPTION=VALUE,...");
    given[std::string(part.substr(0, equals))] =
        option_value(def, part.substr(0, equals), part.substr(equals + 1));
  }
  Model model;
  model.format = "zoo";
  model.name = spec;
  model.graph = nn::build_model(def, nn::ModelOptions(def, given), Dim::symbol("N")).graph;
  nn::freeze(model.graph);
  return model;
}

}  // namespace

bool is_zoo(std::string_view name) {
  return name.starts_with(kZoo);
}

bool is_plan_file(const std::string& name) {
  return !is_zoo(name) && !folder_exists(name) && kind_of_file(name) == FileKind::plan;
}

Model model_of(const std::string& name, const CompileOptions& options) {
  Model model;
  if (is_zoo(name)) {
    model = zoo_model(name);
  } else if (!folder_exists(name)) {
    model = load_model(name, options);
    throw_if_interrupted();
    return model;
  } else {
    if (!train::is_run_folder(name))
      fail(ErrorCode::bad_format, "the folder holds no training run", name,
           "name a model file, or the folder of a run");
    train::TrainedModel trained = train::trained_model(name);
    model.format = "run";
    model.name = trained.name;
    model.graph = std::move(trained.graph);
  }
  ir::verify(model.graph, model.format);
  throw_if_interrupted();
  return model;
}

std::shared_ptr<const runtime::Plan> plan_of(const std::string& name, const device::Target& target,
                                             const CompileOptions& options) {
  if (is_plan_file(name)) return open_plan(name, target, options);
  return std::make_shared<runtime::Plan>(compile_model(model_of(name, options), target, options));
}

void require_output(const std::string& output, const std::string& input) {
  std::error_code absent;
  if (std::filesystem::equivalent(output, input, absent))
    throw Misuse{cat("'", output, "' is the file that is read"), "give --output another name"};
  const AtomicFile probe(output);
}

}  // namespace pelton::cli
