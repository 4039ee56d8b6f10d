#include "comm/run_ranks.h"

#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_rank.h"
#include "comm/threads.h"

namespace lathe::comm {
namespace {

// The first of all: what the others end with is that they wait in vain.
class FirstError {
 public:
  void set(int rank, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    rank_ = rank;
    error_ = std::move(error);
  }
  void rethrow() const {
    if (!error_) return;
    try {
      std::rethrow_exception(error_);
    } catch (const Error& e) {
      if (rank_ == 0) throw;
      throw Error(e.kind(), e.exit_code(), fmt::format("[rank {}] {}", rank_, e.what()));
    }
  }

 private:
  std::mutex mutex_;
  int rank_ = 0;
  std::exception_ptr error_;
};

}  // namespace

void run_ranks(std::span<const std::unique_ptr<Group>> groups, const std::function<void(Group&)>& work) {
  FirstError error;
  const auto run = [&](Group& group) {
    try {
      work(group);
    } catch (const RankDied&) {  // without a word, as planted
      error.set(group.rank(), std::current_exception());
    } catch (const std::exception& e) {
      error.set(group.rank(), std::current_exception());
      group.abort(fmt::format("rank {}: {}", group.rank(), e.what()));
    } catch (...) {
      error.set(group.rank(), std::current_exception());
      group.abort(fmt::format("rank {} ended by an exception of the program", group.rank()));
    }
  };
  {
    std::vector<std::jthread> others;
    for (const auto& group : groups.subspan(1))
      others.emplace_back([&run, &group] {
        thread_rank() = group->rank();
        run(*group);
      });
    const int before = std::exchange(thread_rank(), 0);
    run(*groups[0]);
    thread_rank() = before;
  }
  error.rethrow();
}

}  // namespace lathe::comm
