// SPDX-License-Identifier: Apache-2.0
// Where the instances of a model run, from its instance groups and the GPUs that its engine can use.
#include <algorithm>

#include "base/error.h"
#include "serve/core/model_config.h"

namespace pelton::serve {
namespace {

std::string list(const std::vector<int>& numbers) {
  std::string out;
  for (int n : numbers) out += cat(out.empty() ? "" : ", ", n);
  return out;
}

}  // namespace

void place_instances(ModelConfig& c, const std::vector<int>& gpus) {
  using Kind = InstancePlace::Kind;
  std::vector<InstancePlace> places;
  std::vector<RateNeed> needs;
  for (size_t i = 0; i < c.places.size(); ++i) {
    const InstancePlace& p = c.places[i];
    std::vector<int> on;  // empty: the CPU
    if (p.gpu >= 0)
      on = {p.gpu};
    else if (p.kind == Kind::gpu || p.kind == Kind::automatic)
      on = gpus;
    for (int g : on)
      if (std::find(gpus.begin(), gpus.end(), g) == gpus.end())
        fail(ErrorCode::no_device,
             cat("instance_group asks for GPU ", g, ", but backend '", c.backend, "' ",
                 gpus.empty() ? std::string("has none to use") : cat("can use: ", list(gpus))),
             c.name, "set kind: KIND_CPU or KIND_AUTO");
    if (p.kind == Kind::gpu && on.empty())
      fail(ErrorCode::no_device,
           cat("instance_group asks for a GPU, but backend '", c.backend, "' has none to use"), c.name,
           "set kind: KIND_CPU or KIND_AUTO");
    for (size_t k = 0; k < std::max<size_t>(1, on.size()); ++k) {
      places.push_back({on.empty() ? Kind::cpu : Kind::gpu, on.empty() ? -1 : on[k], p.group});
      if (!c.rate_needs.empty()) needs.push_back(c.rate_needs[i]);
    }
  }
  if (places.size() > static_cast<size_t>(kMaxInstances))
    fail(ErrorCode::limit, cat("instance_group asks for ", places.size(), " instances, at most ",
                               kMaxInstances, " are allowed"));
  c.gpus = gpus;
  c.places = std::move(places);
  c.rate_needs = std::move(needs);
  c.instances = static_cast<int>(c.places.size());
}

}  // namespace pelton::serve
