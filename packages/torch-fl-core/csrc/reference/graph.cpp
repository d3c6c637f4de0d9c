#include "csrc/reference/graph.h"

#include <utility>

#include "csrc/reference/device.h"
#include "csrc/reference/queue.h"
#include "csrc/reference/tables.h"

namespace flagos::reference {

namespace {

GraphTable graph_table;  // constant-initialised

flagos_hal_status unknownGraph(const flagos_hal_graph* handle) {
  if (!handle) return fail(FLAGOS_HAL_STATUS_INVALID_HANDLE, "the graph is null");
  return fail(FLAGOS_HAL_STATUS_INVALID_HANDLE, "%p is not a live graph of this library",
              static_cast<const void*>(handle));
}

// The tasks of one launch, and what they hold until they are queued.
class Launch {
 public:
  ~Launch() {
    for (const Hold& hold : holds_) letGo(hold);
  }

  flagos_hal_status add(const CapturedNode& node) {
    if (const auto* callback = std::get_if<CallbackWork>(&node.work)) {
      tasks_.push_back(makeTask(*callback, node.kind, node.function));
      return kOk;
    }
    const Transfer& transfer = std::get<Transfer>(node.work);
    holds_.reserve(holds_.size() + 1);
    Hold hold;
    FLAGOS_HAL_TRY(takeHold(transfer, &hold));
    holds_.push_back(hold);
    tasks_.push_back(makeTask(DeviceWork{transfer, hold}, node.kind, node.function));
    return kOk;
  }

  flagos_hal_status queueOn(Stream& stream) {
    if (tasks_.empty()) return kOk;
    tasks_.front().latency_us += workLatency(WorkKind::Other, Function::graph_launch);
    FLAGOS_HAL_TRY(enqueue(stream, tasks_.data(), tasks_.size()));
    holds_.clear();  // the tasks have them now
    return kOk;
  }

 private:
  std::vector<Task> tasks_;
  std::vector<Hold> holds_;
};

flagos_hal_status begin(flagos_hal_stream* handle, int32_t mode) {
  return invokeOnStream(Function::graph_begin_capture, handle, [&](Stream& stream) {
    FLAGOS_HAL_REQUIRE(mode >= FLAGOS_HAL_CAPTURE_GLOBAL && mode <= FLAGOS_HAL_CAPTURE_RELAXED,
                       INVALID_ARGUMENT, "capture mode %d is not one of flagos_hal_capture_mode", mode);
    FLAGOS_HAL_REQUIRE(deviceAt(stream.device).default_stream != &stream, INVALID_ARGUMENT,
                       "the default stream of device %d cannot be captured", stream.device);
    return beginCapture(stream, mode);
  });
}

flagos_hal_status end(flagos_hal_stream* handle, flagos_hal_graph** out_graph) {
  return invokeOnStream(Function::graph_end_capture, handle, [&](Stream& stream) {
    FLAGOS_HAL_REQUIRE(out_graph, INVALID_ARGUMENT, "out_graph is null");
    flagos_hal_graph* graph_handle = nullptr;
    Graph* graph = graphs().reserve(&graph_handle);
    FLAGOS_HAL_REQUIRE(graph, OUT_OF_MEMORY, "all graphs of the library are in use");
    const flagos_hal_status status = endCapture(stream, &graph->nodes);
    if (status != kOk) {
      graphs().recycle(graph_handle);
      return status;
    }
    graph->device = stream.device;
    graphs().publish(graph_handle);
    *out_graph = graph_handle;
    return kOk;
  });
}

flagos_hal_status isCapturing(flagos_hal_stream* handle, int32_t* out_yes) {
  return invokeOnStream(Function::graph_is_capturing, handle, [&](Stream& stream) {
    FLAGOS_HAL_REQUIRE(out_yes, INVALID_ARGUMENT, "out_yes is null");
    *out_yes = capturing(stream);
    return kOk;
  });
}

flagos_hal_status launch(flagos_hal_graph* handle, flagos_hal_stream* stream_handle) {
  return invokeOnStream(Function::graph_launch, stream_handle, [&](Stream& stream) -> flagos_hal_status {
    const Graph* graph = graphs().find(handle);
    if (!graph) return unknownGraph(handle);
    FLAGOS_HAL_REQUIRE(graph->device == stream.device, INVALID_ARGUMENT,
                       "the graph belongs to device %d, the stream to device %d", graph->device,
                       stream.device);
    if (capturing(stream)) return captureWork(stream, graph->nodes);
    Launch work;
    for (const CapturedNode& node : graph->nodes) FLAGOS_HAL_TRY(work.add(node));
    return work.queueOn(stream);
  });
}

flagos_hal_status destroy(flagos_hal_graph* handle) {
  return hal_support::releaseCall(functionName(Function::graph_destroy), [&]() -> flagos_hal_status {
    const Graph* found = graphs().find(handle);
    FLAGOS_HAL_TRY(inject(Function::graph_destroy, found ? found->device : -1));
    Graph* graph = graphs().retire(handle);
    if (!graph) return unknownGraph(handle);
    graph->nodes = {};
    graphs().recycle(handle);
    return kOk;
  });
}

flagos_hal_status exchangeMode(int32_t* inout_mode) {
  return invoke(Function::graph_exchange_thread_mode, -1, [&] {
    FLAGOS_HAL_REQUIRE(inout_mode, INVALID_ARGUMENT, "inout_mode is null");
    FLAGOS_HAL_REQUIRE(*inout_mode >= FLAGOS_HAL_CAPTURE_GLOBAL && *inout_mode <= FLAGOS_HAL_CAPTURE_RELAXED,
                       INVALID_ARGUMENT, "capture mode %d is not one of flagos_hal_capture_mode",
                       *inout_mode);
    *inout_mode = exchangeThreadMode(*inout_mode);
    return kOk;
  });
}

}  // namespace

GraphTable& graphs() noexcept { return graph_table; }

void closeGraphs() noexcept {
  graphs().forEach([](flagos_hal_graph* handle) {
    if (Graph* graph = graphs().retire(handle)) {
      graph->nodes = {};
      graphs().recycle(handle);
    }
  });
}

const flagos_hal_graph_api kGraphApi = {sizeof(kGraphApi), begin,       end, isCapturing, launch,
                                        destroy,           exchangeMode};

}  // namespace flagos::reference
