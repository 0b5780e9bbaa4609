#pragma once

#include <memory>

#include "kernels/device.h"

namespace tandem {

// Host memory as a device; its streams run inline.
std::unique_ptr<Device> NewCpuDevice();

}  // namespace tandem
