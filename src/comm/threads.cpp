#include "comm/threads.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/philox.h"
#include "comm/checksum.h"

namespace lathe::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLook = 0.5;  // seconds of a wait, after which it looks at the clock

// One end of a message that was started.
struct Post {
  enum class State { free, waiting, moving, done, failed } state = State::free;
  bool sends = false;  // it is the sender's end
  int tag = 0;
  uint64_t order = 0;   // among those of the channel
  uint64_t number = 0;  // among those of its end and tag: the two ends of a message have the same
  bool dropped = false;
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;
  size_t bytes = 0;
  int64_t flipped = -1;  // the bit that arrives wrong
};
using Posts = std::array<Post, Group::kInFlight>;

// From one rank to another. The slots of messages are there from the start.
struct Channel {
  std::mutex mutex;
  std::condition_variable changed;
  Posts sends, receives;
  uint64_t order = 0;
  std::array<uint64_t, Group::kTags> sent{}, asked{};  // by tag
};

struct ThreadWorld {
  ThreadWorld(int ranks, const ThreadOptions& o)
      : size(ranks), options(o), channels(static_cast<size_t>(ranks * ranks)) {}

  Channel& channel(int from, int to) { return channels[static_cast<size_t>(from * size + to)]; }

  void abort(const std::string& text) {
    {
      const std::lock_guard lock(mutex);
      if (aborted) return;
      why = text;
      aborted = true;
    }
    for (Channel& c : channels) {
      const std::lock_guard lock(c.mutex);
      c.changed.notify_all();
    }
  }
  std::string reason() {  // once it is aborted
    const std::lock_guard lock(mutex);
    return why;
  }

  const int size;
  const ThreadOptions options;
  std::vector<Channel> channels;
  std::atomic<bool> aborted{false};
  std::mutex mutex;
  std::string why;
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(std::shared_ptr<ThreadWorld> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_->size; }

  Message send(int to, int tag, std::span<const std::byte> bytes) override {
    check_peer(to);
    const Faults& f = world_->options.faults;
    if (rank_ == f.dying && sent_ >= f.dies_after) {
      withdraw();
      throw RankDied{rank_};
    }
    const uint64_t number = static_cast<uint64_t>(sent_++);
    const CounterRng random(f.seed, static_cast<uint32_t>(rank_), 0, 0);
    const auto happens = [&](double chance, uint64_t which) {
      return chance > 0 && random.uniform(8 * number + which) < chance;
    };
    if (happens(f.delay, 0))
      std::this_thread::sleep_for(std::chrono::duration<double>(f.longest * random.uniform(8 * number + 1)));
    Post post{.sends = true, .tag = tag, .src = bytes.data(), .bytes = bytes.size()};
    if (happens(f.flip, 2) && !bytes.empty())
      post.flipped = static_cast<int64_t>(random.below(8 * number + 3, 8 * bytes.size()));
    post.dropped = happens(f.drop, 4);
    return start(rank_, to, to, post);
  }

  Message receive(int from, int tag, std::span<std::byte> bytes) override {
    check_peer(from);
    return start(from, rank_, from, {.tag = tag, .dst = bytes.data(), .bytes = bytes.size()});
  }

  bool test(Message& m) override {
    if (m.at < 0) return true;
    const Ends e = ends(m);
    std::unique_lock lock(e.channel.mutex);
    if (e.post.state == Post::State::done) {
      finish(e.post, m);
      return true;
    }
    lock.unlock();
    check();
    return false;
  }

  void wait(Message& m) override {
    if (m.at < 0) return;
    const Ends e = ends(m);
    std::unique_lock lock(e.channel.mutex);
    const auto is_over = [&] {
      return e.post.state == Post::State::done || (world_->aborted && e.post.state != Post::State::moving);
    };
    const double timeout = world_->options.timeout;
    // Time in which this process was stopped does not count: a suspended job goes on.
    double waited = 0;
    const auto wait_a_while = [&] {
      const double most = std::min(timeout - waited, kLook);
      const Clock::time_point begin = Clock::now();
      if (e.channel.changed.wait_for(lock, std::chrono::duration<double>(most), is_over)) return true;
      waited += std::min(std::chrono::duration<double>(Clock::now() - begin).count(), 2 * kLook);
      return false;
    };
    bool over = false;
    while (!over && waited < timeout) over = wait_a_while();
    if (!over) {
      const std::string text = fmt::format(
          "rank {} waited {} s to {} {} bytes {} rank {} (tag {}); is that rank alive, and does it take part?", rank_,
          timeout, e.post.sends ? "send" : "receive", e.post.bytes, e.post.sends ? "to" : "from", m.peer, e.post.tag);
      lock.unlock();
      fail(text);
    }
    if (e.post.state == Post::State::done) return finish(e.post, m);
    lock.unlock();
    check();
  }

  void abort(const std::string& why) override { world_->abort(why); }

 private:
  struct Ends {
    Channel& channel;
    Post& post;
  };

  void check() {
    if (world_->aborted) fail(world_->reason());
  }

  [[noreturn]] void fail(const std::string& why) {
    world_->abort(why);
    withdraw();
    throw CommError(world_->reason());
  }

  // Nobody may touch the bytes of messages after an error: their owner is about to leave.
  void withdraw() {
    for (int peer = 0; peer < size(); ++peer)
      for (const bool sends : {true, false}) {
        Channel& c = sends ? world_->channel(rank_, peer) : world_->channel(peer, rank_);
        std::unique_lock lock(c.mutex);
        for (Post& p : sends ? c.sends : c.receives) {
          c.changed.wait(lock, [&] { return p.state != Post::State::moving; });
          p = {};
        }
      }
  }

  void check_peer(int peer) {
    check();
    LATHE_CHECK(peer >= 0 && peer < size(), "rank {} of {}", peer, size());
  }

  // Message::at: the slot; those of receives follow those of sends.
  Ends ends(const Message& m) const {
    const bool sends = m.at < kInFlight;
    Channel& c = sends ? world_->channel(rank_, m.peer) : world_->channel(m.peer, rank_);
    return {c, sends ? c.sends[static_cast<size_t>(m.at)] : c.receives[static_cast<size_t>(m.at - kInFlight)]};
  }

  static void finish(Post& post, Message& m) {
    post = {};
    m.at = -1;
  }

  static Post* find_oldest(Posts& posts, int tag) {
    Post* oldest = nullptr;
    for (Post& p : posts)
      if (p.state == Post::State::waiting && p.tag == tag && (!oldest || p.order < oldest->order)) oldest = &p;
    return oldest;
  }

  Message start(int from, int to, int peer, Post post) {
    Channel& c = world_->channel(from, to);
    const bool sends = post.sends;
    Posts &own = sends ? c.sends : c.receives, &others = sends ? c.receives : c.sends;
    LATHE_CHECK(post.tag >= 0 && post.tag < kTags, "tag {}", post.tag);
    std::unique_lock lock(c.mutex);
    post.number = (sends ? c.sent : c.asked)[static_cast<size_t>(post.tag)]++;
    if (post.dropped) return {};
    size_t slot = 0;
    while (slot < own.size() && own[slot].state != Post::State::free) ++slot;
    LATHE_CHECK(slot < own.size(), "more than {} messages from rank {} to rank {}", kInFlight, from, to);
    const Message m{static_cast<int32_t>(slot) + (sends ? 0 : kInFlight), peer};
    Post& mine = own[slot];
    mine = post;
    mine.order = c.order++;
    Post* other = find_oldest(others, post.tag);
    if (!other) {
      mine.state = Post::State::waiting;
      return m;
    }
    mine.state = other->state = Post::State::moving;
    Post &source = sends ? mine : *other, &target = sends ? *other : mine;
    lock.unlock();
    const std::string problem = move(source, target, from, to);
    // Before anybody can take it for done.
    if (!problem.empty()) world_->abort(problem);
    lock.lock();
    mine.state = other->state = problem.empty() ? Post::State::done : Post::State::failed;
    c.changed.notify_all();
    lock.unlock();
    if (!problem.empty()) fail(problem);
    return m;
  }

  // What is wrong with it; empty: nothing.
  std::string move(const Post& source, const Post& target, int from, int to) const {
    if (source.bytes != target.bytes)
      return fmt::format("rank {} sent {} bytes, rank {} expected {} (tag {}); the ranks do not run the same program",
                         from, source.bytes, to, target.bytes, source.tag);
    if (source.number != target.number)
      return fmt::format("message {} of rank {} to rank {} (tag {}) was lost: message {} came in its place",
                         target.number, from, to, source.tag, source.number);
    if (source.bytes > 0) std::memcpy(target.dst, source.src, source.bytes);
    if (source.flipped >= 0) target.dst[source.flipped / 8] ^= std::byte{1} << (source.flipped % 8);
    if (world_->options.checksums && checksum({source.src, source.bytes}) != checksum({target.dst, target.bytes}))
      return fmt::format("{} bytes from rank {} to rank {} (tag {}) arrived with another checksum", source.bytes, from,
                         to, source.tag);
    return "";
  }

  const std::shared_ptr<ThreadWorld> world_;
  const int rank_;
  int64_t sent_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Group>> thread_groups(int ranks, const ThreadOptions& options) {
  LATHE_USER_CHECK(ranks >= 1 && ranks <= 1024, "ranks: expected 1 to 1024, got {}", ranks);
  const auto world = std::make_shared<ThreadWorld>(ranks, options);
  std::vector<std::unique_ptr<Group>> out;
  for (int r = 0; r < ranks; ++r) out.push_back(std::make_unique<ThreadGroup>(world, r));
  return out;
}

}  // namespace lathe::comm
