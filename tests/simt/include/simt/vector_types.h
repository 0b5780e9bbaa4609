#pragma once

// Vector types with CUDA's names, layouts and alignments.
struct uint3 {
  unsigned int x, y, z;
};
struct dim3 {
  unsigned int x = 1, y = 1, z = 1;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

#define SIMT_VECTOR(type, name)                                           \
  struct alignas(2 * sizeof(type)) name##2 {                              \
    type x, y;                                                            \
  };                                                                      \
  struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { \
    type x, y, z, w;                                                      \
  };                                                                      \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }        \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

SIMT_VECTOR(float, float)
SIMT_VECTOR(int, int)
SIMT_VECTOR(unsigned int, uint)
SIMT_VECTOR(unsigned short, ushort)
SIMT_VECTOR(unsigned char, uchar)
#undef SIMT_VECTOR
