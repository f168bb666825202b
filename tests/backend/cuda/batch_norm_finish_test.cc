// SPDX-License-Identifier: Apache-2.0
// The kernel's text, run on the host, against sums in f64.
#include <doctest/doctest.h>

#include "backend/cuda/emulated_device.h"
#include "base/philox.h"
// After the emulation.
#include "backend/cuda/own/batch_norm_finish.cuh"

using namespace pelton;
using namespace pelton::backend::cuda;

namespace {

template <class T>
std::vector<T> numbers(size_t count, uint64_t seed, double mean = 0) {
  std::vector<T> out(count);
  const RandomStream stream{seed};
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<T>(mean + stream.normal(i));
  return out;
}

bool near(double got, double exact) {
  return std::abs(got - exact) <= 1e-5 * std::abs(exact) + 1e-6;
}

// A batch norm of sixty places a channel whose data was summed by `parts`.
template <bool kBackward>
void check(int channels, int parts) {
  CAPTURE(channels);
  CAPTURE(parts);
  const auto c = static_cast<size_t>(channels);
  const std::vector<float> x = numbers<float>(60 * c, 1, 3), scale = numbers<float>(c, 2),
                           bias = numbers<float>(c, 3), old_mean = numbers<float>(c, 4),
                           old_var = numbers<float>(c, 5, 9), mean = numbers<float>(c, 6),
                           rstd = numbers<float>(c, 7, 9);
  std::vector<float> new_mean(c, NAN), new_var = new_mean, batch_mean = new_mean, batch_rstd = new_mean,
                                       dscale = new_mean, dbias = new_mean;
  BatchNorm d;
  d.type = Elem::f32;
  d.x = x.data();
  d.n = 3;
  d.places = 20;
  d.c = channels;
  d.scale = scale.data();
  d.bias = bias.data();
  d.old_mean = old_mean.data();
  d.old_var = old_var.data();
  d.new_mean = new_mean.data();
  d.new_var = new_var.data();
  d.batch_mean = batch_mean.data();
  d.batch_rstd = batch_rstd.data();
  d.eps = 1e-3f;
  d.keep = 0.75f;
  d.mean = mean.data();
  d.rstd = rstd.data();
  d.dscale = dscale.data();
  d.dbias = dbias.data();
  // [part][2][C]; the second sums are large, as squares are.
  const auto rows = static_cast<size_t>(parts) * 2;
  std::vector<double> scratch(rows * c + 2 * c, NAN), sums(2 * c);
  const RandomStream stream{8};
  for (size_t i = 0; i < rows * c; ++i) {
    const bool second = i / c % 2 != 0;
    scratch[i] = stream.normal(i) + (second ? 60.0 * 30 / parts : 0);
    sums[(second ? c : 0) + i % c] += scratch[i];
  }
  d.scratch = scratch.data();
  for (int block = 0; block * kFinishChannels < channels; ++block)
    Emulation::current().run(kFinishThreads, {block, 0}, [&] { finish_kernel<float, kBackward>(d, parts); });
  const float* const table = table_of(d, parts);
  for (size_t k = 0; k < c; ++k) {
    CAPTURE(k);
    const double a = sums[k], b = sums[c + k];
    if (kBackward) {
      CHECK(near(dbias[k], a));
      CHECK(near(dscale[k], b * rstd[k]));
      const double factor = static_cast<double>(scale[k]) * rstd[k];
      CHECK(near(table[k], factor));
      CHECK(near(table[c + k], -factor * a / 60));
      CHECK(near(table[2 * c + k], -factor * b / 60 * rstd[k] * rstd[k]));
    } else {
      double four[4];
      for (size_t i = 0; i < 4; ++i) four[i] = x[i * 15 * c + k];
      std::sort(four, four + 4);
      const double of_batch = (four[1] + four[2]) / 2 + a / 60, var = b / 60 - a / 60 * (a / 60);
      CHECK(near(batch_mean[k], of_batch));
      CHECK(near(batch_rstd[k], 1 / std::sqrt(var + 1e-3)));
      CHECK(near(new_mean[k], 0.75 * old_mean[k] + 0.25 * of_batch));
      CHECK(near(new_var[k], 0.75 * old_var[k] + 0.25 * var));
      CHECK(near(table[k], of_batch));
      CHECK(near(table[c + k], scale[k] / std::sqrt(var + 1e-3)));
      CHECK(table[2 * c + k] == bias[k]);
    }
  }
}

}  // namespace

TEST_CASE("batch norms in three launches: the second adds up every part") {
  for (int parts : {1, 61, 62, 63, 500}) {
    check<false>(20, parts);
    check<true>(20, parts);
  }
  check<false>(16, 130);
  check<true>(33, 7);
}
