// Streams, events, memory in stream order and captures of the fake runtime; the last part of cuda_shaped.hpp.
#pragma once

FAKE_EXPORT int FAKE(DeviceGetStreamPriorityRange)(int* least, int* greatest) {
  return fake::call("DeviceGetStreamPriorityRange", [&](fake::State&, const flagos_hal_api& hal) {
    return fake::codeOf(hal.stream->priority_range(fake::current, least, greatest));
  });
}
FAKE_EXPORT int FAKE(StreamCreateWithPriority)(void** out, unsigned flags, int priority) {
  return fake::call("StreamCreateWithPriority", [&](fake::State& all, const flagos_hal_api& hal) {
    if (out == nullptr || flags > 1) return fake::kInvalidValue;
    flagos_hal_stream_options options = {sizeof(options), priority, 0};
    flagos_hal_stream* stream = nullptr;
    const int code = fake::codeOf(hal.stream->create(fake::current, &options, &stream));
    if (code != 0) return code;
    std::lock_guard<std::mutex> lock(all.mutex);
    all.streams[stream] = fake::current;
    *out = stream;
    return fake::kSuccess;
  });
}
FAKE_EXPORT int FAKE(StreamCreateWithFlags)(void** out, unsigned flags) {
  return FAKE(StreamCreateWithPriority)(out, flags, 0);
}
FAKE_EXPORT int FAKE(StreamDestroy)(void* handle) {
  return fake::onStream("StreamDestroy", handle,
                        [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          if (handle == nullptr) return fake::kInvalidHandle;
                          {
                            std::lock_guard<std::mutex> lock(all.mutex);
                            all.streams.erase(handle);
                          }
                          return fake::codeOf(hal.stream->destroy(stream));
                        });
}
FAKE_EXPORT int FAKE(StreamQuery)(void* handle) {
  return fake::onStream("StreamQuery", handle,
                        [](fake::State&, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          return fake::codeOf(hal.stream->query(stream));
                        });
}
FAKE_EXPORT int FAKE(StreamSynchronize)(void* handle) {
  return fake::onStream("StreamSynchronize", handle,
                        [](fake::State&, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          return fake::codeOf(hal.stream->synchronize(stream));
                        });
}
FAKE_EXPORT int FAKE(StreamWaitEvent)(void* handle, void* event, unsigned flags) {
  return fake::onStream(
      "StreamWaitEvent", handle, [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_stream* stream) {
        if (flags != 0) return fake::kInvalidValue;
        {
          std::lock_guard<std::mutex> lock(all.mutex);
          if (all.events.count(event) == 0) return fake::kInvalidHandle;
        }
        return fake::codeOf(hal.stream->wait_event(stream, static_cast<flagos_hal_event*>(event)));
      });
}
FAKE_EXPORT int FAKE(LaunchHostFunc)(void* handle, void (*function)(void*), void* argument) {
  return fake::onStream("LaunchHostFunc", handle,
                        [&](fake::State&, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          return fake::codeOf(hal.stream->host_callback(stream, function, argument));
                        });
}

FAKE_EXPORT int FAKE(EventCreateWithFlags)(void** out, unsigned flags) {
  return fake::call("EventCreateWithFlags", [&](fake::State& all, const flagos_hal_api& hal) {
    const bool interprocess = (flags & 4u) != 0;
    if (out == nullptr || (flags & ~7u) != 0 || (interprocess && (flags & 2u) == 0))
      return fake::kInvalidValue;
    const bool timing = (flags & 2u) == 0;
    uint32_t hal_flags = timing ? uint32_t{FLAGOS_HAL_EVENT_TIMING} : 0u;
    if (flags & 1u) hal_flags |= FLAGOS_HAL_EVENT_BLOCKING;
    flagos_hal_event* event = nullptr;
    const int code = fake::codeOf(hal.event->create(fake::current, hal_flags, &event));
    if (code != 0) return code;
    std::lock_guard<std::mutex> lock(all.mutex);
    all.events[event] = {fake::current, timing, false};
    *out = event;
    return fake::kSuccess;
  });
}

namespace fake {
template <typename Body>
int onEvent(const char* function, void* handle, Body&& body) {
  return call(function, [&](State& all, const flagos_hal_api& hal) {
    {
      std::lock_guard<std::mutex> lock(all.mutex);
      const auto it = all.events.find(handle);
      if (it == all.events.end() || it->second.device != current) return kInvalidHandle;
    }
    return body(all, hal, static_cast<flagos_hal_event*>(handle));
  });
}
}  // namespace fake

FAKE_EXPORT int FAKE(EventDestroy)(void* handle) {
  return fake::onEvent("EventDestroy", handle,
                       [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_event* event) {
                         {
                           std::lock_guard<std::mutex> lock(all.mutex);
                           all.events.erase(handle);
                         }
                         return fake::codeOf(hal.event->destroy(event));
                       });
}
FAKE_EXPORT int FAKE(EventRecord)(void* handle, void* stream_handle) {
  return fake::onEvent("EventRecord", handle,
                       [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_event* event) {
                         flagos_hal_stream* stream = nullptr;
                         const int code = fake::find(all, hal, stream_handle, &stream);
                         if (code != 0) return code;
                         {
                           std::lock_guard<std::mutex> lock(all.mutex);
                           all.events[handle].recorded = true;
                         }
                         return fake::codeOf(hal.event->record(event, stream));
                       });
}
FAKE_EXPORT int FAKE(EventQuery)(void* handle) {
  return fake::onEvent("EventQuery", handle,
                       [](fake::State&, const flagos_hal_api& hal, flagos_hal_event* event) {
                         return fake::codeOf(hal.event->query(event));
                       });
}
FAKE_EXPORT int FAKE(EventSynchronize)(void* handle) {
  return fake::onEvent("EventSynchronize", handle,
                       [](fake::State&, const flagos_hal_api& hal, flagos_hal_event* event) {
                         return fake::codeOf(hal.event->synchronize(event));
                       });
}
FAKE_EXPORT int FAKE(EventElapsedTime)(float* milliseconds, void* start, void* end) {
  return fake::onEvent(
      "EventElapsedTime", start, [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_event* first) {
        {
          std::lock_guard<std::mutex> lock(all.mutex);
          const auto second = all.events.find(end);
          if (second == all.events.end()) return fake::kInvalidHandle;
          const auto& a = all.events[start];
          const auto& b = second->second;
          if (!a.timing || !b.timing || !a.recorded || !b.recorded) return fake::kInvalidHandle;
        }
        double elapsed = 0;
        const int code =
            fake::codeOf(hal.event->elapsed(first, static_cast<flagos_hal_event*>(end), &elapsed));
        *milliseconds = static_cast<float>(elapsed);
        return code;
      });
}

FAKE_EXPORT int FAKE(MallocAsync)(void** pointer, size_t size, void* handle) {
  return fake::onStream(
      "MallocAsync", handle, [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_stream* stream) {
        if (pointer == nullptr || size == 0) return fake::kInvalidValue;
        const int code = fake::codeOf(hal.async_alloc->allocate_async(stream, size, pointer));
        if (code != 0) return code;
        std::lock_guard<std::mutex> lock(all.mutex);
        all.memory[reinterpret_cast<uintptr_t>(*pointer)] = {size, fake::current};
        return fake::kSuccess;
      });
}
FAKE_EXPORT int FAKE(FreeAsync)(void* pointer, void* handle) {
  return fake::onStream("FreeAsync", handle,
                        [&](fake::State& all, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          {
                            std::lock_guard<std::mutex> lock(all.mutex);
                            const auto it = all.memory.find(reinterpret_cast<uintptr_t>(pointer));
                            if (it == all.memory.end() || it->second.device < 0) return fake::kInvalidValue;
                            all.memory.erase(it);
                          }
                          return fake::codeOf(hal.async_alloc->release_async(stream, pointer));
                        });
}
// The pool of a device is told by its number plus one.
FAKE_EXPORT int FAKE(DeviceGetDefaultMemPool)(void** pool, int device) {
  return fake::call("DeviceGetDefaultMemPool", [&](fake::State& all, const flagos_hal_api&) {
    if (pool == nullptr || !fake::validDevice(all, device)) return fake::kInvalidDevice;
    *pool = reinterpret_cast<void*>(static_cast<uintptr_t>(device) + 1);
    return fake::kSuccess;
  });
}
FAKE_EXPORT int FAKE(MemPoolTrimTo)(void* pool, size_t keep) {
  return fake::call("MemPoolTrimTo", [&](fake::State& all, const flagos_hal_api& hal) {
    const int device = static_cast<int>(reinterpret_cast<uintptr_t>(pool)) - 1;
    if (!fake::validDevice(all, device)) return fake::kInvalidValue;
    return fake::codeOf(hal.async_alloc->trim(device, keep));
  });
}

FAKE_EXPORT int FAKE(StreamBeginCapture)(void* handle, int mode) {
  return fake::onStream("StreamBeginCapture", handle,
                        [&](fake::State&, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          if (mode < 0 || mode > 2) return fake::kInvalidValue;
                          return fake::codeOf(hal.graph->begin_capture(stream, mode));
                        });
}
FAKE_EXPORT int FAKE(StreamEndCapture)(void* handle, void** graph) {
  return fake::onStream("StreamEndCapture", handle,
                        [&](fake::State&, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          flagos_hal_graph* made = nullptr;
                          const int code = fake::codeOf(hal.graph->end_capture(stream, &made));
                          *graph = made;
                          return code;
                        });
}
FAKE_EXPORT int FAKE(StreamIsCapturing)(void* handle, int* status) {
  return fake::onStream("StreamIsCapturing", handle,
                        [&](fake::State&, const flagos_hal_api& hal, flagos_hal_stream* stream) {
                          return fake::codeOf(hal.graph->is_capturing(stream, status));
                        });
}
FAKE_EXPORT int FAKE(ThreadExchangeStreamCaptureMode)(int* mode) {
  return fake::call("ThreadExchangeStreamCaptureMode", [&](fake::State&, const flagos_hal_api& hal) {
    return fake::codeOf(hal.graph->exchange_thread_mode(mode));
  });
}
// The executable is the graph; destroying the graph itself then leaves it alone.
FAKE_EXPORT int FAKE(GraphInstantiateWithFlags)(void** executable, void* graph, unsigned long long flags) {
  return fake::call("GraphInstantiateWithFlags", [&](fake::State&, const flagos_hal_api&) {
    if (executable == nullptr || graph == nullptr || flags != 0) return fake::kInvalidValue;
    *executable = graph;
    return fake::kSuccess;
  });
}
FAKE_EXPORT int FAKE(GraphDestroy)(void* graph) {
  return fake::call("GraphDestroy", [&](fake::State&, const flagos_hal_api&) {
    return graph == nullptr ? fake::kInvalidValue : fake::kSuccess;
  });
}
FAKE_EXPORT int FAKE(GraphExecDestroy)(void* executable) {
  return fake::call("GraphExecDestroy", [&](fake::State&, const flagos_hal_api& hal) {
    return fake::codeOf(hal.graph->destroy(static_cast<flagos_hal_graph*>(executable)));
  });
}
FAKE_EXPORT int FAKE(GraphLaunch)(void* executable, void* handle) {
  return fake::onStream(
      "GraphLaunch", handle, [&](fake::State&, const flagos_hal_api& hal, flagos_hal_stream* stream) {
        return fake::codeOf(hal.graph->launch(static_cast<flagos_hal_graph*>(executable), stream));
      });
}
