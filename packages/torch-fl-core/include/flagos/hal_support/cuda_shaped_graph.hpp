// The group graph of a runtime in CUDA's shape: captures of streams. Included by cuda_shaped.hpp.
#pragma once

#include <memory>

#include "flagos/hal_support/hal.hpp"

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

  // `V` is CudaShaped<Traits>.
  template <typename V>
  class CudaShapedGraphs {
    using Q = Queues<V>;
    static constexpr int kCaptureUnmatched = 903;  // not the stream that the capture began on
    static constexpr int kIllegalState = 401;      // no capture at all

    struct Graph {
      int32_t device;
      void* executable;
    };
    static Registry<flagos_hal_graph, Graph>& graphs() {
      static auto& all = *new Registry<flagos_hal_graph, Graph>("graph");
      return all;
    }

   public:
    static const flagos_hal_graph_api* api() {
      static const flagos_hal_graph_api table = {sizeof(flagos_hal_graph_api),
                                                 beginCapture,
                                                 endCapture,
                                                 isCapturing,
                                                 launch,
                                                 destroy,
                                                 exchangeThreadMode};
      return &table;
    }

    // For shutdown.
    static void close() noexcept {
      for (const std::shared_ptr<Graph>& graph : graphs().takeAll()) {
        static_cast<void>(Devices<V>::onReleasing(graph->device, [&] { return destroyNative(*graph); }));
      }
    }

   private:
    static bool present() { return V::api().StreamBeginCapture && V::api().GraphInstantiateWithFlags; }

    static flagos_hal_status checkMode(int32_t mode) {
      FLAGOS_HAL_REQUIRE(mode >= FLAGOS_HAL_CAPTURE_GLOBAL && mode <= FLAGOS_HAL_CAPTURE_RELAXED,
                         INVALID_ARGUMENT, "%d is not a flagos_hal_capture_mode", mode);
      return FLAGOS_HAL_STATUS_OK;
    }
    static flagos_hal_status captureStatus(void* stream, int* out) {
      return V::check(V::api().StreamIsCapturing(stream, out), "StreamIsCapturing");
    }
    static flagos_hal_status destroyNative(const Graph& graph) {
      return V::check(V::api().GraphExecDestroy(graph.executable), "GraphExecDestroy");
    }

    static flagos_hal_status beginCapture(flagos_hal_stream* handle, int32_t mode) noexcept {
      return Q::onStream("graph.begin_capture", handle, [&](typename Q::Stream& stream) -> flagos_hal_status {
        FLAGOS_HAL_REQUIRE(present(), UNSUPPORTED, "the runtime has no captures");
        FLAGOS_HAL_TRY(checkMode(mode));
        FLAGOS_HAL_REQUIRE(!stream.is_default, INVALID_ARGUMENT, "the default stream cannot be captured");
        int active = 0;
        FLAGOS_HAL_TRY(captureStatus(stream.native, &active));
        FLAGOS_HAL_REQUIRE(active == 0, INVALID_STATE, "the stream is being captured already");
        return V::check(V::api().StreamBeginCapture(stream.native, mode), "StreamBeginCapture");
      });
    }

    static flagos_hal_status endCapture(flagos_hal_stream* handle, flagos_hal_graph** out_graph) noexcept {
      return Q::onStream("graph.end_capture", handle, [&](typename Q::Stream& stream) -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_graph, "out_graph"));
        FLAGOS_HAL_REQUIRE(present(), UNSUPPORTED, "the runtime has no captures");
        int active = 0;
        FLAGOS_HAL_TRY(captureStatus(stream.native, &active));
        FLAGOS_HAL_REQUIRE(active != 0, INVALID_STATE, "the stream is not being captured");
        void* captured = nullptr;
        const int code = V::api().StreamEndCapture(stream.native, &captured);
        if (code == kCaptureUnmatched || code == kIllegalState) {
          V::api().GetLastError();
          return fail(FLAGOS_HAL_STATUS_INVALID_STATE, "the capture began on another stream");
        }
        FLAGOS_HAL_TRY(V::check(code, "StreamEndCapture"));
        auto graph = std::make_shared<Graph>(Graph{stream.device, nullptr});
        const flagos_hal_status status = V::check(
            V::api().GraphInstantiateWithFlags(&graph->executable, captured, 0), "GraphInstantiateWithFlags");
        V::api().GraphDestroy(captured);  // the executable holds what it needs
        FLAGOS_HAL_TRY(status);
        *out_graph = graphs().add(std::move(graph));
        return FLAGOS_HAL_STATUS_OK;
      });
    }

    static flagos_hal_status isCapturing(flagos_hal_stream* handle, int32_t* out_yes) noexcept {
      return Q::onStream("graph.is_capturing", handle, [&](typename Q::Stream& stream) -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(out_yes, "out_yes"));
        int active = 0;
        if (present() && !stream.is_default) FLAGOS_HAL_TRY(captureStatus(stream.native, &active));
        *out_yes = active != 0;
        return FLAGOS_HAL_STATUS_OK;
      });
    }

    static flagos_hal_status launch(flagos_hal_graph* handle, flagos_hal_stream* stream_handle) noexcept {
      return Q::onStream("graph.launch", stream_handle, [&](typename Q::Stream& stream) -> flagos_hal_status {
        const std::shared_ptr<Graph> graph = graphs().find(handle);
        if (!graph) return graphs().unknown(handle);
        FLAGOS_HAL_REQUIRE(graph->device == stream.device, INVALID_ARGUMENT,
                           "the graph is of device %d, the stream of device %d", graph->device,
                           stream.device);
        return V::check(V::api().GraphLaunch(graph->executable, stream.native), "GraphLaunch");
      });
    }

    // A launch in flight still finishes: the runtime frees an executable when its launches have ended.
    static flagos_hal_status destroy(flagos_hal_graph* handle) noexcept {
      return releaseCall("graph.destroy", [&]() -> flagos_hal_status {
        const std::shared_ptr<Graph> graph = graphs().take(handle);
        if (!graph) return graphs().unknown(handle);
        const flagos_hal_status status =
            Devices<V>::onReleasing(graph->device, [&] { return destroyNative(*graph); });
        if (status != FLAGOS_HAL_STATUS_OK) graphs().add(graph);  // it is still there
        return status;
      });
    }

    static flagos_hal_status exchangeThreadMode(int32_t* inout_mode) noexcept {
      return call("graph.exchange_thread_mode", [&]() -> flagos_hal_status {
        FLAGOS_HAL_TRY(checkOutput(inout_mode, "inout_mode"));
        FLAGOS_HAL_TRY(checkMode(*inout_mode));
        FLAGOS_HAL_REQUIRE(V::api().ThreadExchangeStreamCaptureMode, UNSUPPORTED,
                           "the runtime has no such mode");
        int mode = *inout_mode;
        FLAGOS_HAL_TRY(
            V::check(V::api().ThreadExchangeStreamCaptureMode(&mode), "ThreadExchangeStreamCaptureMode"));
        *inout_mode = mode;
        return FLAGOS_HAL_STATUS_OK;
      });
    }
  };

}  // namespace hal_support
}  // namespace flagos
