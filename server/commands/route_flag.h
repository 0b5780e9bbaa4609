#pragma once

#include <map>
#include <string>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// The values of --route and of similar flags.
inline const std::map<std::string, v1::Route> kRoutesByName = {
    {"auto", v1::ROUTE_AUTO},
    {"unified", v1::ROUTE_UNIFIED},
    {"disaggregated", v1::ROUTE_DISAGGREGATED}};

}  // namespace tandem
