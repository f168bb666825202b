// SPDX-License-Identifier: Apache-2.0
// Sends spans to an OpenTelemetry collector: OTLP over HTTP in JSON, from a thread of its own. What the
// collector does not take is dropped and counted; requests never wait for it.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace pelton::serve {

class OtlpExporter {
 public:
  // `url`: http://host[:port][/path]; the path is /v1/traces if absent. usage error on anything else.
  OtlpExporter(const std::string& url, std::map<std::string, std::string> resource);
  ~OtlpExporter();  // sends what waits
  void add(std::string span);

 private:
  void work();
  bool post(const std::string& body) const;

  std::string host_, port_ = "4318", path_ = "/v1/traces", head_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::string> spans_;
  uint64_t dropped_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pelton::serve
