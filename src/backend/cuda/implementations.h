// SPDX-License-Identifier: Apache-2.0
// The families of CUDA implementations, each added by one call; register.cc fixes their order.
#pragma once

#include <set>
#include <string>

#include "backend/kernel.h"

namespace pelton::backend::cuda {

struct CudnnMachine;

void add_conv(Registry& registry);  // convolutions with what follows them
inline constexpr std::string_view kConv = "cuda.conv";
void add_conv_backward(Registry& registry);   // gradients of their weights
void add_pool(Registry& registry);            // pooling, means of channels-last data
void add_squeeze_excite(Registry& registry);  // groups of passes/fuse_blocks.h
void add_excite(Registry& registry);          // likewise, around a depthwise convolution
void add_attention(Registry& registry);       // with the views around it
inline constexpr std::string_view kAttention = "cuda.attention";
void add_attention_backward(Registry& registry);
// cuDNN's plans among which preparing the instance would choose, for a GPU that is not here, kept (kept.h);
// how many.
size_t keep_conv_plans(const Instance& instance, const device::Target& target, const CudnnMachine& machine);
size_t keep_attention_plans(const Instance& instance, const device::Target& target,
                            const CudnnMachine& machine);

// Why a GPU of this compute capability cannot be used; or empty.
std::string why_too_old(int ordinal, std::string_view product, int major, int minor);
// The device of a target, shared while it is in use.
std::shared_ptr<device::Device> open_device(const device::Target& target);

void add_contraction(Registry& registry);  // matmul on cuBLASLt
void add_generated(Registry& registry);    // groups and single nodes through the kernel IR
inline constexpr std::string_view kGenerated = "cuda.generated";
// The kernel that preparing the instance would load, compiled and kept (kept.h). Needs no GPU.
void compile_generated(const Instance& instance, const device::Target& target);
// Adds the texts of the kernels that it would load.
void count_generated(const Instance& instance, const device::Target& target, std::set<std::string>& texts);
// From now on groups of this thread's plan are compiled in the form that they share (codegen/shared_form.h).
void share_texts();
void add_segments(Registry& registry);  // one launch for many tensors (ir/segments.h)
inline constexpr std::string_view kSegmented = "cuda.segments";
void compile_segments(const Instance& instance, const device::Target& target);
void add_gather(Registry& registry);
void add_control(Registry& registry);    // if, loop and scan as conditional nodes
void add_recurrent(Registry& registry);  // lstm, gru and rnn
void add_integer(Registry& registry);    // contractions of 8-bit integers

void add_norm(Registry& registry);     // norms and softmax over rows
void add_ranking(Registry& registry);  // topk, sort, arg_max, cumsum
void add_resample(Registry& registry);

// What training needs besides.
void add_random(Registry& registry);             // dropout and numbers
void add_index(Registry& registry);              // elements gathered, slices scattered
void add_column_sum(Registry& registry);         // gradients of biases
void add_loss(Registry& registry);               // cross entropy and its gradient
void add_batch_norm(Registry& registry);         // its training form and gradient
void add_product_gradient(Registry& registry);   // with an activation's gradient or a bias's
void add_row_norm_backward(Registry& registry);  // of layer_norm and rms_norm

}  // namespace pelton::backend::cuda
