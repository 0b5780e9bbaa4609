#pragma once

// Stands in for the toolkit's header when the CUDA sources are compiled for the emulator: the
// subset of the language and of the runtime that this project's kernels and device code use.
#include "simt/device.h"
#include "simt/runtime_api.h"
#include "simt/vector_types.h"
