#pragma once

#include <string_view>

namespace tandem::cuda {

// Whether code compiled for `architectures` runs on a GPU of `compute_capability` (90 for 9.0).
// They are CMake's: "80-real,90a-real,90-virtual". Machine code runs on later minors of its major,
// with the suffix "a" on exactly its own; PTX, of a virtual or plain entry, on everything later,
// but that of less than 90 only below 90: its kernels do not wait for the kernel before them, as
// they are launched to do from 90 on.
bool HasCodeFor(std::string_view architectures, int compute_capability);

}  // namespace tandem::cuda
