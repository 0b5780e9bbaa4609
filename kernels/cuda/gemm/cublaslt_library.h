#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"

namespace tandem::cuda {

// The functions of cuBLASLt that are used here, from the shared library of this machine: it is half
// a gigabyte, and a binary that linked it would not start where it is missing.
struct CublasLtLibrary {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtGetStatusString) get_status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;

  // Opens the first of `names` that there is; it stays open to the end of the process.
  // FAILED_PRECONDITION when there is none, or when it lacks a function.
  static absl::StatusOr<CublasLtLibrary> Open(std::span<const char* const> names);
};

// The file names of cuBLASLt that OpenBackend tries.
std::span<const char* const> CublasLtNames();

}  // namespace tandem::cuda
