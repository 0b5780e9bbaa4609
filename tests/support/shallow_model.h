#pragma once

#include <string>

namespace tandem {

// The directory of a copy of models/sample that has the first two of its layers alone. Tests that
// compare a device with itself or with the CPU need no more: every layer has the same shapes, so
// that it runs the same kernels, and with two of them one is the last and one is not. The copy is
// made by the first call and goes with the process.
const std::string& ShallowSample();

}  // namespace tandem
