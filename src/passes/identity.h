// The skeleton of a pass: copy both files, rename, and add a row to pipeline.cpp. The header says what the pass does,
// what graph it takes (its verify level), what it keeps, and between which neighbours it runs and why.
// identity changes nothing. Input: any verified graph. Not in the table.
#pragma once

#include "passes/pass.h"

namespace lathe {

Graph identity(Graph, const PassContext&);

}  // namespace lathe
