// Answers for the layouts that the device does not hold yet.
#pragma once

namespace flagos::ops {

// Registers fallbacks that refuse in words. A fallback is written into the table of every operator, two
// milliseconds each, so that this is not done by `import torch`.
void registerRefusals();

}  // namespace flagos::ops
