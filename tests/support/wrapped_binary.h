#pragma once

#include <string>

namespace tandem {

// A shell script that runs the `tandem` of this build after `before`, as "ulimit -n 128", with
// `after` behind its arguments, as "2>/tmp/log". Returns the path, to be started in its place; the
// process is the same one.
std::string WrappedBinary(const std::string& before, const std::string& after = "");

}  // namespace tandem
