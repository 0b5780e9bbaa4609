#pragma once

namespace simt {

// The token of an allocation that is freed names nothing any more. Callers hold the machine's lock.
void ForgetToken(const void* pointer);

}  // namespace simt
