// Graphs: work that was captured and can be launched again and again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/reference/capture.h"
#include "csrc/reference/handle_table.h"

namespace flagos::reference {

struct Graph {
  int32_t device = -1;
  std::vector<CapturedNode> nodes;
};

using GraphTable = HandleTable<flagos_hal_graph, Graph, 'G', 1u << 20>;
GraphTable& graphs() noexcept;

// Called by shutdown.
void closeGraphs() noexcept;

}  // namespace flagos::reference
