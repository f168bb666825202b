# SPDX-License-Identifier: Apache-2.0
"""What the server asks of NVIDIA's libraries, with libraries of the tests in their place, and a real GPU if there is one."""
import base64
import json
import pathlib
import re
import subprocess
import tempfile

import numpy as np
import pytest
from conftest import add_model, binary, identity
from onnx import TensorProto, helper, numpy_helper

REASON = "tritonclient is not installed"
http = pytest.importorskip("tritonclient.http", reason=REASON)
grpc = pytest.importorskip("tritonclient.grpc", reason=REASON)
from tritonclient.utils import InferenceServerException  # noqa: E402

# "Device" memory is a file of the size that a handle tells: 64 bytes with a path in front.
DRIVER = r"""
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
typedef unsigned long long address;
typedef struct { char bytes[64]; } handle;
static char* base; static size_t size; static int opened;
int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDeviceGet(int* device, int n) { *device = n; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { (void)device; *context = &base; return 0; }
int cuCtxSetCurrent(void* context) { return context == &base ? 0 : 201; }
int cuIpcOpenMemHandle_v2(address* a, handle h, unsigned flags) {
  struct stat st;
  int file = h.bytes[0] == '/' && flags == 1 ? open(h.bytes, O_RDWR) : -1;
  if (file < 0) return 400;
  fstat(file, &st);
  size = (size_t)st.st_size;
  base = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  ++opened;
  *a = (address)base;
  return 0;
}
int cuIpcCloseMemHandle(address a) { --opened; return munmap((void*)a, size); }
int cuMemGetAddressRange_v2(address* b, size_t* n, address a) { *b = a; *n = size; return 0; }
int cuMemcpyDtoH_v2(void* to, address from, size_t n) { memcpy(to, (void*)from, n); return 0; }
int cuMemcpyHtoD_v2(address to, const void* from, size_t n) { memcpy((void*)to, from, n); return 0; }
int cuGetErrorName(int error, const char** text) { *text = error == 400 ? "CUDA_ERROR_INVALID_HANDLE" : "CUDA_ERROR"; return 0; }
"""
MANAGEMENT = r"""
#include <stdio.h>
struct use { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
static int devices[2] = {0, 1};
#define INDEX(d) (*(int*)(d))
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** d) { *d = &devices[i]; return 0; }
int nvmlDeviceGetUUID(void* d, char* text, unsigned n) { snprintf(text, n, "GPU-%d", INDEX(d)); return 0; }
int nvmlDeviceGetUtilizationRates(void* d, struct use* u) { u->gpu = 25 + 50 * INDEX(d); return 0; }
int nvmlDeviceGetMemoryInfo(void* d, struct memory* m) { m->total = 150754820097ull; m->used = 1000 + INDEX(d); return 0; }
int nvmlDeviceGetPowerUsage(void* d, unsigned* mw) { *mw = 123456; return INDEX(d) ? 3 : 0; }
int nvmlDeviceGetEnforcedPowerLimit(void* d, unsigned* mw) { (void)d; *mw = 700000; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void* d, unsigned long long* mj) { (void)d; *mj = 1500; return 0; }
"""


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    folder = tmp_path / "libraries"
    folder.mkdir()
    for name, text in (("libcuda.so.1", DRIVER), ("libnvidia-ml.so.1", MANAGEMENT)):
        source = folder / f"{name}.c"
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", str(source), "-o", str(folder / name)], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


@pytest.fixture
def memory():
    """A file that stands for memory of the client's GPU: its handle as the driver would give it out, and its content."""
    with tempfile.TemporaryDirectory() as folder:                   # a short path: a handle has 64 bytes
        path = pathlib.Path(folder) / "gpu"
        path.write_bytes(bytes(4096))
        yield str(path).encode().ljust(64, b"\0"), path


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_inputs_and_outputs_in_the_memory_of_a_gpu(serve, libraries, memory, module):
    raw, path = memory
    handle = base64.b64encode(raw)
    add_model(serve.repository, "id", identity())
    server = serve("--allow-client-shm=true", "--device=cpu")
    client = module.InferenceServerClient(server.http if module is http else server.grpc)
    metadata = client.get_server_metadata() if module is http else client.get_server_metadata(as_json=True)
    assert "cuda_shared_memory" in metadata["extensions"]
    client.register_cuda_shared_memory("gpu", handle.decode() if module is http else handle, 0, 4096)
    status = client.get_cuda_shared_memory_status() if module is http else client.get_cuda_shared_memory_status(as_json=True)
    entry = status[0] if module is http else status["regions"]["gpu"]
    assert entry["name"] == "gpu" and int(entry["byte_size"]) == 4096
    system = client.get_system_shared_memory_status() if module is http else client.get_system_shared_memory_status(as_json=True)
    assert not (system if module is http else system.get("regions"))
    values = np.arange(256, dtype=np.float32)
    with path.open("r+b") as f:
        f.seek(1024)
        f.write(values.tobytes())
    given = module.InferInput("INPUT0", [256], "FP32")
    given.set_shared_memory("gpu", 1024, offset=1024)
    wanted = module.InferRequestedOutput("OUTPUT0")
    wanted.set_shared_memory("gpu", 1024, offset=3072)
    client.infer("id", [given], outputs=[wanted])
    assert path.read_bytes()[3072:] == values.tobytes() and path.read_bytes()[:1024] == bytes(1024)
    for words, change in (("lie outside", lambda: given.set_shared_memory("gpu", 1024, offset=3500)),
                          ("its place in shared memory region 'gpu'", lambda: wanted.set_shared_memory("gpu", 512))):
        given.set_shared_memory("gpu", 1024, offset=1024)
        change()
        with pytest.raises(InferenceServerException, match=words):
            client.infer("id", [given], outputs=[wanted])
    with pytest.raises(InferenceServerException, match="already registered"):
        client.register_cuda_shared_memory("gpu", handle.decode() if module is http else handle, 0, 4096)
    for name, bad, device, size, words in (("a", base64.b64encode(bytes(64)), 0, 64, "CUDA_ERROR_INVALID_HANDLE"),
                                           ("b", base64.b64encode(b"short"), 0, 64, "has 64 bytes, not 5"),
                                           ("c", handle, 7, 64, "there is no CUDA device 7"),
                                           ("d", handle, 0, 4097, "has only 4096")):
        with pytest.raises(InferenceServerException, match=words):
            client.register_cuda_shared_memory(name, bad.decode() if module is http else bad, device, size)
    client.unregister_system_shared_memory("gpu")                   # of another kind: stays
    wanted.set_shared_memory("gpu", 1024)
    client.infer("id", [given], outputs=[wanted])
    client.unregister_cuda_shared_memory("gpu")
    with pytest.raises(InferenceServerException, match="no shared memory region 'gpu'"):
        client.infer("id", [given], outputs=[wanted])


def test_without_a_gpu_it_is_said(serve, memory, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    add_model(serve.repository, "id", identity())
    body = {"raw_handle": {"b64": base64.b64encode(memory[0]).decode()}, "device_id": 0, "byte_size": 64}
    server = serve("--device=cpu")
    status, answer = server.json("/v2/cudasharedmemory/region/r/register", body)
    assert status == 501 and "--allow-client-shm" in answer["error"]
    server.stop()
    server = serve("--device=cpu", "--allow-client-shm=true")
    status, answer = server.json("/v2/cudasharedmemory/region/r/register", body)
    if status != 200:                                               # a machine with a driver knows better
        assert "CUDA shared memory needs a GPU" in answer["error"] or "handle" in answer["error"].lower()


def test_metrics_of_gpus(serve, libraries):
    add_model(serve.repository, "id", identity())
    server = serve("--device=cpu")
    text = server.request("/metrics", base=server.metrics)[2].decode()
    rows = dict(re.findall(r'^(nv_(?:gpu|energy)\w+\{gpu_uuid="GPU-\d"\}) (\S+)$', text, re.M))
    assert rows == {'nv_gpu_utilization{gpu_uuid="GPU-0"}': "0.25", 'nv_gpu_utilization{gpu_uuid="GPU-1"}': "0.75",
                    'nv_gpu_memory_total_bytes{gpu_uuid="GPU-0"}': "150754820097", 'nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"}': "150754820097",
                    'nv_gpu_memory_used_bytes{gpu_uuid="GPU-0"}': "1000", 'nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"}': "1001",
                    'nv_gpu_power_usage{gpu_uuid="GPU-0"}': "123.456",                                # the other does not know
                    'nv_gpu_power_limit{gpu_uuid="GPU-0"}': "700", 'nv_gpu_power_limit{gpu_uuid="GPU-1"}': "700",
                    'nv_energy_consumption{gpu_uuid="GPU-0"}': "1.5", 'nv_energy_consumption{gpu_uuid="GPU-1"}': "1.5"}
    assert "# TYPE nv_energy_consumption counter" in text and "# TYPE nv_gpu_utilization gauge" in text
    server.stop()
    server = serve("--device=cpu", "--allow-gpu-metrics=false", "--allow-cpu-metrics=false")
    text = server.request("/metrics", base=server.metrics)[2].decode()
    assert "nv_gpu" not in text and "nv_cpu" not in text


def test_instances_on_gpus_that_are_not_there(serve):
    for name, group, words in (("one", "kind: KIND_GPU", "asks for a GPU, but backend 'identity' has none to use"),
                               ("two", "kind: KIND_GPU gpus: [ 1 ]", "asks for GPU 1, but backend 'identity' has none to use"),
                               ("three", "kind: KIND_CPU gpus: [ 0 ]", "of kind KIND_CPU lists gpus")):
        add_model(serve.repository, name, identity(more="instance_group { %s }" % group))
    add_model(serve.repository, "auto", identity(more="instance_group { kind: KIND_AUTO count: 2 }"))
    server = serve("--device=cpu", "--exit-on-error=false")
    for name, words in (("one", "asks for a GPU, but backend 'identity' has none"), ("two", "asks for GPU 1"), ("three", "lists gpus")):
        status, answer = server.infer(name, [1])
        assert status == 404 and words in answer["error"], answer
    assert server.infer("auto", [1])[0] == 200


def test_summaries_on_request(serve):
    add_model(serve.repository, "id", identity())
    server = serve("--device=cpu", "--metrics-config=summary_latencies=true", "--metrics-config=summary_quantiles=0.5:0.05,0.99:0.001",
                   "--metrics-config=counter_latencies=false")
    for _ in range(20):
        server.infer("id", [1])
    text = server.request("/metrics", base=server.metrics)[2].decode()
    for stage in ("request", "queue", "compute_input", "compute_infer", "compute_output"):
        family = f"nv_inference_{stage}_summary_us"
        low, high = (float(re.search(rf'^{family}{{model="id",version="1",quantile="{q}"}} (\S+)$', text, re.M)[1]) for q in ("0.5", "0.99"))
        assert 0 <= low <= high
        assert f'{family}_count{{model="id",version="1"}} 20' in text and f"# TYPE {family} summary" in text
    assert "nv_inference_request_duration_us" not in text and "pelton_request_duration_seconds_bucket" in text
    server.stop()
    server = serve("--device=cpu")
    server.infer("id", [1])
    assert "summary" not in server.request("/metrics", base=server.metrics)[2].decode()


def test_instances_run_on_the_gpu_of_this_machine(serve):
    """The same model on the CPU and on a GPU, alone and in batches: the same answers."""
    report = subprocess.run([binary(), "--json", "doctor"], capture_output=True, text=True, check=True)
    if not json.loads(report.stdout)["gpu"].get("devices"):
        pytest.skip("no GPU that this build can use")
    weight = numpy_helper.from_array(np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    for name, group in (("cpu", "kind: KIND_CPU"), ("gpu", "kind: KIND_GPU count: 2"), ("auto", "")):
        add_model(serve.repository, name, 'backend: "onnxruntime" max_batch_size: 16 dynamic_batching { } optimization { cuda { graphs: true } } '
                  'instance_group { %s }' % group, files={"1/model.onnx": model})
    client = http.InferenceServerClient(serve().http)
    for rows in (1, 3, 16):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
        given = http.InferInput("x", list(x.shape), "FP32")
        given.set_data_from_numpy(x)
        for name in ("cpu", "gpu", "auto"):
            np.testing.assert_allclose(client.infer(name, [given]).as_numpy("y"), np.tanh(x @ numpy_helper.to_array(weight)), rtol=1e-4, atol=1e-5)
    low = serve("--min-supported-compute-capability=99.0", "--exit-on-error=false")
    status, answer = low.json("/v2/models/gpu/infer", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [0.0] * 64}]})
    assert status == 404 and "has none to use" in answer["error"]
    assert low.json("/v2/models/auto/ready")[0] == 200
