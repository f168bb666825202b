// SPDX-License-Identifier: Apache-2.0
// picture_resample: taps are computed when the kernel is prepared; bands of 16 rows (default mode) or whole
// pictures (match) are shared out among the threads, each with its own part of the scratch memory.
#include "ir/ops/picture.h"

#include "backend/cpu/implementations.h"
#include "backend/cpu/support.h"

namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  return refuse_layouts(graph, node);
}

struct Prepared {
  ir::PictureResample r;
  std::unique_ptr<ir::ExactResize> exact;
  ir::FilterTable x, y;
  int64_t pictures = 0, source = 0, result = 0;  // bytes of a picture, elements of a result

  ir::PlaneView view(const void* in, int64_t p) const {
    return {static_cast<const uint8_t*>(in) + p * source,
            ptrdiff_t{r.width} * r.channels,
            r.width,
            r.height,
            r.channels,
            0,
            0};
  }
};

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const TensorSpec &in = instance.inputs[0], &out = instance.outputs[0];
  if (out.count() == 0) return make_kernel([](const RunArgs&) {});
  auto p = std::make_shared<Prepared>(Prepared{
      ir::PictureResample(instance.node(), in.dims, out.dims, instance.dims("size"), instance.dims("origin")),
      nullptr,
      {},
      {}});
  const ir::PictureResample& r = p->r;
  p->source = int64_t{r.height} * r.width * r.channels;
  p->result = int64_t{r.out_height} * r.out_width * r.channels;
  p->pictures = out.count() / p->result;
  const int64_t workers = std::max(1, instance.threads);
  // Work is cut into one chunk a slot of scratch memory; which chunk a picture falls into changes no result.
  if (r.match != ir::Match::none) {
    p->exact = ir::exact_resize(r.match, r.x, r.y, r.filter, r.antialias, r.channels);
    const int64_t each = align64(p->exact->scratch_bytes()), grain = (p->pictures + workers - 1) / workers;
    return make_kernel(
        [p, each, grain](const RunArgs& args) {
          parallel_for(0, p->pictures, grain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
              p->exact->run(p->view(args.in[0], i), static_cast<uint8_t*>(args.out[0]) + i * p->result,
                            offset(args.scratch, begin / grain * each));
          });
        },
        each * workers);
  }
  p->x = ir::filter_table(r.x, r.filter, r.antialias);
  p->y = ir::filter_table(r.y, r.filter, r.antialias);
  const int64_t bands = (r.out_height + ir::kTileRows - 1) / ir::kTileRows, total = bands * p->pictures,
                grain = (total + workers - 1) / workers;
  const auto own = static_cast<int64_t>(ir::PlaneResampler::scratch_floats(p->x, r.channels));
  const int64_t tile = int64_t{r.channels} * r.out_width * ir::kTileRows, each = align64((own + tile) * 4);
  return make_kernel(
      [=](const RunArgs& args) {
        parallel_for(0, total, grain, [&](int64_t begin, int64_t end) {
          auto* const scratch = reinterpret_cast<float*>(offset(args.scratch, begin / grain * each));
          const ir::PictureResample& q = p->r;
          for (int64_t i = begin; i < end; ++i) {
            ir::PlaneResampler resampler(p->view(args.in[0], i / bands), p->x, p->y, scratch);
            const int y = static_cast<int>(i % bands) * ir::kTileRows;
            const int rows = std::min(ir::kTileRows, q.out_height - y);
            resampler.tile(y, rows, scratch + own);
            ir::untile(scratch + own, rows, q.out_width, q.channels,
                       static_cast<float*>(args.out[0]) + i / bands * p->result +
                           int64_t{y} * q.out_width * q.channels);
          }
        });
      },
      each * workers);
}

}  // namespace

void add_picture(Registry& registry) {
  registry.add({"cpu.picture", {"picture_resample"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
