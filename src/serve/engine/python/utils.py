# SPDX-License-Identifier: Apache-2.0
# The module that models import as triton_python_backend_utils. It runs in the model's own process; `_link` is the
# connection to the server, set by worker.py. Names are those that existing models use.
import asyncio
import json
import threading

import numpy as np

_link = None

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_CPU = 0
TRITONSERVER_MEMORY_CPU_PINNED = 1
TRITONSERVER_MEMORY_GPU = 2

_NUMPY = {"BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
          "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16,
          "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_}
_WIRE = {np.dtype(v): k for k, v in _NUMPY.items() if k != "BYTES"}


class TritonModelException(Exception):
    pass


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message, code=1):
        self._message, self._code = str(message), int(code)

    def message(self):
        return self._message

    def code(self):
        return self._code


def triton_string_to_numpy(name):
    name = name.removeprefix("TYPE_")
    return _NUMPY.get("BYTES" if name == "STRING" else name)


def triton_to_numpy_type(name):
    return triton_string_to_numpy(name if isinstance(name, str) else str(name))


def numpy_to_triton_type(dtype):
    dtype = np.dtype(dtype)
    return "TYPE_" + _WIRE[dtype] if dtype in _WIRE else "TYPE_STRING"


def serialize_byte_tensor(values):
    out = bytearray()
    for v in np.asarray(values, dtype=np.object_).reshape(-1):
        b = v if isinstance(v, (bytes, bytearray)) else str(v).encode()
        out += len(b).to_bytes(4, "little") + b
    return bytes(out)


def deserialize_bytes_tensor(data):
    out, at, data = [], 0, bytes(data)
    while at < len(data):
        n = int.from_bytes(data[at:at + 4], "little")
        out.append(data[at + 4:at + 4 + n])
        at += 4 + n
    return np.array(out, dtype=np.object_)


class PreferredMemory:
    def __init__(self, preferred_memory_type=0, preferred_device_id=0):
        self.type, self.device_id = preferred_memory_type, preferred_device_id


class Tensor:
    def __init__(self, name, values):
        self._name = name
        values = np.asarray(values)
        self._values = values.astype(np.object_) if values.dtype.kind in "SU" else values
        self._bf16 = False

    def name(self):
        return self._name

    def as_numpy(self):
        return self._values

    def triton_dtype(self):
        return "BF16" if self._bf16 else _WIRE.get(self._values.dtype, "BYTES")

    def shape(self):
        return list(self._values.shape)

    def is_cpu(self):
        return True

    def memory_type(self):
        return TRITONSERVER_MEMORY_CPU

    def to_dlpack(self):
        return self._values.__dlpack__()

    def __dlpack__(self, *args, **more):
        return self._values.__dlpack__(*args, **more)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()

    @staticmethod
    def from_dlpack(name, other):
        if hasattr(other, "__dlpack__"):
            return Tensor(name, np.from_dlpack(other))

        class Capsule:
            def __dlpack__(self, *args, **more):
                return other

            def __dlpack_device__(self):
                return (1, 0)
        return Tensor(name, np.from_dlpack(Capsule()))

    # Values go over the wire as (description, bytes).
    def _wire(self):
        v = self._values
        if v.dtype == np.object_:
            return "BYTES", serialize_byte_tensor(v)
        wire = "BF16" if self._bf16 else _WIRE.get(v.dtype)
        if wire is None:
            raise TritonModelException(f"tensor '{self._name}' has the type {v.dtype}, which the protocol lacks")
        if v.nbytes <= 4096:
            return wire, v.tobytes()
        return wire, memoryview(np.ascontiguousarray(v)).cast("B")

    @staticmethod
    def _from_wire(d, buffer, at):
        t = Tensor.__new__(Tensor)
        t._name, t._bf16, at = d["n"], d["t"] == "BF16", at + d["o"]
        if d["t"] == "BYTES":
            t._values = deserialize_bytes_tensor(buffer[at:at + d["z"]]).reshape(d["s"])
        elif d["z"]:
            dtype = np.dtype(np.uint16 if t._bf16 else _NUMPY[d["t"]])
            t._values = np.frombuffer(buffer, dtype, d["z"] // dtype.itemsize, at).reshape(d["s"])
        else:
            t._values = np.empty(d["s"], np.uint16 if t._bf16 else _NUMPY[d["t"]])
        return t


class InferenceTrace:
    def __init__(self, context=None):
        self._context = context

    def get_context(self):
        return self._context


class InferenceResponse:
    def __init__(self, output_tensors=None, error=None, parameters=None):
        self._outputs = list(output_tensors or [])
        self._error = error if error is None or isinstance(error, TritonError) else TritonError(error)
        self._parameters = parameters or {}
        if isinstance(self._parameters, str):
            self._parameters = json.loads(self._parameters)

    def output_tensors(self):
        return self._outputs

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def parameters(self):
        return json.dumps(self._parameters)


class InferenceResponseSender:
    def __init__(self, key, begun):
        self._key, self._begun, self._closed = key, begun, False

    def send(self, response=None, flags=0):
        if self._closed:
            raise TritonModelException("the response sender has sent its final response already")
        final = bool(flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        if response is None and not final:
            raise TritonModelException("a response sender needs a response or the final flag")
        self._closed = final
        _link.send_response(self._key, response, final, self._begun)

    def is_cancelled(self):
        return _link.ask({"op": "cancelled", "key": self._key})["value"]


class InferenceRequest:
    # What requests from clients leave as it is.
    _flags, _timeout, _key, _begun, _sender, _release, _trace = 0, 0, None, 0, None, 1, InferenceTrace()

    def __init__(self, request_id="", correlation_id=0, inputs=None, requested_output_names=None, model_name="",
                 model_version=-1, flags=0, timeout=0, preferred_memory=None, trace=None, parameters=None):
        self._id, self._correlation = request_id, correlation_id
        self._inputs, self._outputs = list(inputs or []), list(requested_output_names or [])
        self.model_name, self.model_version = model_name, model_version
        self._flags, self._timeout = flags, timeout
        self._parameters = json.loads(parameters) if isinstance(parameters, str) else dict(parameters or {})
        if trace:
            self._trace = trace

    def inputs(self):
        return self._inputs

    def requested_output_names(self):
        return self._outputs

    def request_id(self):
        return self._id

    def correlation_id(self):
        return self._correlation

    def flags(self):
        return self._flags

    def set_flags(self, flags):
        self._flags = flags

    def timeout(self):
        return self._timeout

    def parameters(self):
        return json.dumps(self._parameters)

    def trace(self):
        return self._trace

    def set_release_flags(self, flags):
        self._release = flags

    def get_response_sender(self):
        if not _link.decoupled:
            raise TritonModelException("a response sender needs model_transaction_policy { decoupled: true }")
        if self._sender is None:
            self._sender = InferenceResponseSender(self._key, self._begun)
        return self._sender

    def is_cancelled(self):
        return _link.ask({"op": "cancelled", "key": self._key})["value"]

    def exec(self, decoupled=False, execution_timeout=None):
        responses = _link.infer(self, decoupled)
        return iter(responses) if decoupled else responses[0]

    async def async_exec(self, decoupled=False, execution_timeout=None):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: self.exec(decoupled))


def get_input_tensor_by_name(request, name):
    return next((t for t in request.inputs() if t.name() == name), None)


def get_output_tensor_by_name(response, name):
    return next((t for t in response.output_tensors() if t.name() == name), None)


def get_input_config_by_name(config, name):
    return next((t for t in config.get("input", []) if t["name"] == name), None)


def get_output_config_by_name(config, name):
    return next((t for t in config.get("output", []) if t["name"] == name), None)


def using_decoupled_model_transaction_policy(config):
    return bool(config.get("model_transaction_policy", {}).get("decoupled", False))


def load_model(model_name, files=None, config=None):
    answer = _link.ask({"op": "control", "action": "load", "model": model_name, "config": config or ""})
    if answer.get("error"):
        raise TritonModelException(answer["error"])


def unload_model(model_name, unload_dependents=False):
    answer = _link.ask({"op": "control", "action": "unload", "model": model_name, "dependents": unload_dependents})
    if answer.get("error"):
        raise TritonModelException(answer["error"])


def is_model_ready(model_name, model_version=""):
    return _link.ask({"op": "control", "action": "ready", "model": model_name, "version": str(model_version)})["value"]


class Logger:
    INFO, WARNING, ERROR, VERBOSE = "info", "warn", "error", "debug"

    @staticmethod
    def log(message, level="info"):
        _link.tell({"op": "log", "level": level, "text": str(message)})

    @staticmethod
    def log_info(message):
        Logger.log(message, "info")

    @staticmethod
    def log_warn(message):
        Logger.log(message, "warn")

    @staticmethod
    def log_error(message):
        Logger.log(message, "error")

    @staticmethod
    def log_verbose(message):
        Logger.log(message, "debug")


class Metric:
    def __init__(self, family, labels=None, buckets=None):
        self._family, self._labels, self._value = family, {k: str(v) for k, v in (labels or {}).items()}, 0.0
        self._buckets = list(buckets or [])
        self._lock = threading.Lock()
        if family.kind != MetricFamily.HISTOGRAM:
            self._tell("add", 0.0)

    def _tell(self, action, value):
        _link.tell({"op": "metric", "family": self._family.name, "help": self._family.description,
                    "kind": self._family.kind, "labels": self._labels, "buckets": self._buckets, "action": action,
                    "value": float(value)})

    def increment(self, value):
        if value < 0 and self._family.kind == MetricFamily.COUNTER:
            raise TritonModelException("a counter cannot decrease")
        with self._lock:
            self._value += value
        self._tell("add", value)

    def set(self, value):
        if self._family.kind != MetricFamily.GAUGE:
            raise TritonModelException("only a gauge can be set")
        with self._lock:
            self._value = value
        self._tell("set", value)

    def observe(self, value):
        if self._family.kind != MetricFamily.HISTOGRAM:
            raise TritonModelException("only a histogram observes values")
        self._tell("observe", value)

    def value(self):
        return self._value


class MetricFamily:
    COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

    def __init__(self, name, description, kind):
        self.name, self.description, self.kind = name, description, kind

    def Metric(self, labels=None, buckets=None):
        return Metric(self, labels, buckets)


class ModelConfig:
    """What auto_complete_config changes."""

    def __init__(self, config):
        self._config = config

    def as_dict(self):
        return self._config

    def set_max_batch_size(self, size):
        self._config["max_batch_size"] = int(size)

    def _set_tensor(self, field, tensor):
        for key in ("name", "data_type", "dims"):
            if key not in tensor:
                raise ValueError(f"{field} without '{key}'")
        entries = self._config.setdefault(field, [])
        entries[:] = [e for e in entries if e["name"] != tensor["name"]] + [dict(tensor)]

    def add_input(self, tensor):
        self._set_tensor("input", tensor)

    def add_output(self, tensor):
        self._set_tensor("output", tensor)

    def set_dynamic_batching(self):
        self._config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, policy):
        self._config["model_transaction_policy"] = dict(policy)
