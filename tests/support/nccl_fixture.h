#pragma once

#include <dlfcn.h>

#include <memory>

#include "base/check.h"
#include "kernels/registry.h"
#include "tests/simt/fake_nccl.h"
#include "transfer/nccl/nccl_medium.h"

namespace tandem {

// The emulated GPU of a test.
inline Device& EmulatedGpu() {
  static const std::unique_ptr<Device> device = [] {
    auto backend = OpenBackend("cuda:0", {});
    TANDEM_CHECK(backend.ok(), backend.status().ToString());
    return std::move(backend->device);
  }();
  return *device;
}

// The switches and counters of the stand-in that media of this process use.
inline FakeNccl& TheFakeNccl() {
  void* const library = dlopen(TANDEM_NCCL_NAME, RTLD_NOW | RTLD_LOCAL);
  TANDEM_CHECK(library != nullptr, "the stand-in for NCCL is not where the build put it");
  return *reinterpret_cast<FakeNccl* (*)()>(dlsym(library, "fake_nccl"))();
}

// Small slots: operations of many sizes fill them.
inline NcclOptions SmallNccl() {
  return {.chunk_bytes = 256 << 10, .send_slots = 3, .receive_slots = 4};
}

inline std::unique_ptr<NcclMedium> OpenSmallNccl(const NcclOptions& options = SmallNccl()) {
  auto medium = NcclMedium::Open(EmulatedGpu(), options);
  TANDEM_CHECK(medium.ok(), medium.status().ToString());
  return *std::move(medium);
}

}  // namespace tandem
