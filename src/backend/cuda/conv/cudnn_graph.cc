// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/conv/cudnn_graph.h"

#include "backend/cuda/libraries.h"
#include "base/cat.h"

namespace pelton::backend::cuda {
namespace {

cudnnDataType_t data_type(DType t) {
  if (t == DType::f16) return CUDNN_DATA_HALF;
  if (t == DType::bf16) return CUDNN_DATA_BFLOAT16;
  if (t == DType::i32) return CUDNN_DATA_INT32;
  if (t == DType::boolean) return CUDNN_DATA_BOOLEAN;
  PELTON_CHECK(t == DType::f32, name(t));
  return CUDNN_DATA_FLOAT;
}

}  // namespace

cudnnBackendDescriptor_t CudnnGraph::make(cudnnBackendDescriptorType_t type) {
  owned_.emplace_back();
  PELTON_CUDA(cudnn().cudnnBackendCreateDescriptor(type, owned_.back().out()));
  return owned_.back().get();
}
bool CudnnGraph::set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  ok_ = ok_ && cudnn().cudnnBackendSetAttribute(d, name, type, count, values) == CUDNN_STATUS_SUCCESS;
  return ok_;
}
void CudnnGraph::finalize(cudnnBackendDescriptor_t d) {
  ok_ = ok_ && cudnn().cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS;
}

CudnnGraph::TensorRef CudnnGraph::tensor(DType type, const std::vector<int64_t>& dims,
                                         const std::vector<int64_t>& strides, bool real) {
  return tensor(data_type(type), dims, strides, real, false);
}
CudnnGraph::TensorRef CudnnGraph::host_number() {
  return tensor(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, true, true);
}
CudnnGraph::TensorRef CudnnGraph::tensor(cudnnDataType_t t, const std::vector<int64_t>& dims,
                                         const std::vector<int64_t>& strides, bool real, bool on_host) {
  cudnnBackendDescriptor_t d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto rank = static_cast<int64_t>(dims.size());
  const auto id = static_cast<int64_t>(tensors_.size()) + 1;
  const int64_t alignment = 16;
  const bool is_virtual = !real;
  set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t);
  set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dims.data());
  set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, strides.data());
  set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  if (on_host) set(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &on_host);
  finalize(d);
  append(text_,
         cat("t", static_cast<int>(t), dims, strides, real ? "" : " virtual", on_host ? " host" : "", "\n"));
  if (real) ids_.push_back(id);
  tensors_.push_back(d);
  return static_cast<TensorRef>(tensors_.size()) - 1;
}

cudnnBackendDescriptor_t CudnnGraph::convolution_of(const Window& window) {
  cudnnBackendDescriptor_t how = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const auto spatial = static_cast<int64_t>(window.strides.size());
  set(how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  set(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set(how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
  set(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, spatial, window.strides.data());
  set(how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, spatial, window.dilations.data());
  set(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, spatial, window.low.data());
  set(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, spatial, window.high.data());
  finalize(how);
  append(text_, cat("window ", window.strides, window.dilations, window.low, window.high, "\n"));
  return how;
}

void CudnnGraph::convolution(TensorRef x, TensorRef w, TensorRef y, const Window& window, bool transposed) {
  cudnnBackendDescriptor_t how = convolution_of(window);
  const float one = 1, zero = 0;
  cudnnBackendDescriptor_t dx = at(x), dw = at(w), dy = at(y);
  cudnnBackendDescriptor_t op = nullptr;
  if (transposed) {
    // The result takes the place of a gradient of the operand.
    op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dx);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dw);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dy);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
  } else {
    op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dx);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dw);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dy);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
  }
  finalize(op);
  append(text_, cat(transposed ? "transposed " : "conv ", x, " ", w, " ", y, "\n"));
  operations_.push_back(op);
}

void CudnnGraph::backward_weights(TensorRef g, TensorRef x, TensorRef dw, const Window& window) {
  cudnnBackendDescriptor_t how = convolution_of(window);
  cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  const float one = 1, zero = 0;
  cudnnBackendDescriptor_t tg = at(g), tx = at(x), tw = at(dw);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tx);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tg);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tw);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
  set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
  finalize(op);
  append(text_, cat("weights ", g, " ", x, " ", dw, "\n"));
  operations_.push_back(op);
}

void CudnnGraph::point(cudnnPointwiseMode_t mode, const Point& p) {
  cudnnBackendDescriptor_t how = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p.compute);
  if (p.slope != 0) set(how, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1, &p.slope);
  if (p.axis) set(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &*p.axis);
  finalize(how);
  cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
  auto operand = [&](cudnnBackendAttributeName_t name, TensorRef t) {
    if (t < 0) return;
    cudnnBackendDescriptor_t d = at(t);
    set(op, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d);
  };
  operand(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
  operand(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
  operand(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.where);
  operand(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y);
  finalize(op);
  append(text_, cat("point ", static_cast<int>(mode), " ", p.x, " ", p.b, " ", p.where, " ", p.y, " ",
                    p.slope, " ", p.axis.value_or(-1), " ", static_cast<int>(p.compute), "\n"));
  operations_.push_back(op);
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, TensorRef x, TensorRef b, TensorRef y, double slope) {
  point(mode, {.x = x, .b = b, .where = -1, .y = y, .slope = slope});
}
void CudnnGraph::index(TensorRef x, int64_t axis, TensorRef y) {
  point(CUDNN_POINTWISE_GEN_INDEX, {.x = x, .b = -1, .where = -1, .y = y, .axis = axis});
}
void CudnnGraph::at_least(TensorRef x, TensorRef b, TensorRef y) {
  point(CUDNN_POINTWISE_CMP_GE, {.x = x, .b = b, .where = -1, .y = y, .compute = CUDNN_DATA_BOOLEAN});
}
void CudnnGraph::select(TensorRef x, TensorRef b, TensorRef where, TensorRef y) {
  point(CUDNN_POINTWISE_BINARY_SELECT, {.x = x, .b = b, .where = where, .y = y});
}

void CudnnGraph::matmul(TensorRef a, TensorRef b, TensorRef c) {
  cudnnBackendDescriptor_t how = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  finalize(how);
  cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  cudnnBackendDescriptor_t da = at(a), db = at(b), dc = at(c);
  set(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &da);
  set(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &db);
  set(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dc);
  set(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
  finalize(op);
  append(text_, cat("matmul ", a, " ", b, " ", c, "\n"));
  operations_.push_back(op);
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t mode, TensorRef x, TensorRef y) {
  cudnnBackendDescriptor_t how = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  finalize(how);
  cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  cudnnBackendDescriptor_t dx = at(x), dy = at(y);
  set(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dx);
  set(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dy);
  set(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
  finalize(op);
  append(text_, cat("reduce ", static_cast<int>(mode), " ", x, " ", y, "\n"));
  operations_.push_back(op);
}

void CudnnGraph::reshape(TensorRef x, TensorRef y) {
  cudnnBackendDescriptor_t op = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  cudnnBackendDescriptor_t dx = at(x), dy = at(y);
  set(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dx);
  set(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &dy);
  finalize(op);
  append(text_, cat("reshape ", x, " ", y, "\n"));
  operations_.push_back(op);
}

}  // namespace pelton::backend::cuda
