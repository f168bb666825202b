// SPDX-License-Identifier: Apache-2.0
// s3://BUCKET/KEY as an HTTP address and what signs its requests. All but the name comes from the
// environment, by the names that other clients use: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION (us-east-1), AWS_ENDPOINT_URL (of another server than
// Amazon's).
#pragma once

#include <string>
#include <string_view>

namespace pelton::data {

bool is_s3(std::string_view url);

struct S3Address {
  std::string url;  // https://BUCKET.s3.REGION.amazonaws.com/KEY, or ENDPOINT/BUCKET/KEY
  std::string region, key_id, secret, token;
  bool signs() const { return !key_id.empty(); }  // else the object has to be public
};
// A usage error names a bucket or key that cannot be, or half a pair of keys.
S3Address s3_address(const std::string& url);

}  // namespace pelton::data
