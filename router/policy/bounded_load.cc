#include "router/policy/bounded_load.h"

namespace tandem {

bool IsOverloaded(double load, double least) { return load > 1.5 * least + 2048; }

bool IsRelieved(double load, double least) { return load <= 1.25 * least + 1024; }

}  // namespace tandem
