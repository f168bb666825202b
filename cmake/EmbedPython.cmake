# SPDX-License-Identifier: Apache-2.0
# Writes OUT, a source file that holds the texts of WORKER and UTILS: cmake -DOUT=... -DWORKER=... -DUTILS=... -P
file(READ ${WORKER} worker)
file(READ ${UTILS} utils)
file(WRITE ${OUT} "#include \"serve/engine/python_sources.h\"
namespace pelton::serve {
std::string_view python_worker_source() {
  return R\"pelton(${worker})pelton\";
}
std::string_view python_utils_source() {
  return R\"pelton(${utils})pelton\";
}
}  // namespace pelton::serve
")
