#pragma once

#include <memory>
#include <string>

#include "kernels/device.h"

namespace tandem {

// Host memory as a device of the given name; its streams run inline.
std::unique_ptr<Device> NewCpuDevice(std::string name = "cpu");

}  // namespace tandem
