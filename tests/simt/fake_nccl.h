#pragma once

#include <nccl.h>

#include <atomic>

// What tests ask of the stand-in for NCCL (tests/simt/fake_nccl.cc), found in the shared library by
// the name fake_nccl. Each process has its own.
struct FakeNccl {
  std::atomic<int> version = NCCL_VERSION_CODE;  // what ncclGetVersion says

  // Faults, of what is called from here on.
  std::atomic<bool> init_hangs = false;
  std::atomic<bool> init_fails = false;
  std::atomic<int> operations_until_error = -1;  // the one after so many fails; -1: none does
  std::atomic<bool> abort_blocks = false;        // while true

  // Since the start of the process.
  std::atomic<int> ids = 0;
  std::atomic<int> aborts = 0;
  std::atomic<int> communicators = 0;  // begun and not aborted
};

extern "C" FakeNccl* fake_nccl();
