// SPDX-License-Identifier: Apache-2.0
#include "data/batch_builder.h"

#include <algorithm>
#include <cstring>

namespace pelton::data {
namespace {

constexpr size_t kPastCaches = 16 << 20;  // bytes of a batch that is out of the caches before it is read

// Copies `from` into the low corner of `to` (same rank, dims at least as large).
void place(const Tensor& from, uint8_t* to, const Dims& dims) {
  copy_block(static_cast<const uint8_t*>(from.data()), from.dims(), to, dims, from.dims(),
             static_cast<size_t>(bits(from.dtype()) / 8));
}

}  // namespace

void copy_block(const uint8_t* from, const Dims& from_dims, uint8_t* to, const Dims& to_dims,
                const Dims& block, size_t element) {
  const int64_t count = element_count(block);
  if (count == 0) return;
  if (block == from_dims && block == to_dims) {
    std::memcpy(to, from, static_cast<size_t>(count) * element);
    return;
  }
  const size_t rank = block.size();
  const Dims in = row_major_strides(from_dims), out = row_major_strides(to_dims);
  std::vector<int64_t> at(rank, 0);
  for (int64_t lines = count / block[rank - 1]; lines-- > 0;) {
    int64_t source = 0, target = 0;
    for (size_t k = 0; k + 1 < rank; ++k) source += at[k] * in[k], target += at[k] * out[k];
    std::memcpy(to + static_cast<size_t>(target) * element, from + static_cast<size_t>(source) * element,
                static_cast<size_t>(block[rank - 1]) * element);
    for (size_t k = rank - 1; k-- > 0 && ++at[k] == block[k];) at[k] = 0;
  }
}

int picture_channels(const PixelFormat& format, const Dims& dims) {
  return static_cast<int>(dims[format.channels_first ? 0 : 2]);
}

const Tensor* Batch::find(std::string_view name) const {
  for (const auto& [key, value] : fields)
    if (key == name) return &value;
  return nullptr;
}

const DeviceField* Batch::find_on_device(std::string_view name) const {
  for (const DeviceField& f : on_device)
    if (f.name == name) return &f;
  return nullptr;
}

void Batch::bring_to_host() {
  for (const DeviceField& f : on_device) fields.emplace_back(f.name, f.to_host());
  on_device.clear();
}

Tensor DeviceField::to_host() const {
  Tensor out(dtype, dims);
  device->activate();
  const auto stream = device->make_stream();
  stream->download(out.mutable_data(), memory.get(), out.bytes());
  stream->synchronize();
  return out;
}

const Tensor& Batch::at(std::string_view name) const {
  if (const Tensor* t = find(name)) return *t;
  if (find_on_device(name))
    fail(ErrorCode::usage, cat("field '", name, "' lies on the device"), "",
         "read it through Batch::find_on_device(), or leave RunOptions::on_device out");
  std::string have;
  for (const auto& f : fields) append(have, cat(have.empty() ? "" : ", ", f.first));
  for (const auto& f : on_device) append(have, cat(have.empty() ? "" : ", ", f.name));
  fail(ErrorCode::bad_name, cat("the batch has no field '", name, "'"), "", cat("it has: ", have));
}

SamplePlan plan_of(const Sample& s) {
  SamplePlan plan;
  if (s.image) plan.push_back({"image", s.format.dtype, s.image->dims(s.format)});
  for (const auto& [name, t] : s.fields) plan.push_back({name, t.dtype(), t.dims()});
  return plan;
}

int64_t plan_bytes(const SamplePlan& plan) {
  int64_t bytes = 0;
  for (const FieldPlan& f : plan)
    if (f.dtype != DType::string) bytes += byte_size(f.dtype, element_count(f.dims));
  return bytes;
}

BatchBuilder::BatchBuilder(const SamplePlan& plan, int64_t count, std::shared_ptr<BufferPool> pool)
    : plan_(plan),
      count_(count),
      pool_(std::move(pool)),
      buffers_(plan.size()),
      filled_(plan.size()),
      texts_(plan.size()) {
  for (size_t i = 0; i < plan.size(); ++i) {
    filled_[i].assign(static_cast<size_t>(count), 0);
    if (plan[i].dtype == DType::string)
      texts_[i].resize(static_cast<size_t>(count));
    else
      buffers_[i] = pool_->get(static_cast<size_t>(
          std::max<int64_t>(1, count * byte_size(plan[i].dtype, element_count(plan[i].dims)))));
  }
}

void BatchBuilder::put(int64_t slot, Sample& s, const device::PictureDevice* device) {
  const size_t at = static_cast<size_t>(slot);
  auto row_of = [&](std::string_view name) {
    for (size_t i = 0; i < plan_.size(); ++i)
      if (plan_[i].name == name) return i;
    fail(ErrorCode::bad_format, cat("the sample has a field '", name, "' that the first sample lacks"));
  };
  // Whatever can be wrong is found before anything is written: another sample may take the slot then.
  if (s.image) row_of("image");
  for (const auto& [name, t] : s.fields) {
    const FieldPlan& f = plan_[row_of(name)];
    if (t.dtype() != f.dtype || t.rank() != static_cast<int64_t>(f.dims.size()))
      fail(ErrorCode::bad_type,
           cat("field '", name, "' is ", t, ", the first sample's is ", f.dtype, f.dims));
    if (f.dtype == DType::string && t.count() != 1)
      fail(ErrorCode::bad_shape,
           cat("field '", name, "' holds ", t.count(), " texts; a batch takes one a sample"));
  }
  const size_t found = s.fields.size() + (s.image ? 1 : 0);
  if (found != plan_.size())
    fail(ErrorCode::bad_format, cat("the sample has ", found, " fields, the first one has ", plan_.size()));
  if (s.image) {
    const size_t row = row_of("image");
    const FieldPlan& f = plan_[row];
    const Dims dims = s.image->dims(s.format);
    if (dims == f.dims && s.format.dtype == f.dtype) {
      auto job = device ? s.image->device_job() : std::nullopt;
      if (job && !job->file.empty() && !device->decodes(*job, picture_channels(s.format, dims))) {
        job.reset();
        std::lock_guard lock(mutex_);
        ++refused_;
      }
      if (!job && device && s.image->left_to_device()) {
        s.image->decode();
        job = s.image->device_job();
      }
      if (job) {
        std::lock_guard lock(mutex_);
        left_format_ = s.format;
        left_.push_back({slot, std::move(*s.image), std::move(*job)});
      } else {
        s.format.past_caches = static_cast<size_t>(count_) * slot_bytes(row) >= kPastCaches;
        s.image->finish(s.format, buffers_[row].get() + at * slot_bytes(row));
        filled_[row][at] = 1;
      }
    } else {
      Tensor t(s.format.dtype, dims);
      s.image->finish(s.format, t.mutable_data());
      std::lock_guard lock(mutex_);
      loose_.push_back({slot, "image", std::move(t)});
    }
  }
  for (auto& [name, t] : s.fields) {
    const size_t row = row_of(name);
    const FieldPlan& f = plan_[row];
    if (f.dtype == DType::string) {
      texts_[row][at] = t.strings()[0];
      filled_[row][at] = 1;
    } else if (t.dims() == f.dims) {
      const size_t bytes = static_cast<size_t>(t.bytes());
      if (bytes) std::memcpy(buffers_[row].get() + at * bytes, t.data(), bytes);
      filled_[row][at] = 1;
    } else {
      std::lock_guard lock(mutex_);
      loose_.push_back({slot, name, std::move(t)});
    }
  }
}

void BatchBuilder::build(const std::vector<int64_t>& keep, const std::vector<uint8_t>& blank, Batch& out,
                         const std::shared_ptr<device::Device>& device) {
  const int64_t n = static_cast<int64_t>(keep.size());
  const bool all_kept = n == count_;
  for (size_t row = 0; row < plan_.size(); ++row) {
    const FieldPlan& f = plan_[row];
    if (f.dtype == DType::string) {
      std::vector<std::string> texts;
      for (int64_t slot : keep) texts.push_back(texts_[row][static_cast<size_t>(slot)]);
      out.fields.emplace_back(f.name, Tensor::of_strings({n}, std::move(texts)));
      continue;
    }
    const size_t bytes = slot_bytes(row);
    if (stays_ && f.name == "image") {
      Dims dims = f.dims;
      dims.insert(dims.begin(), n);
      out.on_device.push_back({f.name, f.dtype, dims, device, device_});
      continue;
    }
    // The largest of this batch: the plan's size counts only if a sample has it.
    Dims largest = f.dims;
    bool ragged = false;
    const bool planned =
        std::ranges::any_of(keep, [&](int64_t slot) { return filled_[row][static_cast<size_t>(slot)]; });
    if (!planned && std::ranges::any_of(loose_, [&](const Loose& l) { return l.name == f.name; }))
      largest.assign(largest.size(), 0);
    for (const Loose& l : loose_)
      if (l.name == f.name) {
        ragged = true;
        for (size_t k = 0; k < largest.size(); ++k) largest[k] = std::max(largest[k], l.value.dims()[k]);
      }
    // Boxes and their like differ by nature: their size is told in every batch.
    const bool sized = ragged || f.name == "boxes" || f.name.starts_with("box_") || f.name == "keypoints" ||
                       f.name == "masks";
    Dims dims = largest;
    dims.insert(dims.begin(), n);
    if (!ragged && all_kept) {
      for (int64_t slot : keep)
        if (blank[static_cast<size_t>(slot)])
          std::memset(buffers_[row].get() + static_cast<size_t>(slot) * bytes, 0, bytes);
      out.fields.emplace_back(f.name, Tensor::borrow(f.dtype, dims, buffers_[row].get(), buffers_[row]));
    } else {
      Tensor t = Tensor::zeros(f.dtype, dims);
      auto* dst = static_cast<uint8_t*>(t.mutable_data());
      const size_t step = static_cast<size_t>(byte_size(f.dtype, element_count(largest)));
      for (int64_t i = 0; i < n; ++i) {
        const size_t slot = static_cast<size_t>(keep[static_cast<size_t>(i)]);
        if (filled_[row][slot]) {
          place(Tensor::borrow(f.dtype, f.dims, buffers_[row].get() + slot * bytes, buffers_[row]),
                dst + static_cast<size_t>(i) * step, largest);
        } else {
          for (const Loose& l : loose_)
            if (l.name == f.name && l.slot == static_cast<int64_t>(slot))
              place(l.value, dst + static_cast<size_t>(i) * step, largest);
        }
      }
      out.fields.emplace_back(f.name, std::move(t));
    }
    if (!sized || f.dims.empty()) continue;
    Tensor sizes = Tensor::zeros(DType::i64, {n, static_cast<int64_t>(f.dims.size())});
    for (int64_t i = 0; i < n; ++i) {
      const int64_t slot = keep[static_cast<size_t>(i)];
      if (blank[static_cast<size_t>(slot)]) continue;
      Dims d = f.dims;
      for (const Loose& l : loose_)
        if (l.name == f.name && l.slot == slot) d = l.value.dims();
      std::ranges::copy(d, sizes.as_mutable<int64_t>() + i * static_cast<int64_t>(d.size()));
    }
    out.fields.emplace_back(cat(f.name, ".size"), std::move(sizes));
  }
}

}  // namespace pelton::data
