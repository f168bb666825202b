// SPDX-License-Identifier: Apache-2.0
// JPEG files to batches, on a GPU.
#pragma once

#include <memory>

#include "device/picture_decoder.h"

namespace pelton::backend::cuda {

// The GPU of this ordinal is current. A no_device error says what is missing. `files`: it decodes files too.
std::unique_ptr<device::PictureDecoder> make_picture_decoder(int ordinal, bool files);

// device::PictureDevice::decodes() of that GPU, which is current. Any thread.
bool decodes_picture(int ordinal, const device::PictureJob& job, int channels);

}  // namespace pelton::backend::cuda
