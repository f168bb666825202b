// SPDX-License-Identifier: Apache-2.0
#include "runtime/state_layout.h"

#include <map>
#include <tuple>

#include "ir/segments.h"

namespace pelton::runtime {

using namespace ir;

namespace {

int64_t rounded_up(int64_t bytes, int64_t to) {
  return (bytes + to - 1) / to * to;
}

// By value that a node of segments makes: which of the results of its segment it is.
std::map<ValueId, int> results_in_segments(const Graph& g) {
  std::map<ValueId, int> out;
  for (NodeId id : g.order()) {
    if (!g[id].is("fused") || g[id].get_int("segments") == 0) continue;
    const std::vector<ValueId>& values = g[id].outputs;
    const auto segments = static_cast<size_t>(g[id].get_int("segments"));
    for (size_t i = 0; i < values.size(); ++i)
      out[values[i]] = static_cast<int>(i % (values.size() / segments));
  }
  return out;
}

}  // namespace

std::vector<StateBuffer> lay_out_state(const Graph& g, int64_t shards) {
  const std::map<ValueId, int> result = results_in_segments(g);
  // Kind, type, whether it changes, the node that writes it in segments (none: -1), as which of its results
  using Key = std::tuple<SlotKind, DType, bool, int64_t, int>;
  std::map<Key, size_t> known;
  std::vector<StateBuffer> out;
  for (size_t i = 0; i < g.slots.size(); ++i) {
    const Slot& s = g.slots[i];
    const std::optional<Dims> dims = s.type.is_tensor() ? as_dims(s.type.shape) : std::nullopt;
    if (!dims || dims->empty() || !s.tied_to.empty() || s.type.dtype == DType::string) continue;
    Key key{s.kind, s.type.dtype, s.next && s.next != s.old_value, -1, 0};
    if (auto it = s.next ? result.find(s.next) : result.end(); it != result.end()) {
      std::get<3>(key) = g[s.next].producer.index;
      std::get<4>(key) = it->second;
    }
    auto [it, fresh] = known.emplace(key, out.size());
    if (fresh) out.push_back({s.kind, s.type.dtype, std::get<2>(key), {}, 0});
    StateBuffer& b = out[it->second];
    const int64_t bytes = physical_bytes(s.type, *dims);
    b.segments.push_back({i, b.bytes, bytes});
    b.bytes += rounded_up(bytes, kStateAlignment);
  }
  for (StateBuffer& b : out) b.bytes = rounded_up(b.bytes, kStateAlignment * shards);
  return out;
}

}  // namespace pelton::runtime
