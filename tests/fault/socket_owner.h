#pragma once

#include <sys/types.h>

#include <cstdint>

namespace tandem {

// Whether the process has a TCP socket with this local port, by what /proc says now.
bool OwnsSocket(pid_t pid, uint16_t local_port);

}  // namespace tandem
