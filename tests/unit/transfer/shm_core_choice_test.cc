#include <sched.h>

#include <thread>

#include "gtest/gtest.h"
#include "transfer/media/shm/core_choice.h"

namespace tandem {
namespace {

int CoresAllowed() {
  cpu_set_t allowed;
  EXPECT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  return CPU_COUNT(&allowed);
}

// On threads of their own: what these may run on is theirs alone.
TEST(ShmCoreChoice, LeavesTheWritersCoreAndComesBack) {
  if (CoresAllowed() < 2) GTEST_SKIP() << "this process may run on one core only";
  std::thread([] {
    const int cores = CoresAllowed();
    CoreChoice choice;
    // The kernel may move the thread between the two calls: then it is not on that core.
    while (CoresAllowed() == cores) choice.WokenBy(sched_getcpu());
    EXPECT_EQ(CoresAllowed(), cores - 1);
    while (CoresAllowed() != cores) choice.WokenBy(-1);
  }).join();
}

TEST(ShmCoreChoice, StaysForALoneBurst) {
  std::thread([] {
    const int cores = CoresAllowed();
    CoreChoice choice;
    choice.WokenBy(sched_getcpu());
    EXPECT_EQ(CoresAllowed(), cores);
  }).join();
}

TEST(ShmCoreChoice, StaysWhereTheWriterIsNot) {
  std::thread([] {
    const int cores = CoresAllowed();
    CoreChoice choice;
    for (int i = 0; i < 1000; ++i) choice.WokenBy(-1);
    EXPECT_EQ(CoresAllowed(), cores);
  }).join();
}

TEST(ShmCoreChoice, HasNowhereToGoWithOneCore) {
  std::thread([] {
    const int core = sched_getcpu();
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(static_cast<size_t>(core), &only);
    ASSERT_EQ(sched_setaffinity(0, sizeof(only), &only), 0);
    CoreChoice choice;
    choice.WokenBy(core);
    EXPECT_EQ(CoresAllowed(), 1);
  }).join();
}

}  // namespace
}  // namespace tandem
