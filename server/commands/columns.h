#pragma once

namespace tandem {

// The width of the terminal that stdout is, at most 200; 100 where it is none.
int ColumnsOfOutput();

}  // namespace tandem
