// SPDX-License-Identifier: Apache-2.0
#include "serve/http/raw_request.h"

#include "base/error.h"
#include "serve/core/model.h"

namespace pelton::serve {

void read_raw_request(Request& r, const Blob& body, const ModelConfig& config, MemoryGate& gate) {
  if (config.inputs.size() != 1) {
    std::string names;
    for (const TensorSpec& t : config.inputs) names += cat(names.empty() ? "" : ", ", t.name);
    fail(ErrorCode::bad_format,
         cat("a raw request is of one input, model '", config.name, "' has ", config.inputs.size(), ": ",
             names),
         "", "name the inputs in JSON");
  }
  const TensorSpec& spec = config.inputs[0];
  const Dims declared = client_dims(config, spec);
  const size_t lead = config.max_batch > 0 ? 1 : 0;
  TensorValue t{spec.name, spec.dtype, declared, body};
  if (lead) t.dims[0] = 1;
  auto wrong = [&] {
    fail(ErrorCode::bad_shape, cat("a raw request of ", body.size, " bytes does not fit input '", spec.name,
                                   "' of type ", wire_name(spec.dtype), " and shape ", declared));
  };
  size_t open = t.dims.size();  // the place of the open dimension
  for (size_t i = lead; i < t.dims.size(); ++i)
    if (t.dims[i] == -1) {
      if (open < t.dims.size() && spec.dtype != DType::string) wrong();
      open = i;
      t.dims[i] = 1;
    }
  const auto count = checked_count(t.dims);
  if (!count) wrong();
  if (spec.dtype == DType::string) {
    if (*count != 1) wrong();
    std::string element;
    append_bytes_element(element, {body.data, body.size});
    t.data = counted(gate, Blob::from(std::move(element)));
  } else if (open < t.dims.size()) {
    size_t step = 0;  // bytes that one more of the open dimension takes
    if (__builtin_mul_overflow(static_cast<size_t>(*count), static_cast<size_t>(bits(spec.dtype) / 8),
                               &step) ||
        step == 0 || body.size % step)
      wrong();
    t.dims[open] = static_cast<int64_t>(body.size / step);
  }
  r.inputs.push_back(std::move(t));  // a shape without an open dimension is checked with every other request
}

}  // namespace pelton::serve
