// SPDX-License-Identifier: Apache-2.0
// One sample on its way: named tensors, the picture that is being worked on, and where it all came from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/image/lazy_image.h"
#include "tensor/tensor.h"

namespace pelton::data {

// The place people look for a bad sample.
struct Origin {
  std::string file;
  std::string member;   // of an archive, or a record's key
  int64_t offset = -1;  // bytes into the file; -1: not applicable
  std::string str() const;
};

struct Sample {
  int64_t index = 0;  // within its source
  Origin origin;
  std::vector<std::pair<std::string, Tensor>> fields;
  std::optional<LazyImage> image;  // after decode; the field "image" of the batch
  PixelFormat format{DType::u8, false, {}, {1, 1, 1, 1}};

  Tensor* find(std::string_view name);
  Tensor& at(std::string_view name);              // bad_name, listing the fields, when absent
  void set(std::string_view name, Tensor value);  // adds or replaces
  void erase(std::string_view name);
  LazyImage& picture();  // usage error before decode
};

// Targets follow the picture: boxes f32 [n, 4] (x0, y0, x1, y1 in pixels), keypoints f32 [n, k, 3] (x, y,
// visible), masks u8 [n, h, w]. `forward` maps old pixel positions to new ones in a picture of width x
// height. Boxes are cut to the picture; those with nothing left are dropped with their row in every field
// named "box_*", in keypoints and in masks.
void move_targets(Sample& sample, const Matrix& forward, int width, int height);
bool has_targets(Sample& sample);  // any of boxes, keypoints, masks
// bad_format where a target field has another type or shape than that, or not one row an object: what a data
// set says about its samples need not be so. What uses targets in any other way than by the calls below
// checks them first.
void check_targets(Sample& sample);
bool is_target(std::string_view field);  // those, and "box_*": one row an object
// Keeps these objects, in this order, in every target field.
void keep_objects(Sample& sample, const std::vector<int64_t>& rows);
// The objects of `from` behind those of `to`. Their pictures, and so their masks, have the same size; a
// target field that only one of them has is a bad_format error.
void append_objects(Sample& to, Sample& from);

// Geometry on a sample: the picture and its targets.
void crop_sample(Sample& sample, Rect part);
void resize_sample(Sample& sample, int width, int height, Filter filter, bool antialias);
void warp_sample(Sample& sample, const Matrix& out_to_in, int width, int height, Filter filter);

}  // namespace pelton::data
