#pragma once

#include <cstddef>
#include <map>

namespace simt {

// The device's memory: a range of addresses that can be touched only while work of the device runs,
// as the host cannot reach a GPU's. Callers hold the machine's lock.
class DeviceArena {
 public:
  // Bytes of NaN, aligned to a page; null when the addresses have run out.
  void* Allocate(size_t bytes);
  void Free(void* pointer);

  // While one of these lives, the memory can be touched. They nest.
  class Access {
   public:
    explicit Access(DeviceArena& arena);
    Access(const Access&) = delete;
    ~Access();

   private:
    DeviceArena& arena_;
  };

 private:
  void Protect(int protection);

  std::map<size_t, size_t> blocks_;  // offset -> bytes, without the gap behind each
  size_t used_ = 0;                  // nothing lies behind
  int depth_ = 0;
};

}  // namespace simt
