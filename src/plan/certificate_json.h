// The certificate as a JSON value: for code that adds to it. certificate_text_json (certificate.h) is its text.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "plan/program.h"

namespace lathe {

nlohmann::ordered_json certificate_json(const ProgramSet&);

}  // namespace lathe
