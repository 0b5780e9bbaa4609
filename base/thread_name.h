#pragma once

#include <pthread.h>

namespace tandem {

// Names the calling thread for debuggers, top -H and /proc; at most 15 characters.
inline void NameThisThread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace tandem
