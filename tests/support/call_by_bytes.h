#pragma once

#include <string>

namespace tandem {

// A gRPC call of one message there and one back, by bytes, for services whose .proto files are not
// ours. Fails the test when the call does.
std::string CallByBytes(const std::string& address, const std::string& method,
                        const std::string& bytes);

}  // namespace tandem
