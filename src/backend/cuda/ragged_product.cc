// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/ragged_product.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cuda/aligned.h"
#include "backend/cuda/own/compact_rows.h"
#include "backend/cuda/own/edge_columns.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/tactics.h"
#include "tensor/transpose.h"

namespace pelton::backend::cuda {
namespace {

constexpr int64_t kLeastColumns = 512, kStretchBytes = 80 << 20, kRowsOfATile = 128;

int64_t element_bytes(DType t) {
  return bits(t) / 8;
}
int64_t unit_of(DType t) {  // elements of 16 bytes
  return 16 / element_bytes(t);
}
int64_t padded(int64_t columns, DType t) {
  return (columns + unit_of(t) - 1) / unit_of(t) * unit_of(t);
}

// [k, n] with rows of `pitch` elements, zeros behind each.
DeviceBuffer with_pitch(const Tensor& matrix, const MatmulProblem& p, int64_t pitch) {
  const int64_t from = p.n * element_bytes(p.in), to = pitch * element_bytes(p.in);
  std::vector<std::byte> rows(static_cast<size_t>(p.k * to));
  for (int64_t r = 0; r < p.k; ++r)
    std::memcpy(rows.data() + r * to, static_cast<const std::byte*>(matrix.data()) + r * from,
                static_cast<size_t>(from));
  return upload(rows.data(), p.k * to, "a matrix with longer rows");
}

class Stretches : public RaggedProduct {
 public:
  explicit Stretches(const MatmulProblem& problem) : RaggedProduct(problem) {}

  static bool applies(const MatmulProblem& p, const Tensor& b) {
    return longer_b(p) ? b.defined() : longer_d(p);
  }
  bool prepare(const Tensor& b) {
    const MatmulProblem p = p_;
    const int64_t d_pitch = padded(p.n, p.out);
    if (longer_b(p)) {
      const int64_t pitch = p_.pitch_b = padded(p.n, p.in);
      b_ = shared_packed(b, cat("rows of ", pitch), [&] { return with_pitch(b, p, pitch); });
    }
    MatmulProblem part = p_;
    if (longer_d(p)) {
      p_.pitch_d = part.pitch_d = d_pitch;
      const int64_t fitting = kStretchBytes / (d_pitch * element_bytes(p.out)) / kRowsOfATile * kRowsOfATile;
      part.m = stretch_ = std::min(p.m, std::max(kRowsOfATile, fitting));
      if (part.m * d_pitch > std::numeric_limits<int32_t>::max()) return false;
    } else {
      stretch_ = p.m;
    }
    call_ = MatmulCall::make(part);
    if (call_ && p.m % stretch_ != 0) {
      part.m = p.m % stretch_;
      last_ = MatmulCall::make(part);
      return last_ != nullptr;
    }
    return call_ != nullptr;
  }

  int64_t scratch_bytes() const override {
    return workspace_bytes() + stretch_ * p_.pitch_d * element_bytes(p_.out);
  }

  void run(const void* a, const void* b, void* d, const void* bias, void* scratch,
           cudaStream_t stream) const override {
    if (b_) b = b_->get();
    auto* const wide = static_cast<std::byte*>(scratch) + workspace_bytes();
    for (int64_t first = 0; first < p_.m; first += stretch_) {
      const int64_t rows = std::min(stretch_, p_.m - first);
      const MatmulCall& call = rows < stretch_ ? *last_ : *call_;
      const std::byte* const from = static_cast<const std::byte*>(a) + first * p_.k * element_bytes(p_.in);
      std::byte* const to = static_cast<std::byte*>(d) + first * p_.n * element_bytes(p_.out);
      call.run(from, b, nullptr, p_.pitch_d ? wide : to, bias, scratch, stream);
      if (!p_.pitch_d) continue;
      PELTON_CUDA(compact_rows({.x = wide,
                                .y = to,
                                .bytes = static_cast<int>(element_bytes(p_.out)),
                                .rows = rows,
                                .columns = p_.n,
                                .pitch = p_.pitch_d},
                               stream));
    }
  }

 private:
  static bool longer_b(const MatmulProblem& p) { return !p.transpose_b && padded(p.n, p.in) != p.n; }
  static bool longer_d(const MatmulProblem& p) {
    return p.m > 1 && padded(p.n, p.out) != p.n && !p.transpose_a;
  }
  int64_t workspace_bytes() const {
    const int64_t most = std::max(call_->workspace_bytes(), last_ ? last_->workspace_bytes() : 0);
    return aligned(most);
  }
  int64_t stretch_ = 0;  // rows at a time
  // The second for the rows of the last stretch, if there are fewer.
  std::unique_ptr<MatmulCall> call_, last_;
};

// With u elements in 16 bytes, rows j, j + u, j + 2u... of the result lie u * n elements apart: a multiple of
// 16 bytes. Of row j, column step * j is the first that is aligned where n + step is a multiple of u.
class Interleaved : public RaggedProduct {
 public:
  explicit Interleaved(const MatmulProblem& problem) : RaggedProduct(problem) {}

  static bool applies(const MatmulProblem& p, const Tensor& b) {
    return p.n % unit_of(p.out) != 0 && p.m >= unit_of(p.out) && !p.transpose_a && !p.bias &&
           p.activation == Activation::none && p.k % unit_of(p.in) == 0 && !p.in_b && elem_of(p.in) &&
           elem_of(p.out) && (p.transpose_b || b.defined());
  }
  bool prepare(const Tensor& b) {
    const MatmulProblem& p = p_;
    const int64_t unit = unit_of(p.out);
    if (!p.transpose_b)
      b_ = shared_packed(b, "columns as rows", [&] {
        return upload(transposed(b.reshaped({p.k, p.n})), "a matrix transposed");
      });
    const MatmulProblem part = interleaved_part(p);
    call_ = MatmulCall::make(part);
    edges_ = {.in = elem(p.in),
              .out = elem(p.out),
              .rows = part.m * unit,
              .columns = p.n,
              .k = p.k,
              .units = unit,
              .step = part.stride_d - p.n,
              .middle = part.n,
              .alpha = p.alpha};
    return call_ != nullptr;
  }

  int64_t scratch_bytes() const override { return call_->workspace_bytes(); }

  void run(const void* a, const void* b, void* d, const void*, void* scratch,
           cudaStream_t stream) const override {
    EdgeColumns edges = edges_;
    edges.a = a;
    edges.b = b_ ? b_->get() : b;
    edges.y = d;
    PELTON_CUDA(edge_columns(edges, stream));
    call_->run(a, edges.b, nullptr, d, nullptr, scratch, stream);
    if (edges_.rows == p_.m) return;
    // Rows that no full set of interleaved ones has, every column of them.
    edges.a = static_cast<const std::byte*>(a) + edges_.rows * p_.k * element_bytes(p_.in);
    edges.y = static_cast<std::byte*>(d) + edges_.rows * p_.n * element_bytes(p_.out);
    edges.rows = p_.m - edges_.rows;
    edges.step = edges.middle = 0;
    PELTON_CUDA(edge_columns(edges, stream));
  }

 private:
  std::unique_ptr<MatmulCall> call_;
  EdgeColumns edges_;
};

bool takes(const MatmulProblem& p) {
  return p.n >= kLeastColumns && p.batch == 1 && !p.residual && p.in != DType::f64;
}

template <class W>
std::unique_ptr<RaggedProduct> made(const MatmulProblem& p, const Tensor& b) {
  if (!takes(p) || !W::applies(p, b)) return {};
  auto way = std::make_unique<W>(p);
  if (!way->prepare(b)) return {};
  return way;
}

using Ways = std::vector<std::unique_ptr<RaggedProduct>>;

// The fastest of the ways that there are, the last of which is the library's own.
size_t time_all(const std::string& key, const std::vector<std::string>& names, const MatmulProblem& p,
                const Ways& ways, const MatmulCall* direct) {
  int64_t scratch = direct ? direct->workspace_bytes() : 0;
  for (const auto& way : ways) scratch = std::max(scratch, way ? way->scratch_bytes() : 0);
  const DeviceBuffer x = trial_buffer(byte_size(p.in, p.m * p.k)),
                     w = trial_buffer(byte_size(p.in, p.n * p.k)), bias = trial_buffer(byte_size(p.out, p.n)),
                     y(byte_size(p.out, p.m * p.n), "timing a matrix product"),
                     workspace(std::max<int64_t>(scratch, 1), "timing a matrix product");
  std::vector<Way> timed;
  for (size_t i = 0; i < names.size(); ++i)
    timed.push_back({names[i], [&, i](cudaStream_t stream) {
                       const RaggedProduct* way = i < ways.size() ? ways[i].get() : nullptr;
                       if (way)
                         way->run(x.get(), w.get(), y.get(), bias.get(), workspace.get(), stream);
                       else if (i == ways.size() && direct)
                         direct->run(x.get(), w.get(), nullptr, y.get(), bias.get(), workspace.get(), stream);
                       else
                         fail(ErrorCode::driver, cat("cuBLASLt has no way to compute ", key, " ", names[i]));
                     }});
  return fastest(key, timed);
}

}  // namespace

MatmulProblem interleaved_part(const MatmulProblem& p) {
  const int64_t unit = unit_of(p.out), step = unit - p.n % unit;
  MatmulProblem part = p;
  part.transpose_b = true;
  part.batch = unit;
  part.m = p.m / unit;
  part.n = (p.n - step * (unit - 1)) / unit * unit;
  part.pitch_a = unit * p.k;
  part.stride_a = p.k;
  part.stride_b = step * p.k;
  part.pitch_d = unit * p.n;
  part.stride_d = p.n + step;
  return part;
}

std::unique_ptr<RaggedProduct> RaggedProduct::interleaved(const MatmulProblem& p, const Tensor& b) {
  return made<Interleaved>(p, b);
}

std::unique_ptr<RaggedProduct> RaggedProduct::stretches(const MatmulProblem& p, const Tensor& b) {
  return made<Stretches>(p, b);
}

std::unique_ptr<RaggedProduct> RaggedProduct::make(const MatmulProblem& p, const Tensor& b) {
  if (!takes(p)) return {};
  using Make = std::unique_ptr<RaggedProduct> (*)(const MatmulProblem&, const Tensor&);
  std::vector<std::string> names;
  std::vector<Make> makers;
  if (Interleaved::applies(p, b)) names.emplace_back("interleaved"), makers.push_back(&interleaved);
  if (Stretches::applies(p, b)) names.emplace_back("stretches"), makers.push_back(&stretches);
  if (names.empty()) return {};
  names.emplace_back("direct");
  const std::string key = cat("ragged ", p.key());
  // Null where the memory does not hold the way's copy of B: the library takes B as it is.
  auto make_one = [&](size_t i) {
    std::unique_ptr<RaggedProduct> way;
    fits_in_memory(key, [&] { way = makers[i](p, b); });
    return way;
  };
  // Only the one that is wanted is made: packing a vocabulary takes time.
  if (const std::optional<size_t> known = known_fastest(key, names))
    return *known < makers.size() ? make_one(*known) : nullptr;
  if (timing_is_over()) {
    for (size_t i = 0; i < makers.size(); ++i)
      if (auto way = make_one(i)) return way;
    return {};
  }
  const std::unique_ptr<MatmulCall> direct = MatmulCall::make(p);
  Ways ways(makers.size());
  const size_t best = fastest_in_memory(key, [&] {
    for (size_t i = 0; i < makers.size(); ++i) ways[i] = makers[i](p, b);
    const bool any = std::any_of(ways.begin(), ways.end(), [](const auto& way) { return way != nullptr; });
    return any || direct ? time_all(key, names, p, ways, direct.get()) : makers.size();
  });
  if (best == makers.size()) return {};
  return ways[best] ? std::move(ways[best]) : make_one(best);
}

}  // namespace pelton::backend::cuda
