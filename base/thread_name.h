#pragma once

#include <pthread.h>

namespace tandem {

// What debuggers, top -H and /proc call the calling thread; at most 15 characters.
inline void NameThisThread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace tandem
