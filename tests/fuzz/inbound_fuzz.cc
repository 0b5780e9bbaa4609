// What peers may say on the connections that they make: frames with right headers of any type, in
// any order and of any content, cut anywhere, and bytes that are none. Behind the connections is
// the landing zone of a decode worker with reservations of each sort, of which the engine may be
// rid at any time. However it goes: a reservation is complete only when all of it is there, as its
// sender hashed it; nothing is written anywhere else; and nothing is being written in the end.
//
// The input: a byte each for the way of landings, the size of the pieces that are read, and what is
// read ahead; then steps.
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/hostile_senders.h"
#include "tests/fuzz/landing_worker.h"
#include "tests/fuzz/steps.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  using namespace tandem::inbound_fuzz;
  Steps steps(std::span(data, size));
  const auto ways = static_cast<Worker::Ways>(steps.Take(1) % 3);
  Worker worker(ways);
  HostileSenders senders(worker, steps, ways == Worker::Ways::kSideChannel);
  while (!steps.done()) senders.DoStep();
  senders.CloseAll();
  worker.ExpectNothingUnderWay();
  return 0;
}
