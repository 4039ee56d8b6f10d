// World: the ranks of a run that a launcher started as processes: their messages, over MPI, or over TCP where the
// launcher says how to reach the first rank (torchrun); and their control channel.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "comm/control.h"
#include "comm/group.h"
#include "comm/launch.h"

namespace lathe::comm {

class World {  // See the top of the file.
 public:
  // Every rank makes one; returns when all are here. UserError: no way to the others. CommError: some did not come.
  World(const Launch&, double timeout);
  ~World();  // without finish() or fail() the others see this rank as gone
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Launch& launch() const { return launch_; }                     // what the launcher says
  Group& group() { return *group_; }                                   // messages
  Control& control() { return *control_; }                             // beside them
  bool speaks() const { return launch_.rank == control_->speaker(); }  // this rank tells the user what is wrong

 private:
  Launch launch_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Control> control_;
};

// Of this process; null where no launcher started several. UserError (usage): the environment does not fit together.
std::unique_ptr<World> find_world(double timeout);

// f(), and then the orderly end of all ranks. The others are told of what it throws; what comes out of here is an Error
// with the line that all ranks have.
template <class F>
auto run_in(World& world, F&& f) {
  try {
    auto result = f();
    world.control().finish();
    return result;
  } catch (const CommError& e) {
    throw CommError(world.control().fail(e.what(), Cause::messages));
  } catch (const Error& e) {
    throw Error(e.kind(), e.exit_code(), world.control().fail(e.what()));
  }
}

}  // namespace lathe::comm
