// SPDX-License-Identifier: Apache-2.0
// Writes one CUDA program to standard output that launches the kernel of every group on stored inputs and
// compares with the results of the kernel interpreter; it prints a line a group and exits 1 on a difference.
#include <cstdio>

#include "codegen/cuda_emit.h"
#include "codegen/interpret.h"
#include "codegen/lower.h"
#include "kernel_ir/groups.h"

using namespace pelton;
using namespace pelton::codegen;

namespace {

std::string bytes_of(const std::string& name, const Tensor& t) {
  std::string out = cat("static const unsigned char ", name, "[] = {");
  auto data = static_cast<const unsigned char*>(t.data());
  for (int64_t i = 0; i < t.bytes(); ++i) append(out, cat(static_cast<int>(data[i]), ","));
  return out + "0};\n";
}
int dtype_code(DType t) {
  return static_cast<int>(t);
}

// A function of the program that runs one kernel at one set of sizes and returns 1 on a difference.
std::string case_function(int number, const test::Group& group, const SymbolValues& sizes, bool wide) {
  ir::Graph g = ir::parse_graph(group.text);
  Lowered lowered = lower(g, cat(group.name, number));
  PELTON_CHECK(lowered.kernel, group.name, ": ", lowered.reason);
  CudaKernel k = emit_cuda(*lowered.kernel, {.wide_index = wide, .vector = wide ? 4 : 1});
  std::vector<Tensor> inputs = test::inputs_of(g, sizes), outputs = interpret(*lowered.kernel, inputs, sizes);
  std::string text = k.text, body, arguments, checks;
  auto buffer = [&](const std::string& name, const Tensor& t, bool copy) {
    text += bytes_of(cat(name, "_", number), t);
    append(body, cat("  void* ", name, " = 0;\n  cudaMalloc(&", name, ", ", t.bytes() + 1, ");\n"));
    if (copy)
      append(body, cat("  cudaMemcpy(", name, ", ", name, "_", number, ", ", t.bytes(),
                       ", cudaMemcpyHostToDevice);\n"));
    append(arguments, cat("&", name, ", "));
  };
  for (size_t i = 0; i < inputs.size(); ++i) buffer(cat("in", i), inputs[i], true);
  for (size_t i = 0; i < outputs.size(); ++i) {
    buffer(cat("out", i), outputs[i], false);
    append(checks, cat("  bad |= compare(\"", group.name, "\", {out", i, ", out", i, "_", number, ", ",
                       outputs[i].bytes(), ", ", dtype_code(outputs[i].dtype()), "}, ", group.rtol * 4, ", ",
                       group.atol * 4, ");\n"));
  }
  for (size_t i = 0; i < lowered.kernel->sizes.size(); ++i) {
    append(body,
           cat("  ", wide ? "k_s64" : "int", " n", i, " = ", sizes.at(lowered.kernel->sizes[i]), ";\n"));
    append(arguments, cat("&n", i, ", "));
  }
  return cat(text, "static int case", number, "() {\n", body, "  void* list[] = {", arguments,
             "0};\n  cudaLaunchKernel((const void*)", k.entry, ", dim3(",
             std::max<int64_t>(1, k.blocks.eval(sizes)), "), dim3(", k.block,
             "), list, 0, 0);\n  int bad = cudaDeviceSynchronize() != cudaSuccess;\n", checks,
             "  printf(\"%s ", group.name, wide ? " wide" : "",
             "\\n\", bad ? \"FAILED\" : \"ok\");\n  return bad;\n}\n");
}

}  // namespace

int main() {
  std::string text =
      "#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n#include <cmath>\n#include <vector>\n";
  text += cuda_prelude();
  text += R"(
struct Out { void* device; const unsigned char* want; size_t bytes; int dtype; };
static double element(const unsigned char* p, size_t i, int dtype) {
  switch (dtype) {
    case 0: { double v; memcpy(&v, p + 8 * i, 8); return v; }
    case 1: { float v; memcpy(&v, p + 4 * i, 4); return v; }
    case 2: { unsigned short h; memcpy(&h, p + 2 * i, 2); int e = (h >> 10) & 31, m = h & 1023;
      double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24); return h & 0x8000 ? -v : v; }
    case 3: { unsigned short h; memcpy(&h, p + 2 * i, 2); unsigned u = (unsigned)h << 16; float v; memcpy(&v, &u, 4); return v; }
    default: return 0;
  }
}
static int compare(const char* name, const Out& o, double rtol, double atol) {
  std::vector<unsigned char> got(o.bytes + 1);
  cudaMemcpy(got.data(), o.device, o.bytes, cudaMemcpyDeviceToHost);
  if (o.dtype > 3) { if (memcmp(got.data(), o.want, o.bytes)) { printf("%s: integers differ\n", name); return 1; } return 0; }
  size_t width = o.dtype == 0 ? 8 : o.dtype == 1 ? 4 : 2;
  for (size_t i = 0; i < o.bytes / width; ++i) {
    double a = element(got.data(), i, o.dtype), b = element(o.want, i, o.dtype);
    bool same = std::isnan(b) ? std::isnan(a) : a == b || fabs(a - b) <= atol + rtol * fabs(b);
    if (!same) { printf("%s: element %zu is %g, expected %g\n", name, i, a, b); return 1; }
  }
  return 0;
}
)";
  std::string body = "int main() {\n  int failed = 0;\n";
  int number = 0;
  for (const test::Group& group : test::groups())
    for (bool wide : {false, true})
      for (const SymbolValues& sizes : group.sizes) {
        if (wide && group.single_op) continue;
        text += case_function(number, group, sizes, wide);
        append(body, cat("  failed |= case", number++, "();\n"));
      }
  body += "  return failed;\n}\n";
  std::fputs((text + body).c_str(), stdout);
}
