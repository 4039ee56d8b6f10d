// libFuzzer harness: any text is a step set or a UserError. What parses prints as text that parses back; what verify
// accepts has first values, and tensors that come back from the order of files as they went.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ir/print.h"
#include "ir/verify.h"
#include "ops/registry.h"
#include "session/state.h"

namespace {

using namespace lathe;

constexpr int64_t kLargest = 1 << 16;  // bytes of a tensor that is moved

void check_row(const StateSpec& s, const StateTable& table) {
  if (!(s == s) || std::isnan(s.init.value)) std::abort();
  const StateSpec& first = first_value_of(s, table);
  if (first.type != s.type) std::abort();
  if (s.type.bytes() > kLargest) return;
  if (file_type(s).bytes() != s.type.bytes()) std::abort();
  std::vector<std::byte> memory(static_cast<size_t>(s.type.bytes())), file(memory.size()), back(memory.size());
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 37);
  to_file_order(s, memory, file);
  from_file_order(s, file, back);
  if (memory != back) std::abort();
  if (s.type.dtype != DType::f32) return;
  std::vector<float> values(static_cast<size_t>(s.type.numel()));
  initial_values(first, 1, 0, values);
  for (const float v : values)
    if (std::isnan(v)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  StepSet set;
  try {
    set = parse_step_set(text, registry());
    verify(set, Level::tensor, "", MadeBy::caller);
  } catch (const UserError&) {
    return 0;
  }
  if (!structurally_equal(set, parse_step_set(print(set), registry()))) std::abort();
  for (const StateSpec& s : set.state) check_row(s, set.state);
  drop_unused_state(set);
  verify(set, Level::tensor);
  return 0;
}
