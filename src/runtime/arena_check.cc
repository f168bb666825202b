// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "ir/custom.h"
#include "runtime/arena.h"
#include "runtime/region.h"

namespace pelton::runtime {
namespace {

using namespace ir;

// A stretch of the arena in use by one value, or as scratch, from `writer` to all `readers`.
struct Tenant {
  int64_t offset = 0, bytes = 0;
  int writer = -1;
  std::vector<int> readers;
  std::string what;
};

}  // namespace

void check_memory(const Program& p, const Region& region) {
  const Graph& g = region.graph();
  // In a stretch run in slices a value that also steps outside use is in use from its start to its end.
  auto root = [&](const Ref& r) { return region.value(r.value).root.index; };
  std::map<uint32_t, bool> outside;
  for (size_t s = 0; s < p.steps.size(); ++s)
    for (uint32_t i = p.steps[s].first_in; i < p.steps[s].first_out + p.steps[s].out_count; ++i)
      if (p.refs[i].place == Place::arena) outside[root(p.refs[i])] |= !p.slices.holds(s);
  std::map<uint32_t, Tenant> values;
  std::vector<Tenant> tenants;
  for (size_t s = 0; s < p.steps.size(); ++s) {
    const Step& step = p.steps[s];
    auto number = static_cast<int>(s);
    if (step.scratch_bytes > 0)
      tenants.push_back({step.scratch_offset, step.scratch_bytes, number, {}, "scratch"});
    for (uint32_t i = 0; i < step.in_count + step.out_count; ++i) {
      bool input = i < step.in_count;
      const Ref& r = p.refs[input ? step.first_in + i : step.first_out + i - step.in_count];
      if (r.place != Place::arena) continue;
      Tenant& t = values[root(r)];
      const bool crosses = p.slices.holds(s) && outside[root(r)];
      PELTON_CHECK(r.slice_bytes == 0 || (crosses && r.slice_bytes * p.slices.count == r.bytes),
                   g.label(r.value), " has slices of ", r.slice_bytes, " bytes");
      if (input) {
        PELTON_CHECK(t.writer >= 0 && p.order.before(t.writer, number), g.describe(step.node), " reads ",
                     g.label(r.value), " before it is written");
        PELTON_CHECK(t.offset == r.offset && r.bytes <= t.bytes, g.label(r.value), " moved in the arena");
        t.readers.push_back(crosses ? static_cast<int>(p.slices.last) - 1 : number);
      } else {
        PELTON_CHECK(t.writer < 0, g.label(r.value), " is written twice");
        t = {r.offset, r.bytes, crosses ? static_cast<int>(p.slices.first) : number, {}, g.label(r.value)};
      }
    }
  }
  for (auto& [root, t] : values) tenants.push_back(std::move(t));
  std::erase_if(tenants, [](const Tenant& t) { return t.bytes == 0; });
  std::sort(tenants.begin(), tenants.end(),
            [](const Tenant& a, const Tenant& b) { return a.offset < b.offset; });

  // The op lets its result lie in the bytes of every operand that lies there.
  auto writes_over = [&](const Step& step, int64_t offset) {
    for (uint32_t i = 0; i < step.in_count; ++i)
      if (const Ref& r = p.refs[step.first_in + i];
          r.place == Place::arena && r.offset == offset && !in_place(g[step.node], r.value))
        return false;
    return in_place(g[step.node]);
  };
  auto over_before = [&](const Tenant& a, const Tenant& b) {
    if (!p.order.before(a.writer, b.writer)) return false;
    return std::all_of(a.readers.begin(), a.readers.end(), [&](int r) {
      if (p.order.before(r, b.writer)) return true;
      const Step& step = p.steps[static_cast<size_t>(r)];
      return r == b.writer && b.what != "scratch" && a.offset == b.offset && a.bytes == b.bytes &&
             step.kernel && writes_over(step, a.offset);
    });
  };
  for (size_t i = 0; i < tenants.size(); ++i) {
    const Tenant& a = tenants[i];
    PELTON_CHECK(a.offset >= 0 && a.offset % kArenaAlignment == 0 && a.offset + a.bytes <= p.arena_bytes,
                 a.what, " lies at ", a.offset, " of an arena of ", p.arena_bytes, " bytes");
    for (size_t j = i + 1; j < tenants.size() && tenants[j].offset < a.offset + a.bytes; ++j) {
      const Tenant& b = tenants[j];
      PELTON_CHECK(over_before(a, b) || over_before(b, a), a.what, " and ", b.what,
                   " share arena bytes while both are in use");
    }
  }
}

}  // namespace pelton::runtime
