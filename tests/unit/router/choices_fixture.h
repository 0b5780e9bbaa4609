#pragma once

#include <cstdint>

#include "tests/support/router_fixture.h"

namespace tandem::choices {

// Requests with several choices: one call per worker, one prompt, each choice its own stream.
class ChoicesTest : public RouterFixture {
 protected:
  v1::GenerateRequest AskFor(int32_t n, v1::Route route = v1::ROUTE_DISAGGREGATED) {
    if (route == v1::ROUTE_UNIFIED) Join("u0", v1::WORKER_ROLE_UNIFIED);
    v1::GenerateRequest request = Ask(route);
    request.set_n(n);
    return request;
  }

  void ExpectOk() {
    ASSERT_TRUE(stream_.end.has_value());
    EXPECT_TRUE(stream_.end->ok()) << *stream_.end;
    ASSERT_TRUE(stream_.summary.has_value());
    ExpectNothingLeft();
  }
};

}  // namespace tandem::choices
