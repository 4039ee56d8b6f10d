// What the driver holds every pass to: that it keeps what its row does not say it touches, treats training graphs that
// are the same but for shapes alike, and leaves nodes their roles.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "passes/pass.h"

namespace lathe {

// Equal for sets that are equal up to the numbering of values and share their parameter objects.
uint64_t identity_hash(const StepSet&);

// Of a set that somebody gives to the pipeline: it is verified, and a metric is read by metrics alone. UserError.
void check_input(const StepSet&);

// Of one that has its state table from somebody, not from the inputs of a single graph: gradients are marked as those
// of parameters, and some graph reads or writes each row. UserError.
void check_step_set(const StepSet&);

// Looks at a set before and after each pass.
class PassChecks {
 public:
  PassChecks();
  ~PassChecks();
  PassChecks(const PassChecks&) = delete;
  PassChecks& operator=(const PassChecks&) = delete;

  void before(const PassEntry&, const StepSet&);
  // Of the set that the pass returned: verifies it and compares it. Who made the pass gets the error: UserError or
  // InternalError.
  void after(const PassEntry&, const StepSet&, MadeBy);
  void forget();  // a pass ran that nobody looked at

 private:
  struct Facts;
  void check_alike(const StepSet& after, const std::function<void(const std::string&)>& fail) const;
  std::unique_ptr<Facts> facts_;
};

}  // namespace lathe
