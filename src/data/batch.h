// SPDX-License-Identifier: Apache-2.0
// What a pipeline hands out, and what it says about samples that could not be used.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "tensor/tensor.h"

namespace pelton::data {

struct BadSample {
  int64_t epoch = 0, step = 0, index = 0;
  std::string origin;  // file, member, offset
  std::string op;      // "read", or the stage that failed
  std::string reason;
};

// A field that lies in a device's memory, complete when the batch is handed out.
struct DeviceField {
  std::string name;
  DType dtype = DType::f32;
  Dims dims;  // [count, ...]
  std::shared_ptr<device::Device> device;
  std::shared_ptr<const uint8_t> memory;
  Tensor to_host() const;  // waits for the copy
};

struct Batch {
  int64_t epoch = 0, step = 0;
  // By name, each [count, ...]. Fields whose size differs from sample to sample are zero-padded to the
  // largest and come with NAME.size i64 [count, rank].
  std::vector<std::pair<std::string, Tensor>> fields;
  std::vector<DeviceField> on_device;  // fields that are there and not in `fields` (RunOptions::on_device)
  std::vector<int64_t> indices;        // [count] of the samples in their source
  std::vector<uint8_t> valid;          // [count] 0: marked as bad, its values are zero
  int64_t padding = 0;                 // trailing samples repeated only to keep the steps of all shards equal
  std::vector<BadSample> bad;          // found while making this batch

  int64_t count() const { return static_cast<int64_t>(indices.size()); }
  const Tensor& at(std::string_view name) const;  // bad_name, listing the fields, when absent
  const Tensor* find(std::string_view name) const;
  const DeviceField* find_on_device(std::string_view name) const;
  void bring_to_host();  // fields that are on the device become fields like the others
};

}  // namespace pelton::data
