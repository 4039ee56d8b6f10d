// For tests: a writer of checkpoints that is killed at each of its calls.
#pragma once

#include <functional>

#include "io/checkpoint.h"
#include "io/test_util.h"

namespace lathe::io {

// save(step, n), in a process of its own, kills that process at its n-th call, n = 1, 2, ..., until it comes to its
// end. After each, newest() is the step that was saved or the one before, and nothing that was left behind is in the
// way. `dir` has step 1. The number of calls.
inline int64_t kill_at_every_call(const std::string& dir, const std::function<void(int64_t step, int64_t n)>& save,
                                  const std::function<int64_t()>& newest) {
  int64_t before = 1;
  for (int64_t n = 1; n < 500; ++n) {
    const int64_t step = n + 1;
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        save(step, n);
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    const bool finished = WIFEXITED(status);
    EXPECT_TRUE(finished ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
    const int64_t found = newest();
    EXPECT_TRUE(found == step || (found == before && !finished)) << found << " after kill at call " << n;
    before = found;
    PosixFs fs;
    Notes notes;
    clean_leftovers(fs, dir, notes);
    EXPECT_TRUE(notes.empty());
    EXPECT_EQ(newest(), found);
    if (finished) return n;
  }
  ADD_FAILURE() << "no end";
  return 0;
}

}  // namespace lathe::io
