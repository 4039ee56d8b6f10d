// libFuzzer harness: any bytes are a target file or a bad-recipe error with its name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "compile/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  try {
    const lathe::TargetFile t = lathe::parse_target({reinterpret_cast<const char*>(bytes), size}, "fuzz.toml");
    if (t.memory <= 0 || !(t.bandwidth > 0) || t.peaks.empty()) std::abort();
  } catch (const lathe::UserError& error) {
    if (error.exit_code() != lathe::Exit::bad_recipe) std::abort();
    if (std::string_view(error.what()).substr(0, 10) != "fuzz.toml:") std::abort();
  }
  return 0;
}
