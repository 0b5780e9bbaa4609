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
  // Addresses that nothing can touch until a file is mapped there.
  void* Reserve(size_t bytes);
  // Puts the first bytes of a file there instead of what there was, for all of the allocation or
  // reservation that begins at `pointer`.
  enum class Reach { kNothing, kRead, kReadWrite };
  void MapFile(void* pointer, int file, Reach reach);
  void Unmap(void* pointer);
  // Of what MapFile mapped.
  void SetReach(void* pointer, Reach reach);
  void Free(void* pointer);

  // While one of these lives, the memory can be touched by the thread that made it, which also ends
  // it. They nest.
  class Access {
   public:
    explicit Access(DeviceArena& arena);
    Access(const Access&) = delete;
    ~Access();

   private:
    DeviceArena& arena_;
    int rights_before_ = 0;
  };

 private:
  struct Block {
    size_t bytes;  // without the gap behind
    Reach reach;
    bool of_file = false;
  };

  void* Place(size_t bytes, Reach reach);
  size_t OffsetOf(void* pointer) const;
  void OnReach(size_t offset);
  // Of all pages, where there is no key of protection.
  void Release();
  void Protect();

  std::map<size_t, Block> blocks_;  // by offset
  size_t used_ = 0;                 // nothing lies behind
  int depth_ = 0;                   // of Access, without a key of protection
};

}  // namespace simt
