// SPDX-License-Identifier: Apache-2.0
#include "serve/grpc/answer.h"

#include <google/protobuf/io/coded_stream.h>

#include <atomic>
#include <limits>

#include "base/error.h"
#include "grpc_service.pb.h"
#include "serve/grpc/convert.h"

namespace pelton::serve {
namespace {

namespace pb = inference;
using google::protobuf::io::CodedOutputStream;

constexpr size_t kLent = 16 << 10;  // tensors above it are lent, those below it copied

// Wire tags of fields that hold a length and bytes.
constexpr char kRawOutput = pb::ModelInferResponse::kRawOutputContentsFieldNumber << 3 | 2;
constexpr char kInferResponse = pb::ModelStreamInferResponse::kInferResponseFieldNumber << 3 | 2;

void append_head(std::string& out, char tag, size_t size) {
  out += tag;
  uint8_t varint[10];
  out.append(reinterpret_cast<char*>(varint),
             static_cast<size_t>(CodedOutputStream::WriteVarint64ToArray(size, varint) - varint));
}
size_t field_size(size_t size) {
  return 1 + CodedOutputStream::VarintSize64(size) + size;
}

struct Loan {
  Blob blob;
  std::shared_ptr<const void> room;
  std::atomic<bool> whole{false};  // orders writing it before the library's thread that ends it
};

class Message {
 public:
  explicit Message(std::shared_ptr<const void> room) : room_(std::move(room)) {}
  std::string text;  // what is not lent yet
  void lend(Blob&& blob) {
    if (!text.empty()) slices_.emplace_back(text);
    text.clear();
    add(std::move(blob));
  }
  grpc::ByteBuffer finish() {
    if (room_)
      add(Blob::from(std::move(text)));  // somebody has to hold the room
    else if (!text.empty())
      slices_.emplace_back(text);
    return {slices_.data(), slices_.size()};
  }

 private:
  void add(Blob&& blob) {
    auto* const loan = new Loan{std::move(blob), room_};
    loan->whole.store(true, std::memory_order_release);
    slices_.emplace_back(
        const_cast<char*>(loan->blob.data), loan->blob.size,
        [](void* p) {
          auto* const l = static_cast<Loan*>(p);
          (void)l->whole.load(std::memory_order_acquire);
          delete l;
        },
        loan);
  }

  const std::shared_ptr<const void> room_;
  std::vector<grpc::Slice> slices_;
};

grpc::ByteBuffer write(Response&& r, const std::vector<RequestedOutput>& outputs, MemoryGate& gate,
                       bool stream) {
  pb::ModelInferResponse head;
  write_infer_head(r, outputs, head);
  size_t size = head.ByteSizeLong();
  for (const TensorValue& t : r.outputs) size += field_size(t.data.size);
  if (size > std::numeric_limits<int32_t>::max() - size_t{16})
    fail(ErrorCode::limit, cat("the answer has ", size, " bytes, a gRPC message at most 2 GiB"), r.model,
         "ask for fewer rows, or put outputs into shared memory");
  std::shared_ptr<const void> room;
  // A small one is left out where one follows the other, and hides behind its request.
  if ((stream || size > kLent) && !(room = take_room(gate, size)))
    fail(ErrorCode::busy, "the server holds as many bytes of answers as it may", r.model, "retry later");
  Message m(std::move(room));
  if (stream) append_head(m.text, kInferResponse, size);
  head.AppendToString(&m.text);
  for (TensorValue& t : r.outputs) {
    append_head(m.text, kRawOutput, t.data.size);
    if (t.data.size > kLent)
      m.lend(std::move(t.data));
    else
      m.text.append(t.data.data, t.data.size);
  }
  return m.finish();
}

}  // namespace

grpc::ByteBuffer infer_answer(Response&& r, const std::vector<RequestedOutput>& outputs, MemoryGate& gate) {
  return write(std::move(r), outputs, gate, false);
}

grpc::ByteBuffer stream_answer(Response&& r, const std::vector<RequestedOutput>& outputs, MemoryGate& gate) {
  return write(std::move(r), outputs, gate, true);
}

grpc::ByteBuffer stream_error(const std::string& id, const std::string& message) {
  pb::ModelStreamInferResponse m;
  m.set_error_message(message);
  m.mutable_infer_response()->set_id(id);
  const grpc::Slice slice(m.SerializeAsString());
  return {&slice, 1};
}

}  // namespace pelton::serve
