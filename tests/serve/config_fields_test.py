# SPDX-License-Identifier: Apache-2.0
"""Every field of the published ModelConfig: honoured or refused by name. The fields are read off the published descriptor, so that
one which is added there fails here."""
import os
import pathlib

import pytest
from conftest import add_model, identity

model_config = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="tritonclient is not installed")
from google.protobuf import text_format  # noqa: E402

# What the server does not do: a model that asks for it fails to load, with the field's name.
REFUSED = {
    "runtime", "input.is_shape_tensor", "input.is_non_linear_format_io", "output.is_shape_tensor", "output.is_non_linear_format_io",
    "optimization.execution_accelerators", "instance_group.secondary_devices", "instance_group.profile", "instance_group.passive",
    "instance_group.host_policy", "cc_model_filenames", "model_operations", "model_repository_agents", "ensemble_scheduling.step.model_namespace",
    "optimization.cuda.busy_wait_events", "optimization.cuda.graph_spec", "optimization.cuda.output_copy_stream", "optimization.eager_batching",
    "optimization.gather_kernel_buffer_threshold", "sequence_batching.state.use_same_buffer_for_input_output", "sequence_batching.state.use_growable_memory",
}
# Honoured: a value that cannot be served and what is said about it, or the name of the test that shows the effect.
IN, OUT = 'input { name: "A" data_type: TYPE_FP32 dims: 1 %s }', 'output { name: "B" data_type: TYPE_FP32 dims: 1 %s }'
BATCH, CONTROL = "max_batch_size: 4 ", "max_batch_size: 4 sequence_batching { direct { } control_input { %s } }"
STATE = 'max_batch_size: 4 sequence_batching { direct { } state { %s } }'
RAGGED = ('max_batch_size: 4 backend: "identity" input { name: "A" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true } '
          'output { name: "B" data_type: TYPE_FP32 dims: -1 } ')
WARM = identity(dims="1") + 'model_warmup { name: "w" %s }'
METRIC = identity() + "model_metrics { metric_control { %s } }"
BATCHING, SEQUENCES, PLACES = "tests/serve/core/batching_test.cc", "tests/serve/core/sequence_test.cc", "tests/serve/core/places_test.cc"
SCHEDULING, REPOSITORY, ENSEMBLES = "tests/serve/core/scheduler_test.cc", "tests/serve/core/repository_test.cc", "tests/serve/core/ensemble_test.cc"
PREFERRED = (SCHEDULING, "preferred sizes go at once, the rest when the delay is over")
PRIORITIES = (SCHEDULING, "priorities are served first, and full queues refuse with busy")
TIMEOUTS = (SCHEDULING, "time-outs reject or delay as the policy says, and an override needs leave")
CONTROLS = (SEQUENCES, "controls tell the engine where a request stands, and empty slots are filled")
INITIAL = (SEQUENCES, "the initial state comes from its file, and a preferred size goes without waiting for more")
NEVER_MIX = (SEQUENCES, "sequences never mix, whatever is cancelled, times out, restarts or is dropped")
JOINED = (BATCHING, "ragged requests are joined flat, their sizes go along and outputs come apart by shape")
LIMITER = (BATCHING, "the rate limiter shares resources by priority and never gives out more than there are")
STEPS = (ENSEMBLES, "steps run in the order of the data, whatever the order in the file")
VERSIONS = (REPOSITORY, "version policies choose what is served; the newest answers by default")
WARMUP = (REPOSITORY, "warm-up runs before ready and its failure is the load's failure")
REQUESTS = ("tests/serve/config_fields_test.py", "test_fields_of_tensors_show_in_requests")
HONOURED = {
    "name": ('name: "other"', "names the model 'other'"),
    "platform": ('platform: "tensorrt_plan"', "backend 'tensorrt' is not supported"),
    "backend": ('backend: "pytorch"', "backend 'pytorch' is not supported"),
    "version_policy.latest.num_versions": VERSIONS, "version_policy.all": VERSIONS,
    "version_policy.specific.versions": (identity() + "version_policy { specific { versions: 9 } }", "asks for version 9"),
    "max_batch_size": ("max_batch_size: -1", "max_batch_size -1 is negative"),
    "input.name": ("input { data_type: TYPE_FP32 dims: 1 }", "an input has no name"),
    "input.data_type": ('input { name: "A" dims: 1 }', "input 'A' has no data_type"),
    "input.format": (IN % "format: FORMAT_NCHW", "of format FORMAT_NCHW has 1 dims"),
    "input.dims": ('input { name: "A" data_type: TYPE_FP32 dims: 0 }', "has the dimension 0"),
    "input.reshape.shape": (IN % "reshape { shape: [ 7 ] }", "has another number of elements"),
    "input.allow_ragged_batch": (IN % "allow_ragged_batch: true", "allow_ragged_batch needs max_batch_size"),
    "input.optional": REQUESTS,
    "output.name": ("output { data_type: TYPE_FP32 dims: 1 }", "an output has no name"),
    "output.data_type": ('output { name: "B" dims: 1 }', "output 'B' has no data_type"),
    "output.dims": ('output { name: "B" data_type: TYPE_FP32 dims: -7 }', "has the dimension -7"),
    "output.reshape.shape": (OUT % "reshape { shape: [ 7 ] }", "has another number of elements"),
    "output.label_filename": (identity().replace('name: "OUTPUT0"', 'name: "OUTPUT0" label_filename: "none.txt"'), "none.txt"),
    "batch_input.kind": JOINED,
    "batch_input.target_name": (RAGGED + 'batch_input { source_input: "A" data_type: TYPE_INT32 }', "needs one target_name"),
    "batch_input.data_type": (RAGGED + 'batch_input { target_name: "N" source_input: "A" data_type: TYPE_BOOL }', "is TYPE_INT32 or TYPE_FP32"),
    "batch_input.source_input": (RAGGED + 'batch_input { target_name: "N" source_input: "Z" data_type: TYPE_INT32 }', "the unknown input 'Z'"),
    "batch_output.target_name": (RAGGED + 'batch_output { source_input: "A" }', "needs target_name"),
    "batch_output.kind": JOINED,
    "batch_output.source_input": (RAGGED + 'batch_output { target_name: "B" source_input: "Z" }', "names no output and input"),
    "dynamic_batching.preferred_batch_size": PREFERRED, "dynamic_batching.max_queue_delay_microseconds": PREFERRED,
    "dynamic_batching.preserve_ordering": (SCHEDULING, "preserve_ordering answers in the order of arrival over several instances"),
    "dynamic_batching.priority_levels": PRIORITIES,
    "dynamic_batching.default_priority_level": (BATCH + "dynamic_batching { priority_levels: 2 default_priority_level: 3 }", "default_priority_level 3 is outside"),
    "dynamic_batching.default_queue_policy.timeout_action": TIMEOUTS, "dynamic_batching.default_queue_policy.default_timeout_microseconds": TIMEOUTS,
    "dynamic_batching.default_queue_policy.allow_timeout_override": TIMEOUTS, "dynamic_batching.default_queue_policy.max_queue_size": PRIORITIES,
    "dynamic_batching.priority_queue_policy.key": (BATCH + "dynamic_batching { priority_queue_policy { key: 5 value { } } }", "priority_queue_policy for level 5"),
    "dynamic_batching.priority_queue_policy.value.timeout_action": TIMEOUTS,
    "dynamic_batching.priority_queue_policy.value.default_timeout_microseconds": TIMEOUTS,
    "dynamic_batching.priority_queue_policy.value.allow_timeout_override": TIMEOUTS,
    "dynamic_batching.priority_queue_policy.value.max_queue_size": PRIORITIES,
    "sequence_batching.direct.max_queue_delay_microseconds": NEVER_MIX,
    "sequence_batching.direct.minimum_slot_utilization": (BATCH + "sequence_batching { direct { minimum_slot_utilization: 2 } }", "minimum_slot_utilization 2"),
    "sequence_batching.oldest.max_candidate_sequences": (BATCH + "sequence_batching { oldest { } }", "max_candidate_sequences 0 is outside"),
    "sequence_batching.oldest.preferred_batch_size": INITIAL, "sequence_batching.oldest.max_queue_delay_microseconds": INITIAL,
    "sequence_batching.oldest.preserve_ordering": (SEQUENCES, "what a sequence configuration cannot mean is refused by name"),
    "sequence_batching.max_sequence_idle_microseconds": (SEQUENCES, "a sequence waits for a slot, and one that idles gives its slot up"),
    "sequence_batching.control_input.name": (CONTROL % "control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0 ] }", "control_input ''"),
    "sequence_batching.control_input.control.kind": CONTROLS,
    "sequence_batching.control_input.control.int32_false_true": (CONTROL % 'name: "S" control { int32_false_true: [ 0 ] }', "needs two values"),
    "sequence_batching.control_input.control.fp32_false_true": (CONTROL % 'name: "S" control { fp32_false_true: [ 0 ] }', "needs two values"),
    "sequence_batching.control_input.control.bool_false_true": (CONTROL % 'name: "S" control { bool_false_true: [ true ] }', "needs two values"),
    "sequence_batching.control_input.control.data_type": (CONTROL % 'name: "S" control { kind: CONTROL_SEQUENCE_CORRID }', "has no data_type"),
    "sequence_batching.state.input_name": (STATE % 'output_name: "O" data_type: TYPE_FP32 dims: 1', "needs input_name and output_name"),
    "sequence_batching.state.output_name": (STATE % 'input_name: "I" data_type: TYPE_FP32 dims: 1', "needs input_name and output_name"),
    "sequence_batching.state.data_type": (STATE % 'input_name: "I" output_name: "O" dims: 1', "state 'I' has no data_type"),
    "sequence_batching.state.dims": (STATE % 'input_name: "I" output_name: "O" data_type: TYPE_FP32 dims: 0', "has the dimension 0"),
    "sequence_batching.state.initial_state.data_type": (STATE % 'input_name: "I" output_name: "O" data_type: TYPE_FP32 dims: 1 initial_state { name: "s" data_type: '
                                                        'TYPE_BOOL dims: 1 zero_data: true }', "has another type than the state"),
    "sequence_batching.state.initial_state.dims": (STATE % 'input_name: "I" output_name: "O" data_type: TYPE_FP32 dims: 1 initial_state { name: "s" data_type: '
                                                   'TYPE_FP32 dims: 3 zero_data: true }', "has shape [3], the state [1]"),
    "sequence_batching.state.initial_state.zero_data": (SEQUENCES, "a sequence keeps its state from START to END"),
    "sequence_batching.state.initial_state.data_file": INITIAL,
    "sequence_batching.state.initial_state.name": (STATE % 'input_name: "I" output_name: "O" data_type: TYPE_FP32 dims: 1 initial_state { name: "first" dims: 1 }',
                                                   "the initial state 'first' of 'I'"),
    "sequence_batching.iterative_sequence": (SEQUENCES, "iterative sequences run a request until it is done and share each step's batch"),
    "ensemble_scheduling.step.model_name": STEPS, "ensemble_scheduling.step.input_map.key": STEPS, "ensemble_scheduling.step.input_map.value": STEPS,
    "ensemble_scheduling.step.output_map.key": STEPS, "ensemble_scheduling.step.output_map.value": STEPS,
    "ensemble_scheduling.step.model_version": (ENSEMBLES, "wiring that cannot work is refused at load"),
    "ensemble_scheduling.max_inflight_requests": (ENSEMBLES, "an ensemble is admitted as a whole and an error in a step ends it once"),
    "instance_group.name": ("tests/serve/python_engine_test.py", "test_instances_carry_the_name_of_their_group"),
    "instance_group.kind": (PLACES, "instances go where their groups say, automatic ones on every GPU there is"),
    "instance_group.count": ("instance_group { count: -2 }", "instance_group.count -2 is not positive"),
    "instance_group.gpus": (PLACES, "instances go where their groups say, automatic ones on every GPU there is"),
    "instance_group.rate_limiter.resources.name": (identity() + "instance_group { rate_limiter { resources { count: 1 } } }", "needs a name and a count"),
    "instance_group.rate_limiter.resources.global": LIMITER, "instance_group.rate_limiter.resources.count": LIMITER,
    "instance_group.rate_limiter.priority": LIMITER,
    "optimization.graph.level": ("tests/serve/onnxruntime_test.py", "test_the_level_of_optimization"),
    "optimization.priority": ("tests/serve/config_fields_test.py", "test_priorities_are_those_of_threads"),
    "optimization.cuda.graphs": (identity() + "optimization { cuda { graphs: true } }", "field 'optimization.cuda.graphs' is not supported by backend 'identity'"),
    "optimization.input_pinned_memory.enable": (identity() + "optimization { input_pinned_memory { } }", "'optimization.input_pinned_memory' is not supported with false"),
    "optimization.output_pinned_memory.enable": (identity() + "optimization { output_pinned_memory { enable: false } }", "'optimization.output_pinned_memory' is not "
                                                 "supported with false"),
    "default_model_filename": ('backend: "onnxruntime" default_model_filename: "none.onnx"', "none.onnx"),
    "metric_tags.key": (BATCHING, "metric tags are labels of the series"), "metric_tags.value": (BATCHING, "metric tags are labels of the series"),
    "parameters.key": (identity() + 'parameters { key: "execute_delay_ms" value { string_value: "x" } }', "parameter execute_delay_ms 'x'"),
    "parameters.value.string_value": (identity() + 'parameters { key: "execute_delay_ms" value { string_value: "-1" } }', "parameter execute_delay_ms '-1'"),
    "model_warmup.name": (WARM % 'inputs { key: "INPUT0" }', "model_warmup 'w' input 'INPUT0' has no value"),
    "model_warmup.batch_size": WARMUP, "model_warmup.inputs.value.random_data": WARMUP, "model_warmup.inputs.value.zero_data": WARMUP,
    "model_warmup.count": (WARM % "count: 200000", "count 200000 is above"),
    "model_warmup.inputs.key": (WARM % 'inputs { key: "Z" value { data_type: TYPE_FP32 dims: 1 zero_data: true } }', "Z"),
    "model_warmup.inputs.value.data_type": (WARM % 'inputs { key: "INPUT0" value { dims: 1 zero_data: true } }', "has no data_type"),
    "model_warmup.inputs.value.dims": (WARM % 'inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: -1 zero_data: true } }', "has unusable dims"),
    "model_warmup.inputs.value.input_data_file": (WARM % 'inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: 1 input_data_file: "none" } }', "none"),
    "model_transaction_policy.decoupled": ("tests/serve/sequence_clients_test.py", "test_decoupled_responses_over_a_stream"),
    "response_cache.enable": (BATCHING, "the response cache answers what it has seen, within its bytes, and forgets on a reload"),
    "model_metrics.metric_control.metric_identifier.family": (METRIC % 'metric_identifier { family: "other" }', "model_metrics for 'other' is not supported"),
    "model_metrics.metric_control.histogram_options.buckets": (
        METRIC % 'metric_identifier { family: "nv_inference_first_response_histogram_ms" } histogram_options { buckets: [ 2, 1 ] }', "not in ascending order"),
}


def leaves(descriptor, prefix="", above=()):
    """Paths of the fields that hold values, and messages without fields."""
    for f in descriptor.fields:
        path = prefix + f.name
        if f.message_type is None or not f.message_type.fields:
            yield path
        elif f.message_type not in above:
            yield from leaves(f.message_type, path + ".", (*above, f.message_type))


def listed(path, names):
    return next((n for n in names if path == n or path.startswith(n + ".")), None)


def set_field(message, path):
    """Gives the field some value; an element of a repeated field on the way is the first one."""
    field = message.DESCRIPTOR.fields_by_name[path[0]]
    if field.enum_type:
        value = field.enum_type.values[-1].number
    else:
        value = None if field.message_type else {field.CPPTYPE_STRING: "x", field.CPPTYPE_BOOL: True, field.CPPTYPE_FLOAT: 0.5}.get(field.cpp_type, 1)
    if field.message_type and field.message_type.GetOptions().map_entry:
        entries, kind = getattr(message, field.name), field.message_type.fields_by_name["value"]
        if kind.message_type:
            set_field(entries["k"] if kind.message_type else None, path[2:]) if len(path) > 2 else entries["k"].SetInParent()
        else:
            entries["k"] = "v"
    elif field.message_type:
        inner = getattr(message, field.name)
        if field.is_repeated:
            inner = inner[0] if len(inner) else inner.add()
        set_field(inner, path[1:]) if len(path) > 1 else inner.SetInParent()
    elif field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def base(path):
    """A configuration that loads, with what the field needs around it."""
    text = identity(dims="1", more="max_batch_size: 4")
    if path.startswith("sequence_batching.state."):
        text += 'sequence_batching { direct { } state { input_name: "I" output_name: "O" data_type: TYPE_FP32 dims: 1 } }'
    if path.startswith("ensemble_scheduling."):
        text = 'platform: "ensemble" ensemble_scheduling { step { model_name: "x" input_map { key: "a" value: "b" } output_map { key: "c" value: "d" } } }'
    return text_format.Parse(text, model_config.ModelConfig())


def test_every_field_is_listed_once():
    everything = list(leaves(model_config.ModelConfig.DESCRIPTOR))
    assert len(everything) > 100
    for path in everything:
        assert bool(listed(path, REFUSED)) + (path in HONOURED) == 1, path
    assert not HONOURED.keys() - set(everything)
    for name in REFUSED:
        assert any(listed(path, [name]) for path in everything), name
    root = pathlib.Path(__file__).resolve().parents[2]
    for place, words in HONOURED.values():
        if place.startswith("tests/"):
            assert words in (root / place).read_text(), (place, words)


def test_what_cannot_be_done_is_said(serve):
    expected = {}
    for path in leaves(model_config.ModelConfig.DESCRIPTOR):
        if group := listed(path, REFUSED):
            message = base(path)
            set_field(message, path.split("."))
            name = "f." + path
            add_model(serve.repository, name, text_format.MessageToString(message))
            expected[name] = f"field '{group}' is not supported"
    for path, (text, words) in HONOURED.items():
        if not text.startswith("tests/"):
            if "backend:" not in text and "platform:" not in text:
                text = 'backend: "identity" ' + text
            add_model(serve.repository, "f." + path, text)
            expected["f." + path] = words
    server = serve("--model-control-mode=explicit")
    wrong = {}
    for name, words in expected.items():
        status, answer = server.json(f"/v2/repository/models/{name}/load", b"", "POST")
        if status == 200 or words not in answer["error"]:
            wrong[name] = answer, words
    assert not wrong, wrong


def nice_values(pid):
    return {int(t.read_text().rsplit(")", 1)[1].split()[16]) for t in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")}


def test_priorities_are_those_of_threads(serve):
    own = os.nice(0)
    add_model(serve.repository, "low", identity(more="optimization { priority: PRIORITY_MIN }"))
    add_model(serve.repository, "high", identity(more="optimization { priority: PRIORITY_MAX }"))
    add_model(serve.repository, "usual", identity())
    server = serve("--model-control-mode=explicit", "--load-model=usual", "--load-model=low")
    assert server.infer("usual", [1])[0] == 200 and nice_values(server.process.pid) == {own}
    assert server.infer("low", [1])[0] == 200 and nice_values(server.process.pid) == {own, 10}
    status, answer = server.json("/v2/repository/models/high/load", b"", "POST")
    if status == 200:  # the tests may give threads more than their share
        assert server.infer("high", [1])[0] == 200 and nice_values(server.process.pid) == {own, 10, -5}
    else:
        assert "asks for PRIORITY_MAX, which this process may not give" in answer["error"]


def test_fields_of_tensors_show_in_requests(serve):
    two = identity().replace("output [", 'input [ { name: "MORE" data_type: TYPE_FP32 dims: [ 1 ] %s } ]\noutput [')
    add_model(serve.repository, "needs", two % "")
    add_model(serve.repository, "may", two % "optional: true")
    server = serve()
    status, answer = server.infer("needs", [1])
    assert status == 400 and "MORE" in answer["error"]
    assert server.infer("may", [1])[0] == 200
