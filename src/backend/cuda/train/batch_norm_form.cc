// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/train/batch_norm_form.h"

#include <algorithm>

#include "backend/cuda/own/move_taps.h"
#include "backend/cuda/tactics.h"

namespace pelton::backend::cuda {
namespace {

constexpr int kClusters = 90;  // the first architecture that has them

std::string key_of(const BatchNorm& d, bool backward) {
  std::string key = cat("batch_norm", backward ? "_backward" : "_train", d.channels_last ? " last" : "", " t",
                        static_cast<int>(d.type), " p", static_cast<int>(d.parameter_type), " ", d.n, "x",
                        d.c, "x", d.places, " g", static_cast<int>(d.through));
  for (int i = 0; i < d.epilogue.count; ++i)
    key += cat(" ", static_cast<int>(d.epilogue.steps[i].op), ".",
               static_cast<int>(d.epilogue.steps[i].where), ".", static_cast<int>(d.epilogue.steps[i].type));
  return key;
}

// The problem on buffers of its own, with numbers in the data.
class Trial {
 public:
  Trial(BatchNorm d, bool backward, int64_t scratch_bytes) : d_(d) {
    StreamHandle stream = make_stream();
    const int64_t count = d.n * d.places * d.c;
    uint32_t seed = 0;
    auto noise = [&](Elem type, int64_t elements) {
      memory_.emplace_back(elements * elem_bytes(type), "timing batch norms");
      PELTON_CUDA(fill_noise(memory_.back().get(), type, elements, stream.get(), ++seed));
      return memory_.back().get();
    };
    auto channels = [&] { return static_cast<float*>(noise(Elem::f32, d.c)); };
    d_.x = noise(d.type, count);
    d_.scale = channels();
    d_.bias = channels();
    d_.scratch = static_cast<double*>(noise(Elem::f32, (scratch_bytes + 3) / 4));
    if (backward) {
      d_.g = noise(d.type, count);
      d_.mean = channels();
      d_.rstd = channels();
      d_.dx = noise(d.type, count);
      d_.dscale = channels();
      d_.dbias = channels();
    } else {
      d_.y = noise(d.type, count);
      d_.old_mean = channels();
      d_.old_var = channels();
      d_.new_mean = channels();
      d_.new_var = channels();
      d_.batch_mean = channels();
      d_.batch_rstd = channels();
      for (int i = 0; i < d.epilogue.count; ++i)
        if (EpilogueStep& s = d_.epilogue.steps[i]; s.where != EpilogueStep::none) {
          const int64_t elements = s.where == EpilogueStep::full            ? count
                                   : s.where == EpilogueStep::image_channel ? int64_t{d.n} * d.c
                                                                            : d.c;
          s.operand = noise(s.type, elements);
        }
    }
    PELTON_CUDA(cudaStreamSynchronize(stream.get()));
  }
  const BatchNorm& problem() const { return d_; }

 private:
  BatchNorm d_;
  std::vector<DeviceBuffer> memory_;
};

}  // namespace

cudaError_t run_form(const NormForm& form, const BatchNorm& problem, bool backward, cudaStream_t stream) {
  if (form.cluster)
    return backward ? batch_norm_backward(problem, *form.cluster, stream)
                    : batch_norm_train(problem, *form.cluster, stream);
  BatchNorm d = problem;
  d.sum_blocks = form.sum_blocks;
  d.apply_blocks = form.apply_blocks;
  return backward ? batch_norm_backward(d, stream) : batch_norm_train(d, stream);
}

NormForm fastest_form(const BatchNorm& d, bool backward, const device::Target& target) {
  std::vector<NormForm> forms;
  std::vector<std::string> names;
  int64_t most_scratch = 0;
  for (const auto& [sums, applies] : {std::pair(4, 8), std::pair(2, 8), std::pair(2, 4)}) {
    BatchNorm with = d;
    with.sum_blocks = sums;
    forms.push_back({{}, sums, applies, batch_norm_scratch_bytes(with)});
    names.push_back(cat("launches ", sums, "x", applies));
    most_scratch = std::max(most_scratch, forms.back().scratch_bytes);
  }
  if (target.sm >= kClusters)
    for (const NormCluster& c : batch_norm_clusters(d, backward)) {
      forms.push_back({.cluster = c});
      names.push_back(cat("cluster ", c.lanes, "x", c.blocks));
    }
  const std::string key = key_of(d, backward);
  if (const std::optional<size_t> known = known_fastest(key, names)) return forms[*known];
  if (timing_is_over()) return forms[0];
  return forms[fastest_in_memory(key, [&] {
    const Trial trial(d, backward, most_scratch);
    std::vector<Way> ways;
    for (size_t i = 0; i < forms.size(); ++i)
      ways.push_back({names[i], [&, i](cudaStream_t s) {
                        PELTON_CUDA(run_form(forms[i], trial.problem(), backward, s));
                      }});
    return fastest(key, ways);
  })];
}

}  // namespace pelton::backend::cuda
