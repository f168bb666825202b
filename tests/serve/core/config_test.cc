// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "serve/core/model_config.h"
#include "support/expect_error.h"

namespace pelton::serve {
namespace {

std::string message_of(const std::string& text, bool typed = true) {
  try {
    std::shared_ptr<const Node> tree = parse_config_text(text, "m/config.pbtxt");
    if (typed) read_model_config(tree);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

constexpr const char* kFull = R"(
# a comment
name: "m" backend: 'identity'
max_batch_size: 8
input [ { name: "a" data_type: TYPE_FP32 dims: [ 3, -1 ] }, < name: "b", data_type: 13; dims: 0x10 > ]
output: [ { name: "o" data_type: TYPE_FP32 dims: [ 3 ] dims: -1 reshape { shape: [ -1, 3 ] } label_filename: "l" ".txt" } ]
version_policy: { specific: { versions: [ 1, 3 ] } }
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100
  priority_levels: 2 default_priority_level: 2
  priority_queue_policy { key: 1 value: { timeout_action: DELAY max_queue_size: 7 } } }
parameters { key: "k" value { string_value: "v\n\x41\101" } }
)";

}  // namespace

TEST_CASE("the text form is read in all of its spellings") {
  const ModelConfig c = read_model_config(parse_config_text(kFull, "m"));
  CHECK(c.max_batch == 8);
  REQUIRE(c.inputs.size() == 2);
  CHECK(c.inputs[0].dims == Dims{3, -1});
  CHECK(c.inputs[1].dtype == DType::string);
  CHECK(c.inputs[1].dims == Dims{16});
  CHECK(c.outputs[0].dims == Dims{3, -1});
  CHECK(*c.outputs[0].reshape == Dims{-1, 3});
  CHECK(c.outputs[0].label_file == "l.txt");
  CHECK(c.versions.specific == std::vector<int64_t>{1, 3});
  CHECK(c.instances == 2);
  REQUIRE(c.batching);
  CHECK(c.batching->preferred == std::vector<int64_t>{4, 8});
  CHECK(c.batching->priority_policies.at(1).delay_on_timeout);
  CHECK(c.batching->priority_policies.at(1).max_queue_size == 7);
  CHECK(c.parameters.at("k") == "v\nAA");
}

TEST_CASE("text, JSON and text again are the same configuration") {
  const auto tree = parse_config_text(kFull, "m");
  const auto from_json = parse_config_json(config_to_json(*tree), "m");
  CHECK(config_to_json(*from_json) == config_to_json(*tree));
  CHECK(config_to_text(*parse_config_text(config_to_text(*tree), "m")) == config_to_text(*tree));
  CHECK(config_to_wire(*tree->clone()) == config_to_wire(*tree));
  CHECK(parse_config_json(R"({"maxBatchSize": "4"})", "m")->integer("max_batch_size") == 4);
}

TEST_CASE("what is wrong is named with its place") {
  CHECK(message_of("max_batch: 8") ==
        "unknown field 'max_batch' in ModelConfig (m/config.pbtxt:1:1): did you mean 'max_batch_size'?");
  CHECK(message_of("name: \"a\"\nname: \"b\"").find("field 'name' is given twice (m/config.pbtxt:2:10)") !=
        std::string::npos);
  CHECK(message_of("max_batch_size: x").find("'x' is not a value for field 'max_batch_size'") !=
        std::string::npos);
  CHECK(message_of("max_batch_size: 99999999999").find("32 bits") != std::string::npos);
  CHECK(message_of("max_batch_size: -1").find("max_batch_size -1 is negative") != std::string::npos);
  CHECK(message_of("input { data_type: TYPE_F32 }").find("one of TYPE_INVALID") != std::string::npos);
  CHECK(message_of("input { name: \"a\"").find("missing '}'") != std::string::npos);
  CHECK(message_of("name: \"a").find("not closed") != std::string::npos);
  CHECK(message_of("name: [\"a\"]").find("takes one value") != std::string::npos);
  CHECK(message_of("dynamic_batching { } sequence_batching { }").find("exclude each other") !=
        std::string::npos);
  CHECK(message_of("dynamic_batching { }").find("needs max_batch_size") != std::string::npos);
  CHECK(message_of("input { name: \"a\" data_type: TYPE_FP32 dims: 0 }").find("dimension 0") !=
        std::string::npos);
  CHECK(message_of("max_batch_size: 4 dynamic_batching { preferred_batch_size: 5 }")
            .find("preferred_batch_size 5 is outside 1 to max_batch_size 4") != std::string::npos);
  CHECK(message_of("instance_group { count: 1000 }").find("1000 instances") != std::string::npos);
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "parameters { value { ";
  CHECK(message_of(deep).find("unknown field") != std::string::npos);
}

TEST_CASE("fields that are not built are refused by name, their defaults are not") {
  for (const char* text :
       {"instance_group { passive: true }", "instance_group { profile: \"x\" }",
        "model_operations { op_library_filename: \"x\" }",
        "model_repository_agents { agents { name: \"checksum\" } }",
        "cc_model_filenames { key: \"7.5\" value: \"x\" }",
        "input { name: \"a\" data_type: TYPE_FP32 dims: 1 is_shape_tensor: true }",
        "model_metrics { metric_control { metric_identifier { family: \"other\" } } }",
        "optimization { execution_accelerators { gpu_execution_accelerator { name: \"x\" } } }"})
    CHECK_MESSAGE(message_of(text).find("is not supported") != std::string::npos, text);
  CHECK(message_of("response_cache { enable: false } model_transaction_policy { decoupled: false } "
                   "instance_group { passive: false }") == "accepted");
  for (const char* engine : {"optimization { cuda { graphs: true } }", "optimization { graph { level: 1 } }",
                             "optimization { priority: PRIORITY_MIN }"}) {
    const ModelConfig c = read_model_config(parse_config_text(cat("backend: \"b\" ", engine), "m"));
    std::string asked;
    check_engine_fields(c, [&](std::string_view field) { return asked = field, true; });
    CHECK_MESSAGE(cat(engine).find(asked.substr(asked.rfind('.') + 1)) != std::string::npos, asked);
    pelton::test::expect_error(ErrorCode::unsupported_op, {asked.c_str(), "is not supported by backend 'b'"},
                               [&] { check_engine_fields(c, [](std::string_view) { return false; }); });
  }
  CHECK(message_of("optimization { input_pinned_memory { enable: true } }") == "accepted");
  CHECK(message_of("optimization { input_pinned_memory { } }").find("is not supported with false") !=
        std::string::npos);
}

}  // namespace pelton::serve
