// StepProfile: a timeline of some training steps (`lathe train --profile`). Made before the run's devices and loaders
// and outlives them; the first steps, which fill caches, are left out. On several ranks the first one writes the steps
// of all: trace.json, and timeline.json for the report (loop/ranks/step_timeline.h). Ranks that are processes have a
// profile each.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/group.h"
#include "recipe/recipe.h"
#include "run/executor.h"

namespace lathe {

class Trace;

class StepProfile {  // See the top of the file.
 public:
  // So many steps, written to `path`. `group`: of ranks that are processes, each of which makes the same calls; it
  // outlives the profile.
  StepProfile(const Recipe&, std::string path, int64_t steps, comm::Group* group = nullptr);

  ~StepProfile();
  void write_to(std::string path) { path_ = std::move(path); }  // instead; before the first step
  void after_step(Executor&);                                   // of the run, in the thread that trains
  void finish();              // after the run: writes what there is, if that was not done before
  std::string about() const;  // one line: the file, and what is in it

 private:
  void write();

  std::string path_, title_;
  std::vector<std::pair<std::string, std::string>> facts_;
  int64_t wanted_, calls_ = 0, steps_ = 0, last_ = 0, bytes_ = -1;
  comm::Group* group_;
  bool late_ = false;  // written when the run is over
  int64_t spans_ = 0, lanes_ = 0, left_out_ = 0;
  std::unique_ptr<Trace> trace_;
};

}  // namespace lathe
