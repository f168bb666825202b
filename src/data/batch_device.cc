// SPDX-License-Identifier: Apache-2.0
// The device's part of a batch: its decoder's jobs, and the field "image" brought together on one side.
#include "data/batch_builder.h"

namespace pelton::data {

std::optional<size_t> BatchBuilder::picture_row() const {
  for (size_t i = 0; i < plan_.size(); ++i)
    if (plan_[i].name == "image") return i;
  return {};
}

std::vector<int64_t> BatchBuilder::run_jobs(device::PictureDecoder& decoder) {
  if (left_.empty()) return {};
  const size_t row = *picture_row(), bytes = slot_bytes(row);
  if (!device_) device_ = pool_->get_on_device(static_cast<size_t>(count_) * bytes);
  there_.resize(static_cast<size_t>(count_), 0);
  device::PictureForm form;
  const PixelFormat& f = left_format_;
  const Dims& dims = plan_[row].dims;
  form.channels_first = f.channels_first;
  form.channels = picture_channels(f, dims);
  form.height = static_cast<int>(dims[f.channels_first ? 1 : 0]);
  form.width = static_cast<int>(dims[f.channels_first ? 2 : 1]);
  form.dtype = f.dtype;
  form.mean = f.mean;
  form.scale = f.scale;
  std::vector<device::PictureJob> jobs;
  for (Left& l : left_) {
    l.job.out = device_.get() + static_cast<size_t>(l.slot) * bytes;
    jobs.push_back(std::move(l.job));
  }
  std::vector<uint8_t> taken(jobs.size(), 0);
  decoder.run(jobs, form, taken);
  std::vector<int64_t> not_taken;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const int64_t slot = left_[i].slot;
    if (!taken[i]) {
      not_taken.push_back(slot);
      continue;
    }
    there_[static_cast<size_t>(slot)] = 1;
    decoded_ += !jobs[i].file.empty();
    left_[i].picture.kept();
  }
  left_.clear();
  return not_taken;
}

void BatchBuilder::gather(device::Stream& stream, const std::vector<uint8_t>& blank, bool on_device) {
  const auto row = picture_row();
  if (!row) return;
  const size_t bytes = slot_bytes(*row);
  there_.resize(static_cast<size_t>(count_), 0);
  for (const Loose& l : loose_)
    if (l.name == "image") on_device = false;
  if (!on_device && !device_) return;
  if (!device_) device_ = pool_->get_on_device(static_cast<size_t>(count_) * bytes);
  for (size_t i = 0; i < static_cast<size_t>(count_); ++i) {
    uint8_t *there = device_.get() + i * bytes, *here = buffers_[*row].get() + i * bytes;
    const auto size = static_cast<int64_t>(bytes);
    if (on_device && blank[i]) {
      stream.fill(there, 0, size);
    } else if (on_device && !there_[i]) {
      stream.upload(there, here, size);
    } else if (!on_device && there_[i]) {
      stream.download(here, there, size);
      filled_[*row][i] = 1;
    }
  }
  stream.synchronize();
  stays_ = on_device;
}

}  // namespace pelton::data
