#pragma once

namespace tandem {

// The rule that ends a preference for one worker, such as for the one that has the prompt, in loads as
// LoadOf says them (router/policy/worker_load.h): a worker with more than one and a half times the
// least load and 2,048 tokens is overloaded. The constant keeps an almost idle group from being
// spread at once.
bool IsOverloaded(double load, double least);
// Whether a worker that was overloaded has few enough again: with at most one and a quarter times
// the least load and 1,024 tokens. Between the two bounds it stays what it was, so that a load that
// varies little does not move requests to and fro.
bool IsRelieved(double load, double least);

}  // namespace tandem
