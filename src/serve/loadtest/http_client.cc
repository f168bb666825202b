// SPDX-License-Identifier: Apache-2.0
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/json_number.h"
#include "serve/core/model_dir.h"
#include "serve/loadtest/client.h"
#include "serve/loadtest/region.h"
#include "tensor/tensor.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

Fd connect_to(const Endpoint& endpoint, double timeout_s) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (int e = ::getaddrinfo(endpoint.host.c_str(), cat(endpoint.port).c_str(), &hints, &list))
    fail(ErrorCode::io, cat("cannot find the host: ", ::gai_strerror(e)), endpoint.host);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  int error = 0;
  for (const addrinfo* a = list; a; a = a->ai_next) {
    Fd fd(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
    if (fd.get() >= 0 && ::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) {
      int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const auto us = static_cast<int64_t>(timeout_s * 1e6);
      const timeval limit{us / 1'000'000, us % 1'000'000};
      ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
      return fd;
    }
    error = errno;
  }
  fail(ErrorCode::io, cat("cannot connect: ", std::strerror(error)), endpoint.authority(),
       "start the server, or name its port");
}

// One segment of a path.
std::string segment(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) || c == '-' || c == '_' || c == '.' || c == '~')
      out += c;
    else
      out += {'%', kHex[u >> 4], kHex[u & 15]};
  }
  return out;
}

std::string model_path(const LoadOptions& o) {
  return cat("/v2/models/", segment(o.model), o.version.empty() ? "" : cat("/versions/", segment(o.version)));
}

class HttpClient final : public LoadClient {
 public:
  HttpClient(const Endpoint& endpoint, double timeout_s)
      : endpoint_(endpoint),
        timeout_s_(timeout_s),
        authority_(endpoint.authority()),
        fd_(connect_to(endpoint_, timeout_s_)) {}

  TargetModel describe(const LoadOptions& o) override {
    const std::string path = model_path(o);
    const Json meta = get(path), config = get(path + "/config");
    try {
      return read_description(meta, config, o.model);
    } catch (const Json::exception& e) {
      fail(ErrorCode::bad_format, cat("the server describes the model in another way: ", e.what()), path);
    }
  }

  ~HttpClient() override {
    if (!region_) return;
    try {
      post(cat("/v2/systemsharedmemory/region/", region_->name(), "/unregister"), "");
    } catch (const Error&) {  // the server has gone, and its registration with it
    }
  }

  void prepare(const LoadOptions& o, const TargetModel& model,
               const std::vector<TensorValue>& inputs) override {
    path_ = model_path(o) + "/infer";
    json_data_ = o.json_data;
    head_ = Json::object();
    tail_.clear();
    for (const TensorValue& t : inputs) {
      Json in = {{"name", t.name}, {"datatype", std::string(wire_name(t.dtype))}, {"shape", t.dims}};
      if (o.shared_memory) {
        // placed below
      } else if (!o.json_data) {
        in["parameters"] = {{"binary_data_size", t.data.size}};
        tail_.append(t.data.data, t.data.size);
      } else if (t.dtype == DType::string) {
        in["data"] = split_bytes(t.data.data, t.data.size);
      } else {
        const Tensor values = Tensor::borrow(t.dtype, t.dims, t.data.data, t.data.owner);
        if (is_float(t.dtype))
          in["data"] = to_doubles(values);
        else
          in["data"] = to_ints(values);
      }
      head_["inputs"].push_back(std::move(in));
    }
    if (o.shared_memory)
      use_region(o, model, inputs);
    else if (!o.json_data)
      head_["parameters"]["binary_data_output"] = true;
    message_ = build(head_);
  }

  std::string infer(const SequenceMark& mark) override {
    if (mark.id) {
      head_["parameters"]["sequence_id"] = mark.id;
      head_["parameters"]["sequence_start"] = mark.start;
      head_["parameters"]["sequence_end"] = mark.end;
      message_ = build(head_);
    }
    try {
      send_all(message_);
      std::string body;
      const int status = receive(body, false);
      return status == 200 ? "" : cat("HTTP ", status, ": ", body.substr(0, 300));
    } catch (const Error& e) {
      const std::string why = e.what();
      reconnect();
      return why;
    }
  }

 private:
  static TargetModel read_description(const Json& meta, const Json& config, const std::string& model) {
    TargetModel m;
    m.version = meta.at("versions").at(0);
    m.batches = config.contains("max_batch_size") && json_integer(config["max_batch_size"]) > 0;
    if (auto policy = config.find("model_transaction_policy"); policy != config.end())
      m.decoupled = policy->value("decoupled", false);
    for (const Json& in : meta.at("inputs")) {
      InputSpec s;
      s.name = in.at("name");
      const auto dtype = dtype_from_wire(in.at("datatype").get<std::string>());
      if (!dtype) fail(ErrorCode::bad_type, cat("input '", s.name, "' has an unknown type"), model);
      s.dtype = *dtype;
      s.dims = json_integers(in.at("shape"));
      m.inputs.push_back(std::move(s));
    }
    for (const Json& out : meta.at("outputs")) m.outputs.push_back(out.at("name"));
    return m;
  }

  void reconnect() {
    fd_ = connect_to(endpoint_, timeout_s_);
    buffer_.clear();
    closing_ = false;
  }

  std::string build(const Json& head) const {
    const std::string json = head.dump();
    std::string m = cat("POST ", path_, " HTTP/1.1\r\nHost: ", authority_,
                        "\r\nContent-Length: ", json.size() + tail_.size(), "\r\n");
    if (!json_data_)
      m += cat("Inference-Header-Content-Length: ", json.size(),
               "\r\nContent-Type: application/octet-stream\r\n");
    else
      m += "Content-Type: application/json\r\n";
    return m + "\r\n" + json + tail_;
  }

  void use_region(const LoadOptions& o, const TargetModel& model, const std::vector<TensorValue>& inputs) {
    size_t size = 0;
    for (const TensorValue& t : inputs) size += region_step(t.data.size);
    size += region_step(o.output_bytes) * model.outputs.size();
    region_ = std::make_unique<LoadRegion>(size);
    size_t at = 0;
    auto place = [&](Json& tensor, size_t bytes) {
      tensor["parameters"] = {{"shared_memory_region", region_->name()}, {"shared_memory_byte_size", bytes}};
      if (at) tensor["parameters"]["shared_memory_offset"] = at;
      at += region_step(bytes);
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::memcpy(region_->data() + at, inputs[i].data.data, inputs[i].data.size);
      place(head_["inputs"][i], inputs[i].data.size);
    }
    for (const std::string& name : model.outputs) {
      head_["outputs"].push_back({{"name", name}});
      place(head_["outputs"].back(), o.output_bytes);
    }
    post(cat("/v2/systemsharedmemory/region/", region_->name(), "/register"),
         Json{{"key", region_->key()}, {"offset", 0}, {"byte_size", size}}.dump());
  }

  void post(const std::string& path, const std::string& body) {
    send_all(cat("POST ", path, " HTTP/1.1\r\nHost: ", authority_, "\r\nContent-Length: ", body.size(),
                 "\r\n\r\n", body));
    std::string answer;
    const int status = receive(answer, true);
    if (status != 200)
      fail(ErrorCode::io, cat("the server answers ", status, ": ", answer.substr(0, 300)), path);
  }

  Json get(const std::string& path) {
    send_all(cat("GET ", path, " HTTP/1.1\r\nHost: ", authority_, "\r\n\r\n"));
    std::string body;
    const int status = receive(body, true);
    Json j = Json::parse(body, nullptr, false);
    if (status != 200 || !j.is_object())
      fail(ErrorCode::not_found,
           j.is_object() && j.contains("error") && j["error"].is_string()
               ? j["error"].get<std::string>()
               : cat("the server answers ", status),
           path);
    return j;
  }

  void send_all(const std::string& data) {
    if (closing_) reconnect();
    for (size_t at = 0; at < data.size();) {
      const ssize_t n = ::send(fd_.get(), data.data() + at, data.size() - at, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        fail(ErrorCode::io, cat("the connection broke while sending: ", std::strerror(errno)), authority_);
      at += static_cast<size_t>(n);
    }
  }

  size_t fill() {
    if (chunk_.size() < 262144) chunk_.resize(262144);
    for (;;) {
      const ssize_t n = ::recv(fd_.get(), chunk_.data(), chunk_.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) fail(ErrorCode::io, "the server closed the connection", authority_);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        fail(ErrorCode::deadline, "the server gave no answer in time", authority_);
      if (n < 0)
        fail(ErrorCode::io, cat("the connection broke while receiving: ", std::strerror(errno)), authority_);
      return static_cast<size_t>(n);
    }
  }

  static std::optional<std::string_view> value_of(std::string_view line, std::string_view name) {
    if (line.size() < name.size() || ::strncasecmp(line.data(), name.data(), name.size()) != 0) return {};
    line.remove_prefix(name.size());
    while (line.starts_with(" ")) line.remove_prefix(1);
    while (line.ends_with(" ")) line.remove_suffix(1);
    return line;
  }

  // Status of the next answer. The body is kept when it is wanted or the status is no success.
  int receive(std::string& body, bool wanted) {
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      const size_t n = fill();
      buffer_.append(chunk_.data(), n);
    }
    int status = 0;
    if (buffer_.size() > 12) std::from_chars(buffer_.data() + 9, buffer_.data() + 12, status);
    std::string_view length_text, connection;
    for (size_t at = buffer_.find("\r\n"); at < end; at = buffer_.find("\r\n", at + 2)) {
      const std::string_view line =
          std::string_view(buffer_).substr(at + 2, buffer_.find("\r\n", at + 2) - at - 2);
      if (auto v = value_of(line, "content-length:")) length_text = *v;
      if (auto v = value_of(line, "connection:")) connection = *v;
    }
    size_t length = 0;
    const auto read = std::from_chars(length_text.data(), length_text.data() + length_text.size(), length);
    if (length_text.empty() || read.ec != std::errc() || read.ptr != length_text.data() + length_text.size())
      fail(ErrorCode::bad_format,
           cat("an answer with status ", status, " and without a usable Content-Length"), authority_);
    closing_ = connection.size() == 5 && ::strncasecmp(connection.data(), "close", 5) == 0;
    buffer_.erase(0, end + 4);
    const bool keep = wanted || status != 200;
    while (buffer_.size() < length) {
      const size_t n = fill();
      if (keep || n > length - buffer_.size()) {
        buffer_.append(chunk_.data(), n);
      } else {  // a large answer is read and dropped
        length -= n;
      }
    }
    if (keep) body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return status;
  }

  const Endpoint endpoint_;
  const double timeout_s_;
  const std::string authority_;
  Fd fd_;
  bool closing_ = false;  // the server closes the connection behind its last answer
  std::string path_, tail_, message_, buffer_, chunk_;
  Json head_;
  std::unique_ptr<LoadRegion> region_;
  bool json_data_ = false;
};

}  // namespace

std::unique_ptr<LoadClient> make_http_client(const Endpoint& endpoint, double timeout_s) {
  return std::make_unique<HttpClient>(endpoint, timeout_s);
}

}  // namespace pelton::serve
