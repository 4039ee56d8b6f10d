#include "comm/control/state.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "comm/control/stacks.h"

namespace lathe::comm {
namespace {

constexpr double kSuspicionSeconds = 0.5;
constexpr double kLingerSeconds = 0.5;
constexpr double kStoppedSeconds = 1;  // between two ticks, beyond a few heartbeats
constexpr size_t kLongestLabel = 120;
constexpr size_t kLongestInbox = 4;

// One line that fits a frame.
std::string to_line(std::string_view text) {
  std::string line(text.substr(0, kLongestText - 400));
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

void write_line(int fd, const std::string& line) {
  [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());
}

}  // namespace

Control::State::State(const ControlOptions& o, std::optional<Listener> listener)
    : options(o),
      is_root(o.rank == 0),
      hosts(static_cast<size_t>(std::clamp(o.size, 1, 65536)), host_name()),
      known(hosts.size()),
      stragglers(static_cast<int>(hosts.size())),
      stack_folder(o.stack_folder) {
  LATHE_USER_CHECK(o.size >= 1 && o.size <= 65536 && o.rank >= 0 && o.rank < o.size,
                   "rank {} of {}: expected a rank below the number of ranks, 1 to 65536", o.rank, o.size);
  LATHE_USER_CHECK(o.timeout > 0 && o.heartbeat > 0 && o.timeout >= 3 * o.heartbeat,
                   "timeout: expected at least 3 heartbeats of {} s, got {} s", o.heartbeat, o.timeout);
  prepare_stacks();
  scratch_.reserve(1024);
  views_.reserve(known.size());
  if (o.size > 1) start(std::move(listener));
}

Control::State::~State() {
  bool lingers = false;
  {
    const std::lock_guard lock(mutex);
    lingers = is_root && (verdict || all_done);
  }
  if (star) star->stop(lingers ? kLingerSeconds : 0);
}

void Control::State::start(std::optional<Listener> listener) {
  const Membership own{Purpose::control, options.rank, options.size, options.token, options.start_timeout};
  std::vector<Member> members;
  std::string welcome;
  if (is_root) {
    if (!listener) listener.emplace(options.address);
    members = accept_members(*listener, own, 1);
    Put out(welcome);
    for (const Member& m : members) hosts[static_cast<size_t>(m.rank)] = m.host;
    for (const std::string& host : hosts) out.text(host);
    for (const Member& m : members)
      if (local_host.empty() || is_loopback(local_host)) local_host = m.socket.local_host();
  } else {
    members.push_back(join(options.address, 0, own, welcome));
    Take in(welcome);
    for (std::string& host : hosts) host = in.text();
    if (!in.at_end()) throw CommError("rank 0 sent a welcome that is none");
    local_host = members[0].socket.local_host();
  }
  for (Known& k : known) k.heard = monotonic_seconds();
  star.emplace(std::move(members), tick());
  if (is_root) star->send_all(FrameType::welcome, welcome);
  star->start(*this);
}

RankView Control::State::view(int rank) const {
  RankView v{.rank = rank, .host = hosts[static_cast<size_t>(rank)]};
  if (rank == options.rank) {
    v.place = position.read();
    v.is_done = is_done;
  } else {
    const Known& k = known[static_cast<size_t>(rank)];
    v.place = k.place;
    v.place.label = k.label.data();
    v.silence = std::max(0.0, monotonic_seconds() - k.heard);
    v.is_done = k.is_done;
  }
  return v;
}

void Control::State::conclude(const Verdict& v, bool tell) {
  {
    const std::lock_guard lock(mutex);
    if (verdict || all_done) return;
    verdict = v;
    ended_at = monotonic_seconds() + options.grace;
  }
  if (star && tell) {
    std::string payload;
    if (is_root) {
      Put(payload).number(static_cast<uint8_t>(v.fault)).number<int32_t>(v.rank).text(v.text);
      star->send_all(FrameType::verdict, payload);
    } else {
      // Rank 0 may be stopped, and read it when it goes on.
      Put(payload).number<uint8_t>(true).number(static_cast<uint8_t>(v.fault)).number<int32_t>(v.rank).text(v.text);
      star->send(0, FrameType::fail, payload);
    }
  }
  changed.notify_all();
  if (v.rank == options.rank && (v.fault == Fault::late || v.fault == Fault::silent)) dump_stacks();
  call_back();
}

void Control::State::call_back() {
  std::function<void(const std::string&)> f;
  std::string text;
  {
    const std::lock_guard lock(mutex);
    if (!verdict || is_called || !callback) return;
    is_called = true;
    calling = std::this_thread::get_id();
    f = callback;
    text = verdict->text;
  }
  try {
    f(text);
  } catch (...) {  // who throws here is ended when the grace is over
  }
  {
    const std::lock_guard lock(mutex);
    calling = {};
  }
  changed.notify_all();
}

// To the file, with a line on the standard error that names it; where there can be none, to the standard error.
void Control::State::dump_stacks() const {
  std::string path, text;
  {
    const std::lock_guard lock(mutex);
    path = fmt::format("{}/rank-{}.stack", stack_folder, options.rank);
    if (verdict) text = verdict->text;
  }
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  const int fd = file >= 0 ? file : STDERR_FILENO;
  write_line(fd, fmt::format("lathe: {}\nlathe: the threads of rank {}, process {}:\n", text, options.rank, getpid()));
  print_stacks(fd);
  if (file < 0) return;
  close(file);
  write_line(STDERR_FILENO, fmt::format("lathe: the stacks of rank {}'s threads are in {}\n", options.rank, path));
}

void Control::State::end_process() {
  std::string text;
  {
    const std::lock_guard lock(mutex);
    text = verdict->text;
  }
  write_line(STDERR_FILENO, fmt::format("lathe: {}\nlathe: rank {} did not leave within {} s after that and is ended\n",
                                        text, options.rank, options.grace));
  dump_stacks();
  _exit(static_cast<int>(Exit::peer_failure));
}

void Control::State::on_frame(int rank, const Frame& frame) {
  bool ok = true;
  {
    std::unique_lock lock(mutex);
    Known& from = known[static_cast<size_t>(rank)];
    from.heard = monotonic_seconds();
    switch (frame.type) {
      case FrameType::heartbeat: ok = take_heartbeat(rank, frame.payload); break;
      case FrameType::data:
        ok = !is_root || from.inbox.size() < kLongestInbox;
        if (ok) from.inbox.emplace_back(frame.payload);
        break;
      case FrameType::bye:
        ok = is_root;
        from.is_done = true;
        break;
      case FrameType::done:
        ok = !is_root && is_done;
        all_done = ok;
        break;
      case FrameType::fail:
      case FrameType::verdict:
        lock.unlock();
        ok = take_failure(rank, frame.payload);
        break;
      case FrameType::hello:
      case FrameType::refused:
      case FrameType::welcome: ok = false; break;
    }
  }
  changed.notify_all();
  if (!ok) on_closed(rank, true);
}

void Control::State::on_closed(int rank, bool is_bad) {
  Verdict v;
  {
    const std::lock_guard lock(mutex);
    known[static_cast<size_t>(rank)].is_open = false;
    if (verdict || all_done) return;
    const RankView r = view(rank);
    v = gone(r);
    if (is_bad) v = {Fault::gone, rank, fmt::format("{}: sends what no rank sends; {}", name_of(r), last_seen(r))};
  }
  conclude(v);
}

double Control::State::tick() const { return options.heartbeat * std::max(1.0, options.size / 128.0); }

void Control::State::on_tick() {
  // This process was stopped, and others may have been with it (a suspended job): all start anew.
  const double now = monotonic_seconds();
  if (last_tick_ > 0 && now - last_tick_ > kStoppedSeconds + 5 * tick()) judged_from_ = now + options.timeout;
  last_tick_ = now;
  beat();
  check_others();
  bool is_over = false;
  {
    const std::lock_guard lock(mutex);
    is_over = ended_at > 0 && monotonic_seconds() > ended_at;
  }
  if (is_over) end_process();
}

void Control::State::put_heartbeat(std::string& payload) const {
  const Place p = position.read();
  Put out(payload);
  out.number(p.step).number(p.number).number(p.in_step).number(p.per_step).number<uint8_t>(p.inside).number(p.seconds);
  out.text(p.label.substr(0, kLongestLabel));
  if (!is_root)
    for (const Position::Mark& m : position.marks()) out.number(m.step).number(m.waited_ns);
}

void Control::State::beat() {
  scratch_.clear();
  put_heartbeat(scratch_);
  star->send_all(FrameType::heartbeat, scratch_, true);
  if (!is_root) return;
  const std::lock_guard lock(mutex);
  stragglers.set(0, position.marks());
  stragglers.compare();
}

bool Control::State::take_heartbeat(int rank, std::string_view payload) {
  Known& from = known[static_cast<size_t>(rank)];
  Take in(payload);
  Place p;
  p.step = in.number<int64_t>();
  p.number = in.number<int64_t>();
  p.in_step = in.number<int64_t>();
  p.per_step = in.number<int64_t>();
  p.inside = in.number<uint8_t>() != 0;
  p.seconds = in.number<double>();
  const std::string_view label = in.text();
  std::array<Position::Mark, Position::kMarks> marks;
  if (is_root)
    for (Position::Mark& m : marks) {
      m.step = in.number<int64_t>();
      m.waited_ns = in.number<int64_t>();
    }
  if (!in.at_end() || label.size() > kLongestLabel || !(p.seconds >= 0 && p.seconds < 1e12)) return false;
  from.place = p;
  from.label.fill(0);
  std::copy(label.begin(), label.end(), from.label.begin());
  if (is_root) stragglers.set(rank, marks);
  return true;
}

// Everything that has arrived was read: who is silent now has not spoken.
void Control::State::check_others() {
  std::optional<Verdict> found;
  {
    const std::lock_guard lock(mutex);
    if (suspicion && monotonic_seconds() > suspicion->until) found = suspicion->verdict;
  }
  if (found) return conclude(*found);
  {
    const std::lock_guard lock(mutex);
    if (verdict || all_done || monotonic_seconds() < judged_from_) return;
    if (!is_root) {
      if (const RankView root = view(0); root.silence > options.timeout) found = silent(root);
    } else {
      views_.clear();
      for (int r = 0; r < options.size; ++r) views_.push_back(view(r));
      found = judge(views_, options.timeout);
    }
  }
  if (found) conclude(*found);
}

// To rank 0: what a rank says of itself, or (is_verdict) what it has found out. From rank 0: the verdict.
bool Control::State::take_failure(int rank, std::string_view payload) {
  Take in(payload);
  const bool is_verdict = !is_root || in.number<uint8_t>() != 0;
  const auto kind = in.number<uint8_t>();
  const auto blamed = in.number<int32_t>();
  const std::string text = to_line(in.text());
  if (!in.at_end() || kind > static_cast<uint8_t>(Fault::stuck)) return false;
  if (is_verdict) {
    conclude({static_cast<Fault>(kind), blamed, text}, is_root);
    return true;
  }
  Verdict v;
  {
    const std::lock_guard lock(mutex);
    const RankView r = view(rank);
    const std::string place = r.place.step < 0 ? "" : fmt::format(" ({})", to_string(r.place));
    v = {Fault::error, rank, fmt::format("{}: {}{}", name_of(r), text, place)};
    if (kind == static_cast<uint8_t>(Fault::stuck)) {  // Cause::messages
      if (!suspicion) suspicion = {v, monotonic_seconds() + kSuspicionSeconds};
      return true;
    }
  }
  conclude(v);
  return true;
}

}  // namespace lathe::comm
