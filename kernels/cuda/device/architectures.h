#pragma once

#include <string_view>

namespace tandem::cuda {

// Whether code compiled for `architectures` runs on a GPU of `compute_capability` (90 for 9.0). The
// list is CMake's, such as "80-real,90a-real,90-virtual". Machine code (real) runs on later minor
// versions of its major version, with the suffix "a" on exactly its own. PTX, of a virtual or plain
// entry, runs on everything later, except that PTX for less than 90 runs only below 90: its kernels
// do not wait for the kernel before them, as they are launched to do from 90 on.
bool HasCodeFor(std::string_view architectures, int compute_capability);

}  // namespace tandem::cuda
