// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <mutex>

#include "base/thread_pool.h"
#include "data/stages.h"
#include "data/tools/tools.h"

namespace pelton::data {

VerifyResult verify_samples(const Pipeline& p, const std::function<void(int64_t)>& progress) {
  PipelineSpec spec = p.spec();  // every sample is made once
  std::erase_if(spec.stages, [](const StageSpec& s) { return s.op == "cache"; });
  const SampleMaker maker(std::move(spec),
                          std::shared_ptr<const Source>(std::shared_ptr<void>(), &p.source()));
  VerifyResult r;
  r.samples = p.source().size();
  std::mutex mutex;
  std::map<int64_t, int64_t> labels;
  parallel_for(0, r.samples, 1, [&](int64_t index, int64_t) {
    std::string op, place;
    try {
      Sample s = maker.make(index, 0, &op);
      place = s.origin.str();
      if (s.image) {
        op = "decode";
        s.image->pixels();
      }
      if (Tensor* label = s.find("label"); label && label->count() == 1 && is_int(label->dtype())) {
        std::lock_guard lock(mutex);
        ++labels[label->get_int(0)];
      }
    } catch (const Error& e) {
      if (e.code() == ErrorCode::usage || e.code() == ErrorCode::internal) throw;
      const std::string origin = e.where().empty() ? place : e.where();
      std::lock_guard lock(mutex);
      r.bad.push_back({0, 0, index, origin, op, e.message()});
    }
    progress(1);
  });
  std::ranges::sort(r.bad, {}, &BadSample::index);
  const auto classes = p.source().classes();
  for (auto [label, count] : labels)
    r.labels.emplace_back(label >= 0 && label < static_cast<int64_t>(classes.size())
                              ? classes[static_cast<size_t>(label)]
                              : cat(label),
                          count);
  return r;
}

}  // namespace pelton::data
