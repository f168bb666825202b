// SPDX-License-Identifier: Apache-2.0
// What a run goes on from.
#include <charconv>

#include "base/hash.h"
#include "data/pipeline_impl.h"

namespace pelton::data {

PipelineState Pipeline::state() const {
  const Impl& m = *impl_;
  const bool at_end = m.step == m.core->order.steps();
  const OrderOptions& o = m.core->order.options();
  const std::string order =
      checksum(cat(o.batch, " ", o.shards, " ", o.shard, " ", static_cast<int>(o.last), " ", o.stick))
          .str()
          .substr(0, 8);
  return {at_end ? m.epoch + 1 : m.epoch, at_end ? 0 : m.step, cat(m.parts.identity, "-", order)};
}

void Pipeline::restore(const PipelineState& s) {
  Impl& m = *impl_;
  const std::string mine = state().fingerprint, where = m.core->maker.spec().name;
  if (s.fingerprint.substr(0, 16) != mine.substr(0, 16))
    fail(ErrorCode::usage,
         "the saved state belongs to another pipeline: description, seed or source have changed", where,
         "resume with the pipeline it was saved from");
  if (s.step != 0 && s.fingerprint != mine)
    fail(ErrorCode::usage,
         "the saved state is in the middle of an epoch, which batch size, shards and last-batch policy must "
         "not change",
         where, "resume with the same ones, or from the end of an epoch");
  if (s.epoch < 0 || s.epoch > int64_t{1} << 53 || s.step < 0 || s.step >= m.core->order.steps())
    fail(ErrorCode::usage,
         cat("the saved state names epoch ", s.epoch, ", step ", s.step, " of ", m.core->order.steps()),
         where);
  m.core->drain();
  m.core->reopen();
  m.works.clear();
  m.epoch = m.next_epoch = s.epoch;
  m.step = m.next_step = s.step;
}

std::string PipelineState::str() const {
  return cat("1 ", epoch, " ", step, " ", fingerprint);
}

PipelineState PipelineState::parse(const std::string& text) {
  PipelineState s;
  int64_t version = 0;
  const char *at = text.data(), *end = at + text.size();
  for (int64_t* v : {&version, &s.epoch, &s.step}) {
    auto r = std::from_chars(at, end, *v);
    if (r.ec != std::errc() || r.ptr == end || *r.ptr != ' ')
      fail(ErrorCode::bad_format, cat("'", text.substr(0, 80), "' is not a pipeline state"));
    at = r.ptr + 1;
  }
  if (version != 1)
    fail(ErrorCode::unsupported_version, cat("pipeline state version ", version, " is not known"));
  s.fingerprint.assign(at, end);
  return s;
}

}  // namespace pelton::data
