#pragma once

namespace tandem {

// The rule that ends a preference for one worker, such as for the one that has the prompt, in loads
// as LoadOf says them (router/policy/worker_load.h): a worker is overloaded with more than one and
// a half times the least load plus 2,048 tokens. The constant keeps an almost idle group from being
// spread at once.
bool IsOverloaded(double load, double least);
// Whether the load of a worker that was overloaded is low enough again: at most one and a quarter
// times the least load plus 1,024 tokens. Between the two bounds a worker stays what it was, so
// that a load that varies little does not move requests to and fro.
bool IsRelieved(double load, double least);

}  // namespace tandem
