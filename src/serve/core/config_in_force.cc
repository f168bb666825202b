// SPDX-License-Identifier: Apache-2.0
// The configuration that clients are shown: what the folder says, and the choices made where it says nothing.
#include "base/error.h"
#include "serve/core/model_config.h"

namespace pelton::serve {
namespace {

void set_default(Node& n, std::string_view field, Scalar value) {
  if (!n.has(field)) n.set(field, std::move(value));
}

// Groups with their names, kinds, counts and GPUs; one where there is none.
void fill_groups(Node& tree, const ModelConfig& c) {
  std::vector<std::unique_ptr<Node>> groups;
  for (const Node* g : tree.messages("instance_group")) groups.push_back(g->clone());
  tree.erase("instance_group");
  const Field& field = *tree.type().find("instance_group");
  if (groups.empty()) groups.push_back(std::make_unique<Node>(*field.message));
  for (size_t i = 0; i < groups.size(); ++i) {
    Node& g = tree.add_message(field);
    g = std::move(*groups[i]);
    set_default(g, "name", cat(c.name, "_", i));
    set_default(g, "count", int64_t{1});
    const std::string kind = g.enum_name("kind");
    const bool listed = g.has("gpus");
    if (kind == "KIND_AUTO") g.set("kind", std::string(listed || !c.gpus.empty() ? "KIND_GPU" : "KIND_CPU"));
    if (listed || (kind != "KIND_AUTO" && kind != "KIND_GPU")) continue;
    for (int gpu : c.gpus) g.add(*g.type().find("gpus"), int64_t{gpu});
  }
}

}  // namespace

std::string platform_in_force(const ModelConfig& c) {
  if (!c.platform.empty()) return c.platform;
  return c.backend == "onnxruntime" ? "onnxruntime_onnx" : "";
}

std::unique_ptr<Node> config_in_force(const ModelConfig& c) {
  auto tree = c.tree->clone();
  if (const std::string platform = platform_in_force(c); !platform.empty()) tree->set("platform", platform);
  if (!tree->has("version_policy"))
    tree->message_for("version_policy").message_for("latest").set("num_versions", uint64_t{1});
  if (!c.model_file.empty()) set_default(*tree, "default_model_filename", c.model_file);
  Node& optimization = tree->message_for("optimization");
  set_default(optimization, "priority", std::string("PRIORITY_DEFAULT"));
  for (const char* pinned : {"input_pinned_memory", "output_pinned_memory"})
    set_default(optimization.message_for(pinned), "enable", true);
  if (c.batching) {
    Node& batching = tree->message_for("dynamic_batching");
    if (!batching.has("preferred_batch_size"))
      batching.add(*batching.type().find("preferred_batch_size"), c.max_batch);
  }
  if (c.steps.empty())
    fill_groups(*tree, c);
  else
    set_default(tree->message_for("model_transaction_policy"), "decoupled", false);
  return tree;
}

}  // namespace pelton::serve
