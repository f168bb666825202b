// SPDX-License-Identifier: Apache-2.0
#include "serve/core/config_schema.h"

namespace pelton::serve {
namespace {

constexpr Field kModelVersionPolicy_LatestFields[] = {{"num_versions", 1, Kind::uint32, Card::single}};
constexpr MessageType kModelVersionPolicy_Latest{"ModelVersionPolicy.Latest",
                                                 kModelVersionPolicy_LatestFields};
constexpr MessageType kModelVersionPolicy_All{"ModelVersionPolicy.All", {}};
constexpr Field kModelVersionPolicy_SpecificFields[] = {{"versions", 1, Kind::int64, Card::repeated}};
constexpr MessageType kModelVersionPolicy_Specific{"ModelVersionPolicy.Specific",
                                                   kModelVersionPolicy_SpecificFields};
constexpr Field kModelVersionPolicyFields[] = {
    {"latest", 1, Kind::message, Card::single, &kModelVersionPolicy_Latest, nullptr, "policy_choice"},
    {"all", 2, Kind::message, Card::single, &kModelVersionPolicy_All, nullptr, "policy_choice"},
    {"specific", 3, Kind::message, Card::single, &kModelVersionPolicy_Specific, nullptr, "policy_choice"}};
constexpr MessageType kModelVersionPolicy{"ModelVersionPolicy", kModelVersionPolicyFields};
constexpr EnumValue kDataTypeValues[] = {
    {"TYPE_INVALID", 0}, {"TYPE_BOOL", 1},  {"TYPE_UINT8", 2}, {"TYPE_UINT16", 3},  {"TYPE_UINT32", 4},
    {"TYPE_UINT64", 5},  {"TYPE_INT8", 6},  {"TYPE_INT16", 7}, {"TYPE_INT32", 8},   {"TYPE_INT64", 9},
    {"TYPE_FP16", 10},   {"TYPE_FP32", 11}, {"TYPE_FP64", 12}, {"TYPE_STRING", 13}, {"TYPE_BF16", 14}};
constexpr EnumType kDataType{"DataType", kDataTypeValues};
constexpr EnumValue kModelInput_FormatValues[] = {{"FORMAT_NONE", 0}, {"FORMAT_NHWC", 1}, {"FORMAT_NCHW", 2}};
constexpr EnumType kModelInput_Format{"Format", kModelInput_FormatValues};
constexpr Field kModelTensorReshapeFields[] = {{"shape", 1, Kind::int64, Card::repeated}};
constexpr MessageType kModelTensorReshape{"ModelTensorReshape", kModelTensorReshapeFields};
constexpr Field kModelInputFields[] = {
    {"name", 1, Kind::string, Card::single},
    {"data_type", 2, Kind::enumeration, Card::single, nullptr, &kDataType},
    {"format", 3, Kind::enumeration, Card::single, nullptr, &kModelInput_Format},
    {"dims", 4, Kind::int64, Card::repeated},
    {"reshape", 5, Kind::message, Card::single, &kModelTensorReshape},
    {"is_shape_tensor", 6, Kind::boolean, Card::single},
    {"allow_ragged_batch", 7, Kind::boolean, Card::single},
    {"optional", 8, Kind::boolean, Card::single},
    {"is_non_linear_format_io", 9, Kind::boolean, Card::single}};
constexpr MessageType kModelInput{"ModelInput", kModelInputFields};
constexpr Field kModelOutputFields[] = {
    {"name", 1, Kind::string, Card::single},
    {"data_type", 2, Kind::enumeration, Card::single, nullptr, &kDataType},
    {"dims", 3, Kind::int64, Card::repeated},
    {"reshape", 5, Kind::message, Card::single, &kModelTensorReshape},
    {"label_filename", 4, Kind::string, Card::single},
    {"is_shape_tensor", 6, Kind::boolean, Card::single},
    {"is_non_linear_format_io", 7, Kind::boolean, Card::single}};
constexpr MessageType kModelOutput{"ModelOutput", kModelOutputFields};
constexpr EnumValue kBatchInput_KindValues[] = {{"BATCH_ELEMENT_COUNT", 0},
                                                {"BATCH_ACCUMULATED_ELEMENT_COUNT", 1},
                                                {"BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", 2},
                                                {"BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", 3},
                                                {"BATCH_ITEM_SHAPE", 4},
                                                {"BATCH_ITEM_SHAPE_FLATTEN", 5}};
constexpr EnumType kBatchInput_Kind{"Kind", kBatchInput_KindValues};
constexpr Field kBatchInputFields[] = {
    {"kind", 1, Kind::enumeration, Card::single, nullptr, &kBatchInput_Kind},
    {"target_name", 2, Kind::string, Card::repeated},
    {"data_type", 3, Kind::enumeration, Card::single, nullptr, &kDataType},
    {"source_input", 4, Kind::string, Card::repeated}};
constexpr MessageType kBatchInput{"BatchInput", kBatchInputFields};
constexpr EnumValue kBatchOutput_KindValues[] = {{"BATCH_SCATTER_WITH_INPUT_SHAPE", 0}};
constexpr EnumType kBatchOutput_Kind{"Kind", kBatchOutput_KindValues};
constexpr Field kBatchOutputFields[] = {
    {"target_name", 1, Kind::string, Card::repeated},
    {"kind", 2, Kind::enumeration, Card::single, nullptr, &kBatchOutput_Kind},
    {"source_input", 3, Kind::string, Card::repeated}};
constexpr MessageType kBatchOutput{"BatchOutput", kBatchOutputFields};
constexpr Field kModelOptimizationPolicy_GraphFields[] = {{"level", 1, Kind::int32, Card::single}};
constexpr MessageType kModelOptimizationPolicy_Graph{"ModelOptimizationPolicy.Graph",
                                                     kModelOptimizationPolicy_GraphFields};
constexpr EnumValue kModelOptimizationPolicy_ModelPriorityValues[] = {
    {"PRIORITY_DEFAULT", 0}, {"PRIORITY_MAX", 1}, {"PRIORITY_MIN", 2}};
constexpr EnumType kModelOptimizationPolicy_ModelPriority{"ModelPriority",
                                                          kModelOptimizationPolicy_ModelPriorityValues};
constexpr Field kModelOptimizationPolicy_Cuda_GraphSpec_ShapeFields[] = {
    {"dim", 1, Kind::int64, Card::repeated}};
constexpr MessageType kModelOptimizationPolicy_Cuda_GraphSpec_Shape{
    "ModelOptimizationPolicy.Cuda.GraphSpec.Shape", kModelOptimizationPolicy_Cuda_GraphSpec_ShapeFields};
constexpr Field kModelOptimizationPolicy_Cuda_GraphSpec_InputEntryFields[] = {
    {"key", 1, Kind::string, Card::single},
    {"value", 2, Kind::message, Card::single, &kModelOptimizationPolicy_Cuda_GraphSpec_Shape}};
constexpr MessageType kModelOptimizationPolicy_Cuda_GraphSpec_InputEntry{
    "ModelOptimizationPolicy.Cuda.GraphSpec.InputEntry",
    kModelOptimizationPolicy_Cuda_GraphSpec_InputEntryFields};
constexpr Field kModelOptimizationPolicy_Cuda_GraphSpec_LowerBound_InputEntryFields[] = {
    {"key", 1, Kind::string, Card::single},
    {"value", 2, Kind::message, Card::single, &kModelOptimizationPolicy_Cuda_GraphSpec_Shape}};
constexpr MessageType kModelOptimizationPolicy_Cuda_GraphSpec_LowerBound_InputEntry{
    "ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound.InputEntry",
    kModelOptimizationPolicy_Cuda_GraphSpec_LowerBound_InputEntryFields};
constexpr Field kModelOptimizationPolicy_Cuda_GraphSpec_LowerBoundFields[] = {
    {"batch_size", 1, Kind::int32, Card::single},
    {"input", 2, Kind::message, Card::map, &kModelOptimizationPolicy_Cuda_GraphSpec_LowerBound_InputEntry}};
constexpr MessageType kModelOptimizationPolicy_Cuda_GraphSpec_LowerBound{
    "ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound",
    kModelOptimizationPolicy_Cuda_GraphSpec_LowerBoundFields};
constexpr Field kModelOptimizationPolicy_Cuda_GraphSpecFields[] = {
    {"batch_size", 1, Kind::int32, Card::single},
    {"input", 2, Kind::message, Card::map, &kModelOptimizationPolicy_Cuda_GraphSpec_InputEntry},
    {"graph_lower_bound", 3, Kind::message, Card::single,
     &kModelOptimizationPolicy_Cuda_GraphSpec_LowerBound}};
constexpr MessageType kModelOptimizationPolicy_Cuda_GraphSpec{"ModelOptimizationPolicy.Cuda.GraphSpec",
                                                              kModelOptimizationPolicy_Cuda_GraphSpecFields};
constexpr Field kModelOptimizationPolicy_CudaFields[] = {
    {"graphs", 1, Kind::boolean, Card::single},
    {"busy_wait_events", 2, Kind::boolean, Card::single},
    {"graph_spec", 3, Kind::message, Card::repeated, &kModelOptimizationPolicy_Cuda_GraphSpec},
    {"output_copy_stream", 4, Kind::boolean, Card::single}};
constexpr MessageType kModelOptimizationPolicy_Cuda{"ModelOptimizationPolicy.Cuda",
                                                    kModelOptimizationPolicy_CudaFields};
constexpr Field kModelOptimizationPolicy_ExecutionAccelerators_Accelerator_ParametersEntryFields[] = {
    {"key", 1, Kind::string, Card::single}, {"value", 2, Kind::string, Card::single}};
constexpr MessageType kModelOptimizationPolicy_ExecutionAccelerators_Accelerator_ParametersEntry{
    "ModelOptimizationPolicy.ExecutionAccelerators.Accelerator.ParametersEntry",
    kModelOptimizationPolicy_ExecutionAccelerators_Accelerator_ParametersEntryFields};
constexpr Field kModelOptimizationPolicy_ExecutionAccelerators_AcceleratorFields[] = {
    {"name", 1, Kind::string, Card::single},
    {"parameters", 2, Kind::message, Card::map,
     &kModelOptimizationPolicy_ExecutionAccelerators_Accelerator_ParametersEntry}};
constexpr MessageType kModelOptimizationPolicy_ExecutionAccelerators_Accelerator{
    "ModelOptimizationPolicy.ExecutionAccelerators.Accelerator",
    kModelOptimizationPolicy_ExecutionAccelerators_AcceleratorFields};
constexpr Field kModelOptimizationPolicy_ExecutionAcceleratorsFields[] = {
    {"gpu_execution_accelerator", 1, Kind::message, Card::repeated,
     &kModelOptimizationPolicy_ExecutionAccelerators_Accelerator},
    {"cpu_execution_accelerator", 2, Kind::message, Card::repeated,
     &kModelOptimizationPolicy_ExecutionAccelerators_Accelerator}};
constexpr MessageType kModelOptimizationPolicy_ExecutionAccelerators{
    "ModelOptimizationPolicy.ExecutionAccelerators", kModelOptimizationPolicy_ExecutionAcceleratorsFields};
constexpr Field kModelOptimizationPolicy_PinnedMemoryBufferFields[] = {
    {"enable", 1, Kind::boolean, Card::single}};
constexpr MessageType kModelOptimizationPolicy_PinnedMemoryBuffer{
    "ModelOptimizationPolicy.PinnedMemoryBuffer", kModelOptimizationPolicy_PinnedMemoryBufferFields};
constexpr Field kModelOptimizationPolicyFields[] = {
    {"graph", 1, Kind::message, Card::single, &kModelOptimizationPolicy_Graph},
    {"priority", 2, Kind::enumeration, Card::single, nullptr, &kModelOptimizationPolicy_ModelPriority},
    {"cuda", 3, Kind::message, Card::single, &kModelOptimizationPolicy_Cuda},
    {"execution_accelerators", 4, Kind::message, Card::single,
     &kModelOptimizationPolicy_ExecutionAccelerators},
    {"input_pinned_memory", 5, Kind::message, Card::single, &kModelOptimizationPolicy_PinnedMemoryBuffer},
    {"output_pinned_memory", 6, Kind::message, Card::single, &kModelOptimizationPolicy_PinnedMemoryBuffer},
    {"gather_kernel_buffer_threshold", 7, Kind::uint32, Card::single},
    {"eager_batching", 8, Kind::boolean, Card::single}};
constexpr MessageType kModelOptimizationPolicy{"ModelOptimizationPolicy", kModelOptimizationPolicyFields};
constexpr EnumValue kModelQueuePolicy_TimeoutActionValues[] = {{"REJECT", 0}, {"DELAY", 1}};
constexpr EnumType kModelQueuePolicy_TimeoutAction{"TimeoutAction", kModelQueuePolicy_TimeoutActionValues};
constexpr Field kModelQueuePolicyFields[] = {
    {"timeout_action", 1, Kind::enumeration, Card::single, nullptr, &kModelQueuePolicy_TimeoutAction},
    {"default_timeout_microseconds", 2, Kind::uint64, Card::single},
    {"allow_timeout_override", 3, Kind::boolean, Card::single},
    {"max_queue_size", 4, Kind::uint32, Card::single}};
constexpr MessageType kModelQueuePolicy{"ModelQueuePolicy", kModelQueuePolicyFields};
constexpr Field kModelDynamicBatching_PriorityQueuePolicyEntryFields[] = {
    {"key", 1, Kind::uint64, Card::single}, {"value", 2, Kind::message, Card::single, &kModelQueuePolicy}};
constexpr MessageType kModelDynamicBatching_PriorityQueuePolicyEntry{
    "ModelDynamicBatching.PriorityQueuePolicyEntry", kModelDynamicBatching_PriorityQueuePolicyEntryFields};
constexpr Field kModelDynamicBatchingFields[] = {
    {"preferred_batch_size", 1, Kind::int32, Card::repeated},
    {"max_queue_delay_microseconds", 2, Kind::uint64, Card::single},
    {"preserve_ordering", 3, Kind::boolean, Card::single},
    {"priority_levels", 4, Kind::uint64, Card::single},
    {"default_priority_level", 5, Kind::uint64, Card::single},
    {"default_queue_policy", 6, Kind::message, Card::single, &kModelQueuePolicy},
    {"priority_queue_policy", 7, Kind::message, Card::map, &kModelDynamicBatching_PriorityQueuePolicyEntry}};
constexpr MessageType kModelDynamicBatching{"ModelDynamicBatching", kModelDynamicBatchingFields};
constexpr Field kModelSequenceBatching_StrategyDirectFields[] = {
    {"max_queue_delay_microseconds", 1, Kind::uint64, Card::single},
    {"minimum_slot_utilization", 2, Kind::float32, Card::single}};
constexpr MessageType kModelSequenceBatching_StrategyDirect{"ModelSequenceBatching.StrategyDirect",
                                                            kModelSequenceBatching_StrategyDirectFields};
constexpr Field kModelSequenceBatching_StrategyOldestFields[] = {
    {"max_candidate_sequences", 1, Kind::int32, Card::single},
    {"preferred_batch_size", 2, Kind::int32, Card::repeated},
    {"max_queue_delay_microseconds", 3, Kind::uint64, Card::single},
    {"preserve_ordering", 4, Kind::boolean, Card::single}};
constexpr MessageType kModelSequenceBatching_StrategyOldest{"ModelSequenceBatching.StrategyOldest",
                                                            kModelSequenceBatching_StrategyOldestFields};
constexpr EnumValue kModelSequenceBatching_Control_KindValues[] = {{"CONTROL_SEQUENCE_START", 0},
                                                                   {"CONTROL_SEQUENCE_READY", 1},
                                                                   {"CONTROL_SEQUENCE_END", 2},
                                                                   {"CONTROL_SEQUENCE_CORRID", 3}};
constexpr EnumType kModelSequenceBatching_Control_Kind{"Kind", kModelSequenceBatching_Control_KindValues};
constexpr Field kModelSequenceBatching_ControlFields[] = {
    {"kind", 1, Kind::enumeration, Card::single, nullptr, &kModelSequenceBatching_Control_Kind},
    {"int32_false_true", 2, Kind::int32, Card::repeated},
    {"fp32_false_true", 3, Kind::float32, Card::repeated},
    {"bool_false_true", 5, Kind::boolean, Card::repeated},
    {"data_type", 4, Kind::enumeration, Card::single, nullptr, &kDataType}};
constexpr MessageType kModelSequenceBatching_Control{"ModelSequenceBatching.Control",
                                                     kModelSequenceBatching_ControlFields};
constexpr Field kModelSequenceBatching_ControlInputFields[] = {
    {"name", 1, Kind::string, Card::single},
    {"control", 2, Kind::message, Card::repeated, &kModelSequenceBatching_Control}};
constexpr MessageType kModelSequenceBatching_ControlInput{"ModelSequenceBatching.ControlInput",
                                                          kModelSequenceBatching_ControlInputFields};
constexpr Field kModelSequenceBatching_InitialStateFields[] = {
    {"data_type", 1, Kind::enumeration, Card::single, nullptr, &kDataType},
    {"dims", 2, Kind::int64, Card::repeated},
    {"zero_data", 3, Kind::boolean, Card::single, nullptr, nullptr, "state_data"},
    {"data_file", 4, Kind::string, Card::single, nullptr, nullptr, "state_data"},
    {"name", 5, Kind::string, Card::single}};
constexpr MessageType kModelSequenceBatching_InitialState{"ModelSequenceBatching.InitialState",
                                                          kModelSequenceBatching_InitialStateFields};
constexpr Field kModelSequenceBatching_StateFields[] = {
    {"input_name", 1, Kind::string, Card::single},
    {"output_name", 2, Kind::string, Card::single},
    {"data_type", 3, Kind::enumeration, Card::single, nullptr, &kDataType},
    {"dims", 4, Kind::int64, Card::repeated},
    {"initial_state", 5, Kind::message, Card::repeated, &kModelSequenceBatching_InitialState},
    {"use_same_buffer_for_input_output", 6, Kind::boolean, Card::single},
    {"use_growable_memory", 7, Kind::boolean, Card::single}};
constexpr MessageType kModelSequenceBatching_State{"ModelSequenceBatching.State",
                                                   kModelSequenceBatching_StateFields};
constexpr Field kModelSequenceBatchingFields[] = {
    {"direct", 3, Kind::message, Card::single, &kModelSequenceBatching_StrategyDirect, nullptr,
     "strategy_choice"},
    {"oldest", 4, Kind::message, Card::single, &kModelSequenceBatching_StrategyOldest, nullptr,
     "strategy_choice"},
    {"max_sequence_idle_microseconds", 1, Kind::uint64, Card::single},
    {"control_input", 2, Kind::message, Card::repeated, &kModelSequenceBatching_ControlInput},
    {"state", 5, Kind::message, Card::repeated, &kModelSequenceBatching_State},
    {"iterative_sequence", 6, Kind::boolean, Card::single}};
constexpr MessageType kModelSequenceBatching{"ModelSequenceBatching", kModelSequenceBatchingFields};
constexpr Field kModelEnsembling_Step_InputMapEntryFields[] = {{"key", 1, Kind::string, Card::single},
                                                               {"value", 2, Kind::string, Card::single}};
constexpr MessageType kModelEnsembling_Step_InputMapEntry{"ModelEnsembling.Step.InputMapEntry",
                                                          kModelEnsembling_Step_InputMapEntryFields};
constexpr Field kModelEnsembling_Step_OutputMapEntryFields[] = {{"key", 1, Kind::string, Card::single},
                                                                {"value", 2, Kind::string, Card::single}};
constexpr MessageType kModelEnsembling_Step_OutputMapEntry{"ModelEnsembling.Step.OutputMapEntry",
                                                           kModelEnsembling_Step_OutputMapEntryFields};
constexpr Field kModelEnsembling_StepFields[] = {
    {"model_name", 1, Kind::string, Card::single},
    {"model_version", 2, Kind::int64, Card::single},
    {"input_map", 3, Kind::message, Card::map, &kModelEnsembling_Step_InputMapEntry},
    {"output_map", 4, Kind::message, Card::map, &kModelEnsembling_Step_OutputMapEntry},
    {"model_namespace", 5, Kind::string, Card::single}};
constexpr MessageType kModelEnsembling_Step{"ModelEnsembling.Step", kModelEnsembling_StepFields};
constexpr Field kModelEnsemblingFields[] = {
    {"step", 1, Kind::message, Card::repeated, &kModelEnsembling_Step},
    {"max_inflight_requests", 2, Kind::uint32, Card::single}};
constexpr MessageType kModelEnsembling{"ModelEnsembling", kModelEnsemblingFields};
constexpr EnumValue kModelInstanceGroup_KindValues[] = {
    {"KIND_AUTO", 0}, {"KIND_GPU", 1}, {"KIND_CPU", 2}, {"KIND_MODEL", 3}};
constexpr EnumType kModelInstanceGroup_Kind{"Kind", kModelInstanceGroup_KindValues};
constexpr Field kModelRateLimiter_ResourceFields[] = {{"name", 1, Kind::string, Card::single},
                                                      {"global", 2, Kind::boolean, Card::single},
                                                      {"count", 3, Kind::uint32, Card::single}};
constexpr MessageType kModelRateLimiter_Resource{"ModelRateLimiter.Resource",
                                                 kModelRateLimiter_ResourceFields};
constexpr Field kModelRateLimiterFields[] = {
    {"resources", 1, Kind::message, Card::repeated, &kModelRateLimiter_Resource},
    {"priority", 2, Kind::uint32, Card::single}};
constexpr MessageType kModelRateLimiter{"ModelRateLimiter", kModelRateLimiterFields};
constexpr EnumValue kModelInstanceGroup_SecondaryDevice_SecondaryDeviceKindValues[] = {{"KIND_NVDLA", 0}};
constexpr EnumType kModelInstanceGroup_SecondaryDevice_SecondaryDeviceKind{
    "SecondaryDeviceKind", kModelInstanceGroup_SecondaryDevice_SecondaryDeviceKindValues};
constexpr Field kModelInstanceGroup_SecondaryDeviceFields[] = {
    {"kind", 1, Kind::enumeration, Card::single, nullptr,
     &kModelInstanceGroup_SecondaryDevice_SecondaryDeviceKind},
    {"device_id", 2, Kind::int64, Card::single}};
constexpr MessageType kModelInstanceGroup_SecondaryDevice{"ModelInstanceGroup.SecondaryDevice",
                                                          kModelInstanceGroup_SecondaryDeviceFields};
constexpr Field kModelInstanceGroupFields[] = {
    {"name", 1, Kind::string, Card::single},
    {"kind", 4, Kind::enumeration, Card::single, nullptr, &kModelInstanceGroup_Kind},
    {"count", 2, Kind::int32, Card::single},
    {"rate_limiter", 6, Kind::message, Card::single, &kModelRateLimiter},
    {"gpus", 3, Kind::int32, Card::repeated},
    {"secondary_devices", 8, Kind::message, Card::repeated, &kModelInstanceGroup_SecondaryDevice},
    {"profile", 5, Kind::string, Card::repeated},
    {"passive", 7, Kind::boolean, Card::single},
    {"host_policy", 9, Kind::string, Card::single}};
constexpr MessageType kModelInstanceGroup{"ModelInstanceGroup", kModelInstanceGroupFields};
constexpr Field kModelConfig_CcModelFilenamesEntryFields[] = {{"key", 1, Kind::string, Card::single},
                                                              {"value", 2, Kind::string, Card::single}};
constexpr MessageType kModelConfig_CcModelFilenamesEntry{"ModelConfig.CcModelFilenamesEntry",
                                                         kModelConfig_CcModelFilenamesEntryFields};
constexpr Field kModelConfig_MetricTagsEntryFields[] = {{"key", 1, Kind::string, Card::single},
                                                        {"value", 2, Kind::string, Card::single}};
constexpr MessageType kModelConfig_MetricTagsEntry{"ModelConfig.MetricTagsEntry",
                                                   kModelConfig_MetricTagsEntryFields};
constexpr Field kModelParameterFields[] = {{"string_value", 1, Kind::string, Card::single}};
constexpr MessageType kModelParameter{"ModelParameter", kModelParameterFields};
constexpr Field kModelConfig_ParametersEntryFields[] = {
    {"key", 1, Kind::string, Card::single}, {"value", 2, Kind::message, Card::single, &kModelParameter}};
constexpr MessageType kModelConfig_ParametersEntry{"ModelConfig.ParametersEntry",
                                                   kModelConfig_ParametersEntryFields};
constexpr Field kModelWarmup_InputFields[] = {
    {"data_type", 1, Kind::enumeration, Card::single, nullptr, &kDataType},
    {"dims", 2, Kind::int64, Card::repeated},
    {"zero_data", 3, Kind::boolean, Card::single, nullptr, nullptr, "input_data_type"},
    {"random_data", 4, Kind::boolean, Card::single, nullptr, nullptr, "input_data_type"},
    {"input_data_file", 5, Kind::string, Card::single, nullptr, nullptr, "input_data_type"}};
constexpr MessageType kModelWarmup_Input{"ModelWarmup.Input", kModelWarmup_InputFields};
constexpr Field kModelWarmup_InputsEntryFields[] = {
    {"key", 1, Kind::string, Card::single}, {"value", 2, Kind::message, Card::single, &kModelWarmup_Input}};
constexpr MessageType kModelWarmup_InputsEntry{"ModelWarmup.InputsEntry", kModelWarmup_InputsEntryFields};
constexpr Field kModelWarmupFields[] = {{"name", 1, Kind::string, Card::single},
                                        {"batch_size", 2, Kind::uint32, Card::single},
                                        {"inputs", 3, Kind::message, Card::map, &kModelWarmup_InputsEntry},
                                        {"count", 4, Kind::uint32, Card::single}};
constexpr MessageType kModelWarmup{"ModelWarmup", kModelWarmupFields};
constexpr Field kModelOperationsFields[] = {{"op_library_filename", 1, Kind::string, Card::repeated}};
constexpr MessageType kModelOperations{"ModelOperations", kModelOperationsFields};
constexpr Field kModelTransactionPolicyFields[] = {{"decoupled", 1, Kind::boolean, Card::single}};
constexpr MessageType kModelTransactionPolicy{"ModelTransactionPolicy", kModelTransactionPolicyFields};
constexpr Field kModelRepositoryAgents_Agent_ParametersEntryFields[] = {
    {"key", 1, Kind::string, Card::single}, {"value", 2, Kind::string, Card::single}};
constexpr MessageType kModelRepositoryAgents_Agent_ParametersEntry{
    "ModelRepositoryAgents.Agent.ParametersEntry", kModelRepositoryAgents_Agent_ParametersEntryFields};
constexpr Field kModelRepositoryAgents_AgentFields[] = {
    {"name", 1, Kind::string, Card::single},
    {"parameters", 2, Kind::message, Card::map, &kModelRepositoryAgents_Agent_ParametersEntry}};
constexpr MessageType kModelRepositoryAgents_Agent{"ModelRepositoryAgents.Agent",
                                                   kModelRepositoryAgents_AgentFields};
constexpr Field kModelRepositoryAgentsFields[] = {
    {"agents", 1, Kind::message, Card::repeated, &kModelRepositoryAgents_Agent}};
constexpr MessageType kModelRepositoryAgents{"ModelRepositoryAgents", kModelRepositoryAgentsFields};
constexpr Field kModelResponseCacheFields[] = {{"enable", 1, Kind::boolean, Card::single}};
constexpr MessageType kModelResponseCache{"ModelResponseCache", kModelResponseCacheFields};
constexpr Field kModelMetrics_MetricControl_MetricIdentifierFields[] = {
    {"family", 1, Kind::string, Card::single}};
constexpr MessageType kModelMetrics_MetricControl_MetricIdentifier{
    "ModelMetrics.MetricControl.MetricIdentifier", kModelMetrics_MetricControl_MetricIdentifierFields};
constexpr Field kModelMetrics_MetricControl_HistogramOptionsFields[] = {
    {"buckets", 1, Kind::float64, Card::repeated}};
constexpr MessageType kModelMetrics_MetricControl_HistogramOptions{
    "ModelMetrics.MetricControl.HistogramOptions", kModelMetrics_MetricControl_HistogramOptionsFields};
constexpr Field kModelMetrics_MetricControlFields[] = {
    {"metric_identifier", 1, Kind::message, Card::single, &kModelMetrics_MetricControl_MetricIdentifier},
    {"histogram_options", 2, Kind::message, Card::single, &kModelMetrics_MetricControl_HistogramOptions,
     nullptr, "metric_options"}};
constexpr MessageType kModelMetrics_MetricControl{"ModelMetrics.MetricControl",
                                                  kModelMetrics_MetricControlFields};
constexpr Field kModelMetricsFields[] = {
    {"metric_control", 1, Kind::message, Card::repeated, &kModelMetrics_MetricControl}};
constexpr MessageType kModelMetrics{"ModelMetrics", kModelMetricsFields};
constexpr Field kModelConfigFields[] = {
    {"name", 1, Kind::string, Card::single},
    {"platform", 2, Kind::string, Card::single},
    {"backend", 17, Kind::string, Card::single},
    {"runtime", 25, Kind::string, Card::single},
    {"version_policy", 3, Kind::message, Card::single, &kModelVersionPolicy},
    {"max_batch_size", 4, Kind::int32, Card::single},
    {"input", 5, Kind::message, Card::repeated, &kModelInput},
    {"output", 6, Kind::message, Card::repeated, &kModelOutput},
    {"batch_input", 20, Kind::message, Card::repeated, &kBatchInput},
    {"batch_output", 21, Kind::message, Card::repeated, &kBatchOutput},
    {"optimization", 12, Kind::message, Card::single, &kModelOptimizationPolicy},
    {"dynamic_batching", 11, Kind::message, Card::single, &kModelDynamicBatching, nullptr,
     "scheduling_choice"},
    {"sequence_batching", 13, Kind::message, Card::single, &kModelSequenceBatching, nullptr,
     "scheduling_choice"},
    {"ensemble_scheduling", 15, Kind::message, Card::single, &kModelEnsembling, nullptr, "scheduling_choice"},
    {"instance_group", 7, Kind::message, Card::repeated, &kModelInstanceGroup},
    {"default_model_filename", 8, Kind::string, Card::single},
    {"cc_model_filenames", 9, Kind::message, Card::map, &kModelConfig_CcModelFilenamesEntry},
    {"metric_tags", 10, Kind::message, Card::map, &kModelConfig_MetricTagsEntry},
    {"parameters", 14, Kind::message, Card::map, &kModelConfig_ParametersEntry},
    {"model_warmup", 16, Kind::message, Card::repeated, &kModelWarmup},
    {"model_operations", 18, Kind::message, Card::single, &kModelOperations},
    {"model_transaction_policy", 19, Kind::message, Card::single, &kModelTransactionPolicy},
    {"model_repository_agents", 23, Kind::message, Card::single, &kModelRepositoryAgents},
    {"response_cache", 24, Kind::message, Card::single, &kModelResponseCache},
    {"model_metrics", 26, Kind::message, Card::single, &kModelMetrics}};
constexpr MessageType kModelConfig{"ModelConfig", kModelConfigFields};

}  // namespace

const EnumValue* EnumType::find(std::string_view wanted) const {
  for (const EnumValue& v : values)
    if (v.name == wanted) return &v;
  return nullptr;
}
const EnumValue* EnumType::find(int64_t number) const {
  for (const EnumValue& v : values)
    if (v.number == number) return &v;
  return nullptr;
}
const Field* MessageType::find(std::string_view wanted) const {
  for (const Field& f : fields)
    if (f.name == wanted) return &f;
  return nullptr;
}

const MessageType& model_config_type() {
  return kModelConfig;
}
const EnumType& data_type_enum() {
  return kDataType;
}

}  // namespace pelton::serve
