// SPDX-License-Identifier: Apache-2.0
// The tests' device (tests/runtime/fake_device.h), which decodes pictures as well: by the host's decoder and
// a plain sum over the taps of each job.
#pragma once

#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "data/codec/jpeg.h"
#include "device/picture_decoder.h"
#include "runtime/fake_device.h"

namespace pelton::test {

// What the decoders of all such devices do and have done.
struct PictureCounts {
  std::atomic<int> lists{0}, jobs{0};
  std::atomic<int> files{0}, uploaded{0}, there{0};  // of jobs: files; pixels of the host, of the device
  // n: files whose size is a multiple of n are refused by their header, or fail; 0: none
  std::atomic<int> refuse_every{0}, fail_every{0};
  std::atomic<int> sleep_ms{0};
  std::atomic<bool> fails{false};
  std::mutex mutex;
  std::set<std::thread::id> asked_by, decoded_by;
  std::set<const void*> asked_about;  // the files' bytes
  void saw(std::set<std::thread::id>& threads) {
    std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  }
};
inline PictureCounts& pictures() {
  static PictureCounts counts;
  return counts;
}

class FakePictureDecoder : public device::PictureDecoder {
 public:
  void run(std::span<const device::PictureJob> jobs, const device::PictureForm& form,
           std::span<uint8_t> taken) override {
    ++pictures().lists;
    pictures().saw(pictures().decoded_by);
    std::this_thread::sleep_for(std::chrono::milliseconds(pictures().sleep_ms));
    if (pictures().fails) fail(ErrorCode::device_lost, "FakeDecode failed: the device is gone");
    for (size_t i = 0; i < jobs.size(); ++i) {
      ++pictures().jobs;
      const int every = pictures().fail_every;
      taken[i] = 0;
      if (!jobs[i].file.empty()) {
        std::lock_guard lock(pictures().mutex);
        PELTON_CHECK(pictures().asked_about.contains(jobs[i].file.data()), "a job nobody asked about");
      }
      if (every && !jobs[i].file.empty() && jobs[i].file.size() % static_cast<size_t>(every) == 0) continue;
      one(jobs[i], form);
      taken[i] = 1;
    }
  }

 private:
  static Tensor pixels_of(const device::PictureJob& job, int channels) {
    if (job.file.empty()) {
      const Dims dims{job.height, job.width, channels};
      ++(job.pixels_there ? pictures().there : pictures().uploaded);
      if (job.pixels_there) fake_memory().expect(job.pixels, element_count(dims));
      return Tensor::from<uint8_t>(dims, std::vector<uint8_t>(job.pixels, job.pixels + element_count(dims)));
    }
    ++pictures().files;
    data::DecodeOptions options;
    if (channels == 1) options.colour = data::Colour::gray;
    return data::to_colour(data::jpeg_decode(job.file, options, "device"), options.colour);
  }
  static void one(const device::PictureJob& job, const device::PictureForm& form) {
    const Tensor pixels = pixels_of(job, form.channels);
    PELTON_CHECK(pixels.dims() == Dims({job.height, job.width, form.channels}), pixels);
    if (job.keep) {
      fake_memory().expect(job.keep, pixels.bytes());
      std::memcpy(job.keep, pixels.data(), static_cast<size_t>(pixels.bytes()));
    }
    const int c = form.channels, n = form.width * form.height;
    fake_memory().expect(job.out, n * c * bits(form.dtype) / 8);
    for (int at = 0; at < n; ++at) {
      const int across = at % form.width - job.left, down = at / form.width - job.top;
      const int x = job.swap ? down : across, y = job.swap ? across : down;
      for (int k = 0; k < c; ++k) {
        double v = job.fill[static_cast<size_t>(k)];
        if (x >= 0 && x < std::ssize(job.x.first) && y >= 0 && y < std::ssize(job.y.first))
          v = recoloured(job, pixels, x, y, k);
        v = std::min(std::max(v, 0.0), 255.0);
        const auto channel = static_cast<size_t>(k);
        const int place = form.channels_first ? k * n + at : at * c + k;
        if (form.dtype == DType::u8)
          static_cast<uint8_t*>(job.out)[place] = static_cast<uint8_t>(v + 0.5);
        else if (form.dtype == DType::f32)
          static_cast<float*>(job.out)[place] =
              static_cast<float>((v - form.mean[channel]) * form.scale[channel]);
        else
          PELTON_CHECK(false, "the tests' decoder writes f32 and u8");
      }
    }
  }
  static double recoloured(const device::PictureJob& job, const Tensor& pixels, int x, int y, int k) {
    if (!job.recolour) return sum(job, pixels, x, y, k);
    const auto* m = job.matrix.data() + 4 * k;
    if (pixels.dims()[2] == 1) return (m[0] + m[1] + m[2]) * sum(job, pixels, x, y, 0) + m[3];
    return m[0] * sum(job, pixels, x, y, 0) + m[1] * sum(job, pixels, x, y, 1) +
           m[2] * sum(job, pixels, x, y, 2) + m[3];
  }
  static double sum(const device::PictureJob& job, const Tensor& pixels, int x, int y, int k) {
    double out = 0;
    const auto &tx = job.x, &ty = job.y;
    for (int j = 0; j < ty.taps; ++j)
      for (int i = 0; i < tx.taps; ++i) {
        const double w = static_cast<double>(ty.weights[static_cast<size_t>(y * ty.taps + j)]) *
                         tx.weights[static_cast<size_t>(x * tx.taps + i)];
        if (w == 0) continue;
        const int64_t row = ty.first[static_cast<size_t>(y)] + j,
                      column = tx.first[static_cast<size_t>(x)] + i;
        PELTON_CHECK(row >= 0 && row < job.height && column >= 0 && column < job.width, row, " ", column);
        out += w * pixels.as<uint8_t>()[(row * job.width + column) * pixels.dims()[2] + k];
      }
    return out;
  }
};

class FakePictureDevice : public FakeDevice, public device::PictureDevice {
 public:
  FakePictureDevice() : FakeDevice(device::cuda_target(90)) {}
  std::unique_ptr<device::PictureDecoder> make_picture_decoder(bool) override {
    return std::make_unique<FakePictureDecoder>();
  }
  bool decodes(const device::PictureJob& job, int channels) const override {
    PELTON_CHECK(channels == 1 || channels == 3, channels);
    pictures().saw(pictures().asked_by);
    const int every = pictures().refuse_every;
    if (every && job.file.size() % static_cast<size_t>(every) == 0) return false;
    std::lock_guard lock(pictures().mutex);
    pictures().asked_about.insert(job.file.data());
    return true;
  }
};

}  // namespace pelton::test
