// A cuBLASLt that the production loader can open: the products are right, slow, and work of the
// emulated streams. A shared library, so that the loader takes its usual way; it reaches the
// machine by the one function that the program exports for it.
#include <cublasLt.h>
#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <vector>

#include "simt/float_formats.h"

namespace {

struct Product {
  cublasOperation_t a;
  cublasOperation_t b;
};
struct Layout {
  cudaDataType_t type;
  cublasLtOrder_t order;
  uint64_t rows;
  uint64_t columns;
  int64_t stride;

  size_t Index(uint64_t row, uint64_t column) const {
    const auto step = static_cast<size_t>(stride);
    return order == CUBLASLT_ORDER_COL ? column * step + row : row * step + column;
  }
};
static_assert(sizeof(Product) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

template <class T, class Opaque>
T Read(const Opaque* opaque) {
  T value;
  std::memcpy(static_cast<void*>(&value), opaque, sizeof(value));
  return value;
}

template <class T, class Opaque>
void Write(Opaque* opaque, const T& value) {
  std::memcpy(static_cast<void*>(opaque), &value, sizeof(value));
}

// Copies an attribute's value when it has the size that the library documents.
template <class T>
cublasStatus_t Take(const void* value, size_t bytes, T* out) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(out, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

float Load(const void* data, cudaDataType_t type, size_t index) {
  switch (type) {
    case CUDA_R_32F:
      return static_cast<const float*>(data)[index];
    case CUDA_R_16F:
      return simt::FromF16(static_cast<const uint16_t*>(data)[index]);
    case CUDA_R_16BF:
      return simt::FromBf16(static_cast<const uint16_t*>(data)[index]);
  }
  return 0;
}

void Store(void* data, cudaDataType_t type, size_t index, float value) {
  switch (type) {
    case CUDA_R_32F:
      static_cast<float*>(data)[index] = value;
      break;
    case CUDA_R_16F:
      static_cast<uint16_t*>(data)[index] = simt::ToF16(value);
      break;
    case CUDA_R_16BF:
      static_cast<uint16_t*>(data)[index] = simt::ToBf16(value);
      break;
  }
}

// A call of cublasLtMatmul, to be run when its stream comes to it.
struct Call {
  Product product;
  float alpha, beta;
  const void *a, *b, *c;
  void* d;
  Layout a_layout, b_layout, c_layout, d_layout;
};

struct Shape {
  uint64_t m, n, k;
  bool fits;
};

Shape ShapeOf(const Product& product, const Layout& a, const Layout& b, const Layout& c,
              const Layout& d) {
  const bool plain_a = product.a == CUBLAS_OP_N;
  const bool plain_b = product.b == CUBLAS_OP_N;
  const Shape shape{plain_a ? a.rows : a.columns, plain_b ? b.columns : b.rows,
                    plain_a ? a.columns : a.rows, true};
  const bool fits = shape.k == (plain_b ? b.rows : b.columns) && d.rows == shape.m &&
                    d.columns == shape.n && c.rows == shape.m && c.columns == shape.n &&
                    a.type == b.type && c.type == d.type;
  return {shape.m, shape.n, shape.k, fits};
}

// `count` vectors along k, as floats.
std::vector<float> Gather(const void* data, const Layout& layout, bool k_is_row, uint64_t count,
                          uint64_t k) {
  std::vector<float> out(count * k);
  for (uint64_t i = 0; i < count; ++i) {
    for (uint64_t j = 0; j < k; ++j) {
      out[i * k + j] = Load(data, layout.type, k_is_row ? layout.Index(j, i) : layout.Index(i, j));
    }
  }
  return out;
}

float Dot(const float* a, const float* b, uint64_t k) {
  float sums[16] = {};
  uint64_t i = 0;
  for (; i + 16 <= k; i += 16) {
    for (int j = 0; j < 16; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (; i < k; ++i) sums[0] += a[i] * b[i];
  float sum = 0;
  for (float part : sums) sum += part;
  return sum;
}

void Run(void* state) {
  const Call& call = *static_cast<Call*>(state);
  const Shape shape =
      ShapeOf(call.product, call.a_layout, call.b_layout, call.c_layout, call.d_layout);
  const auto a = Gather(call.a, call.a_layout, call.product.a != CUBLAS_OP_N, shape.m, shape.k);
  const auto b = Gather(call.b, call.b_layout, call.product.b == CUBLAS_OP_N, shape.n, shape.k);
  for (uint64_t n = 0; n < shape.n; ++n) {
    for (uint64_t m = 0; m < shape.m; ++m) {
      float value = call.alpha * Dot(&a[m * shape.k], &b[n * shape.k], shape.k);
      if (call.beta != 0) {
        value += call.beta * Load(call.c, call.c_layout.type, call.c_layout.Index(m, n));
      }
      Store(call.d, call.d_layout.type, call.d_layout.Index(m, n), value);
    }
  }
}

void Drop(void* state) { delete static_cast<Call*>(state); }

using Queue = int (*)(cudaStream_t, void (*)(void*), void (*)(void*), void*);

Queue TheQueue() {
  static const auto queue = reinterpret_cast<Queue>(dlsym(RTLD_DEFAULT, "simt_queue"));
  return queue;
}

void NoteHeuristic() {
  static const auto note = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "simt_note_heuristic"));
  if (note != nullptr) note();
}

}  // namespace

size_t cublasLtGetVersion() { return 130100; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "an error of the emulated cuBLASLt";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (TheQueue() == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  const bool known = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC;
  if (!known || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *desc = new cublasLtMatmulDescOpaque_t{};
  Write(*desc, Product{CUBLAS_OP_N, CUBLAS_OP_N});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  auto product = Read<Product>(desc);
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) {
    status = Take(value, bytes, &product.a);
  } else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) {
    status = Take(value, bytes, &product.b);
  } else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) {
    auto epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    status = Take(value, bytes, &epilogue);
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) status = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  Write(desc, product);
  return status;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  *layout = new cublasLtMatrixLayoutOpaque_t{};
  Write(*layout, Layout{type, CUBLASLT_ORDER_COL, rows, columns, stride});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  auto known = Read<Layout>(layout);
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      status = Take(value, bytes, &known.type);
      break;
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      status = Take(value, bytes, &known.order);
      break;
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      status = Take(value, bytes, &known.rows);
      break;
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      status = Take(value, bytes, &known.columns);
      break;
    case CUBLASLT_MATRIX_LAYOUT_LD:
      status = Take(value, bytes, &known.stride);
      break;
  }
  Write(layout, known);
  return status;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

// There is one algorithm, which needs neither workspace nor alignment.
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void* value, size_t) {
  return value != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 0;
  NoteHeuristic();
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (!ShapeOf(Read<Product>(desc), Read<Layout>(a), Read<Layout>(b), Read<Layout>(c),
               Read<Layout>(d))
           .fits) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  results[0] = {};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*,
                              size_t, cudaStream_t stream) {
  auto call = std::make_unique<Call>(Call{Read<Product>(desc), *static_cast<const float*>(alpha),
                                          *static_cast<const float*>(beta), a, b, c, d,
                                          Read<Layout>(a_layout), Read<Layout>(b_layout),
                                          Read<Layout>(c_layout), Read<Layout>(d_layout)});
  if (!ShapeOf(call->product, call->a_layout, call->b_layout, call->c_layout, call->d_layout)
           .fits) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const int error = TheQueue()(stream, Run, Drop, call.release());
  return error == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
