#pragma once

#include <string>
#include <string_view>

namespace tandem {

// The absolute path of a file or folder of this tree, such as "models/sample".
std::string TreePath(std::string_view relative);
// A real model with a tokenizer: 6 layers, a vocabulary of 2,048 tokens, 2,048 positions.
std::string SampleModel();

// The programs that were built beside the one that runs: `tandem`, and the one that computes on an
// emulated GPU.
std::string DaemonBinary();
std::string EmulatedDaemonBinary();

}  // namespace tandem
