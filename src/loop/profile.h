// StepProfile: a timeline of some training steps (`lathe train --profile`). Made before the run's devices and loaders
// and outlives them; the first steps, which fill caches, are left out.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "recipe/recipe.h"
#include "run/executor.h"

namespace lathe {

class Trace;

class StepProfile {  // See the top of the file.
 public:
  StepProfile(const Recipe&, std::string path, int64_t steps);  // so many, written to `path`

  ~StepProfile();
  void write_to(std::string path) { path_ = std::move(path); }  // instead; before the first step
  void after_step(Executor&);                                   // of the run, in the thread that trains
  void finish();              // after the run: writes what there is, if its end came before that of the profile
  std::string about() const;  // one line: the file, and what is in it

 private:
  void write();

  std::string path_, title_;
  std::vector<std::pair<std::string, std::string>> facts_;
  int64_t wanted_, calls_ = 0, steps_ = 0, last_ = 0, bytes_ = -1;
  std::unique_ptr<Trace> trace_;
};

}  // namespace lathe
