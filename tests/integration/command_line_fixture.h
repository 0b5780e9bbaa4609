#pragma once

#include <string>

#include "gtest/gtest.h"
#include "tests/support/shell.h"
#include "tests/support/test_cluster.h"

namespace tandem {

// Runs the commands of the binary in a shell, against a router with a worker of each role that serves
// all tests of the suite.
class CommandLineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new TestCluster(); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  std::string Server() const { return " --server " + cluster_->address() + " "; }

  static inline TestCluster* cluster_ = nullptr;
};

}  // namespace tandem
