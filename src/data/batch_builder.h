// SPDX-License-Identifier: Apache-2.0
// Puts finished samples of one batch side by side. Workers write into the batch's own buffers as soon as the
// shapes are known; samples of other shapes wait and are padded when the batch is complete. With a device,
// pictures that it can decode are left to it: they are jobs until run_jobs(), and the field "image" lies in
// its memory.
#pragma once

#include <mutex>

#include "data/batch.h"
#include "data/buffer_pool.h"
#include "data/sample.h"
#include "device/device.h"
#include "device/picture_decoder.h"

namespace pelton::data {

// Name, type and dimensions of each field of a sample.
struct FieldPlan {
  std::string name;
  DType dtype;
  Dims dims;
};
using SamplePlan = std::vector<FieldPlan>;
SamplePlan plan_of(const Sample& sample);
int64_t plan_bytes(const SamplePlan& plan);

// Copies the low corner `block` of a dense array of `from_dims` into the low corner of one of `to_dims`. All
// have one rank; `element` is in bytes.
void copy_block(const uint8_t* from, const Dims& from_dims, uint8_t* to, const Dims& to_dims,
                const Dims& block, size_t element);

int picture_channels(const PixelFormat& format, const Dims& dims);

class BatchBuilder {
 public:
  BatchBuilder(const SamplePlan& plan, int64_t count, std::shared_ptr<BufferPool> buffers);
  // Any thread, once for each slot. Carries out what is pending on the picture, or leaves it to the device,
  // when there is one whose decoder takes the file by its header.
  void put(int64_t slot, Sample& sample, const device::PictureDevice* device = nullptr);

  // The device's part, by one thread, while no put() runs. run_jobs() carries out the jobs there are and
  // returns the slots that the decoder did not take, for a put() without a device. When there are no jobs
  // left, gather() brings the field "image" together: in the device's memory, or, when that is not wanted or
  // the pictures differ in size, on the host. It waits for the copies. `blank`: as for build().
  int64_t take_refused() { return std::exchange(refused_, 0); }  // by their headers, since the last call
  int64_t take_decoded() { return std::exchange(decoded_, 0); }  // files, since the last call
  std::vector<int64_t> run_jobs(device::PictureDecoder& decoder);
  void gather(device::Stream& stream, const std::vector<uint8_t>& blank, bool on_device);

  // After all slots are done. `keep` lists the slots to take, in order; `blank` marks those without a sample.
  void build(const std::vector<int64_t>& keep, const std::vector<uint8_t>& blank, Batch& out,
             const std::shared_ptr<device::Device>& device = nullptr);

 private:
  struct Left {  // the job's file or pixels lie in the picture
    int64_t slot;
    LazyImage picture;
    device::PictureJob job;
  };
  std::optional<size_t> picture_row() const;
  size_t slot_bytes(size_t row) const {
    return static_cast<size_t>(byte_size(plan_[row].dtype, element_count(plan_[row].dims)));
  }
  struct Loose {
    int64_t slot;
    std::string name;
    Tensor value;
  };
  const SamplePlan& plan_;
  int64_t count_;
  std::shared_ptr<BufferPool> pool_;
  std::vector<std::shared_ptr<uint8_t>> buffers_;  // by plan row, [count, dims]
  std::vector<std::vector<uint8_t>> filled_;       // by plan row and slot
  std::vector<std::vector<std::string>> texts_;    // by plan row; string fields
  std::mutex mutex_;
  std::vector<Loose> loose_;  // values that do not fit the plan
  std::vector<Left> left_;    // to the device
  PixelFormat left_format_;
  int64_t refused_ = 0, decoded_ = 0;
  std::vector<uint8_t> there_;       // by slot: the picture is in device_ and not in buffers_
  std::shared_ptr<uint8_t> device_;  // [count, dims] of the field "image"
  bool stays_ = false;               // gather() has left the field there
};

}  // namespace pelton::data
