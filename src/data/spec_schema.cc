// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "data/ops/stage.h"
#include "data/source/source.h"
#include "data/spec.h"

namespace pelton::data {
namespace {

using Json = nlohmann::ordered_json;

Json value_of(const Param& p) {
  switch (p.kind) {
    case Param::Kind::number:
      return p.numbers[0];
    case Param::Kind::boolean:
      return p.numbers[0] != 0;
    case Param::Kind::text:
      return p.texts[0];
    case Param::Kind::numbers:
      return p.numbers;
    case Param::Kind::texts:
      return p.texts;
    case Param::Kind::uniform:
      return {{"uniform", p.numbers}};
    case Param::Kind::normal:
      return {{"normal", p.numbers}};
    case Param::Kind::choice:
      return {{"choice", p.numbers}};
    case Param::Kind::coin:
      return {{"coin", p.numbers[0]}};
    case Param::Kind::none:
      break;
  }
  return nullptr;
}

Json type_of(const OptionSpec& o) {
  Json t;
  const bool number =
      o.type == OptionType::number || o.type == OptionType::integer || o.type == OptionType::numbers;
  Json item;
  item["type"] = o.type == OptionType::boolean   ? "boolean"
                 : o.type == OptionType::integer ? "integer"
                 : number                        ? "number"
                                                 : "string";
  if (number && std::isfinite(o.min)) item["minimum"] = o.min;
  if (number && std::isfinite(o.max)) item["maximum"] = o.max;
  if (!o.choices.empty()) item["enum"] = o.choices;
  if (o.type == OptionType::numbers || o.type == OptionType::texts)
    t["anyOf"] = {item, {{"type", "array"}, {"items", item}}};
  else if (o.random)
    t["anyOf"] = {item, {{"$ref", "#/$defs/distribution"}}};
  else
    t = item;
  t["description"] = o.doc;
  if (o.fallback.kind != Param::Kind::none) t["default"] = value_of(o.fallback);
  return t;
}

Json object_of(const Schema& s, const char* key, Json extra) {
  Json out = {{"type", "object"}, {"description", s.doc}, {"additionalProperties", false}};
  Json required = {key};
  out["properties"][key] = {{"const", s.name}};
  for (auto& [name, value] : extra.items()) out["properties"][name] = value;
  for (const OptionSpec& o : s.options) {
    out["properties"][o.name] = type_of(o);
    if (o.fallback.kind == Param::Kind::none && !o.optional) required.push_back(o.name);
  }
  out["required"] = required;
  return out;
}

}  // namespace

std::string pipeline_schema_json() {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "Pelton pipeline"},
               {"type", "object"},
               {"required", {"version", "source"}},
               {"additionalProperties", false}};
  Json& p = root["properties"];
  p["version"] = {{"const", 1}};
  p["seed"] = {{"type", "integer"}, {"minimum", 0}, {"default", 0}};
  p["match"] = {{"enum", {"none", "pillow", "torchvision", "opencv"}},
                {"default", "none"},
                {"description", "give the same pixels as that library"}};
  p["bad_samples"] = {{"enum", {"skip", "replace", "raise", "mark"}}, {"default", "replace"}};
  p["bad_limit"] = {{"type", "number"},
                    {"minimum", 0},
                    {"maximum", 1},
                    {"default", 0.1},
                    {"description", "share of bad samples that stops the run"}};
  p["bucket"] = {{"type", "integer"},
                 {"minimum", 0},
                 {"default", 0},
                 {"description", "batches whose samples are sorted by stored size together; 0: off"}};
  p["source"] = {{"$ref", "#/$defs/source"}};
  p["stage"] = {{"type", "array"}, {"items", {{"$ref", "#/$defs/stage"}}}};
  const Json pair = {{"type", "array"}, {"items", {{"type", "number"}}}, {"minItems", 2}, {"maxItems", 2}};
  Json distributions = Json::array();
  auto distribution = [&](const char* name, Json value) {
    distributions.push_back({{"type", "object"},
                             {"properties", {{name, value}}},
                             {"required", Json::array({name})},
                             {"additionalProperties", false}});
  };
  distribution("uniform", pair);
  distribution("normal", pair);
  distribution("choice", {{"type", "array"}, {"items", {{"type", "number"}}}, {"minItems", 1}});
  distribution("coin", {{"type", "number"}, {"minimum", 0}, {"maximum", 1}});
  root["$defs"]["distribution"] = {{"description", "drawn once for each sample"}, {"anyOf", distributions}};
  Json sources = Json::array(), stages = Json::array();
  const Json shuffle = {
      {"shuffle",
       {{"type", "boolean"}, {"default", false}, {"description", "another random order in every epoch"}}},
      {"shuffle_window",
       {{"type", "integer"},
        {"minimum", 0},
        {"default", 0},
        {"description",
         "shuffle blocks of this many neighbours and within them, so that reading stays nearly in order; 0: "
         "all"}}}};
  for (const SourceKind& k : source_kinds()) sources.push_back(object_of(k.schema, "kind", shuffle));
  const Json parts = {{"type", "array"}, {"items", {{"$ref", "#/$defs/source"}}}, {"minItems", 1}};
  Json concat = object_of({"concat", "all parts one after another", {}}, "kind", shuffle);
  concat["properties"]["sources"] = parts;
  Json mix = object_of({"mix",
                        "parts by weight",
                        {{"weights", OptionType::numbers, {}, "one for each part", 0},
                         {"count", OptionType::integer, {}, "samples an epoch", 1}}},
                       "kind", shuffle);
  mix["properties"]["sources"] = parts;
  sources.push_back(concat);
  sources.push_back(mix);
  const Json common = {
      {"device",
       {{"enum", {"cpu", "gpu"}},
        {"description",
         "cpu: on the host; gpu: within the training step on a GPU, or an error; unset: wherever it can"}}},
      {"when", {{"enum", {"train", "eval"}}, {"description", "in that form of the pipeline only"}}}};
  for (const StageKind& k : stage_kinds()) stages.push_back(object_of(k.schema, "op", common));
  root["$defs"]["source"]["oneOf"] = sources;
  root["$defs"]["stage"]["oneOf"] = stages;
  return root.dump(1) + "\n";
}

}  // namespace pelton::data
