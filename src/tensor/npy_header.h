// SPDX-License-Identifier: Apache-2.0
// The header of a .npy file: a Python dictionary literal with the keys descr, fortran_order and shape.
#pragma once

#include <string>
#include <string_view>

#include "tensor/dim.h"

namespace pelton {

struct NpyHeader {
  char order = '|';  // '<', '>', '|' or '='
  char kind = 'f';   // f i u b c V U S
  int64_t size = 4;  // bytes an element; for U: characters
  bool fortran = false;
  Dims dims;
  size_t data_offset = 0;  // where the elements begin
};

NpyHeader parse_npy_header(std::string_view file);
// Magic, version, padded dictionary.
std::string format_npy_header(std::string_view descr, const Dims& dims);

}  // namespace pelton
