// SPDX-License-Identifier: Apache-2.0
// Sparse tensors, made dense.
#include <cstring>

#include "tensor/tensor_pb.h"
#include "tensor/tensor_pb_messages.h"

namespace pelton {

Tensor sparse_to_tensor(wire::Span message, std::shared_ptr<const void> owner, std::string_view* name_out) {
  TensorView values, indices;
  Dims dims;
  wire::Reader r(message, pb::sparse_tensor_proto());
  while (uint32_t field = r.next()) switch (field) {
      case pb::SparseTensorProto::values:
        values = parse_tensor_proto(r.message());
        break;
      case pb::SparseTensorProto::indices:
        indices = parse_tensor_proto(r.message());
        break;
      case pb::SparseTensorProto::dims:
        r.append_to(dims);
        break;
    }
  if (name_out) *name_out = values.name;
  return with_place(cat("sparse tensor '", values.name, "'"), [&] {
    Tensor v = to_tensor(values, owner), at = to_tensor(indices, owner);
    if (v.dtype() == DType::string || is_sub_byte(v.dtype()))
      fail(ErrorCode::bad_type, cat("a sparse tensor of ", name(v.dtype()), " is not supported"));
    auto rank = static_cast<int64_t>(dims.size());
    bool linear = at.rank() == 1;
    if (at.dtype() != DType::i64 || v.rank() != 1 || at.rank() < 1 || at.rank() > 2 ||
        at.dims()[0] != v.count() || (!linear && at.dims()[1] != rank))
      fail(ErrorCode::bad_format, cat("values ", v.str(), " with indices ", at.str(), " for shape ", dims));
    int64_t count = element_count(dims);
    if (byte_size(v.dtype(), count) > (int64_t{1} << 30))
      fail(ErrorCode::limit, cat("dense form of shape ", dims, " is over 1 GiB"));
    Tensor out = Tensor::zeros(v.dtype(), dims);
    auto* to = static_cast<char*>(out.mutable_data());
    auto width = static_cast<int64_t>(bits(v.dtype()) / 8);
    for (int64_t i = 0; i < v.count(); ++i) {
      int64_t flat = linear ? at.get_int(i) : 0;
      for (int64_t d = 0; !linear && d < rank; ++d) {
        int64_t k = at.get_int(i * rank + d), size = dims[static_cast<size_t>(d)];
        if (k < 0 || k >= size)
          fail(ErrorCode::bad_format, cat("index ", k, " outside a dimension of ", size));
        flat = flat * size + k;
      }
      if (flat < 0 || flat >= count)
        fail(ErrorCode::bad_format, cat("index ", flat, " outside ", count, " elements"));
      std::memcpy(to + flat * width, static_cast<const char*>(v.data()) + i * width,
                  static_cast<size_t>(width));
    }
    return out;
  });
}

}  // namespace pelton
