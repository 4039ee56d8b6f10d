#include "comm/control.h"

#include <algorithm>

#include "base/error.h"
#include "comm/control/state.h"

namespace lathe::comm {
namespace {

enum class DataKind : uint8_t { gather = 1, gathered, broadcast };

constexpr std::string_view kDataNames[] = {"", "gather", "gather", "broadcast"};

std::string data_payload(uint64_t call, DataKind kind, std::string_view text) {
  LATHE_USER_CHECK(text.size() <= kLargestData, "a message of the control channel has {} bytes, at most {}",
                   text.size(), kLargestData);
  std::string out;
  out.reserve(text.size() + 16);
  Put(out).number(call).number(static_cast<uint8_t>(kind));
  out.append(text);
  return out;
}

// The text of a message; nothing: it is of another call.
std::optional<std::string> parse_data(std::string_view payload, uint64_t call, DataKind kind) {
  Take in(payload);
  if (in.number<uint64_t>() != call || in.number<uint8_t>() != static_cast<uint8_t>(kind) || !in.ok())
    return std::nullopt;
  return std::string(in.rest());
}

constexpr double kVerdictSeconds = 3;  // until rank 0 has answered a failure
constexpr double kForEver = 1e8;

}  // namespace

Control::Control(const ControlOptions& o) : state_(std::make_unique<State>(o, std::nullopt)) {}
Control::Control(const ControlOptions& o, Listener l) : state_(std::make_unique<State>(o, std::move(l))) {}
Control::~Control() = default;

int Control::rank() const { return state_->options.rank; }
int Control::size() const { return state_->options.size; }
const std::string& Control::host(int rank) const { return state_->hosts.at(static_cast<size_t>(rank)); }
std::string Control::local_host() const { return state_->local_host; }
const std::string& Control::token() const { return state_->options.token; }
Position& Control::position() { return state_->position; }

void Control::set_on_failure(std::function<void(const std::string&)> f) {
  {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(
        lock, [&] { return state_->calling == std::thread::id() || state_->calling == std::this_thread::get_id(); });
    state_->callback = std::move(f);
  }
  state_->call_back();
}

std::optional<std::string> Control::failure() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->verdict) return std::nullopt;
  return state_->verdict->text;
}

std::string Control::fail(const std::string& why, Cause cause) {
  State& s = *state_;
  if (failure()) return *s.await_verdict();  // everybody has it, or hears of it
  const auto kind = static_cast<uint8_t>(cause == Cause::error ? Fault::error : Fault::stuck);
  std::string payload;
  Put(payload).number<uint8_t>(false).number(kind).number<int32_t>(rank()).text(why.substr(0, kLongestText - 400));
  if (s.is_root) {
    s.accuse(0, payload);
  } else {
    std::string heartbeat;  // where it fails
    s.put_heartbeat(heartbeat);
    s.star->send(0, FrameType::heartbeat, heartbeat);
    s.star->send(0, FrameType::fail, payload);
  }
  if (const auto text = s.await_verdict()) return *text;
  // Rank 0 does not answer.
  s.conclude({Fault::error, rank(), fmt::format("rank {} (host {}): {}", rank(), host(rank()), why)}, false);
  return failure().value_or(why);
}

void Control::fail_alike(const std::string& why) {
  State& s = *state_;
  // A rank that left before the first one has come so far would be taken for the reason.
  if (!s.is_root && s.await_verdict()) return;
  s.conclude({Fault::stuck, -1, why}, s.is_root);
}

int Control::speaker() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->verdict) return 0;
  const Verdict& v = *state_->verdict;
  return v.fault == Fault::error ? v.rank : v.rank == 0 ? 1 : 0;
}

void Control::finish() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  if (s.verdict) throw CommError(s.verdict->text);
  s.is_done = true;
  if (size() == 1) return;
  if (!s.is_root) {
    s.star->send(0, FrameType::bye, "");
    s.wait(lock, kForEver, [&] { return s.all_done; });
    return;
  }
  s.wait(lock, kForEver, [&] {
    return !s.verdict && std::all_of(s.known.begin() + 1, s.known.end(), [](const auto& k) { return k.is_done; });
  });
  s.all_done = true;
  s.star->send_all(FrameType::done, "");
}

std::vector<std::string> Control::gather(const std::string& text, double seconds) {
  State& s = *state_;
  if (size() == 1) return {text};
  if (seconds <= 0) seconds = s.options.timeout;
  std::unique_lock lock(s.mutex);
  const uint64_t call = s.calls++;
  if (!s.is_root) {
    s.star->send(0, FrameType::data, data_payload(call, DataKind::gather, text));
    s.receive(lock, 0, seconds + 2, call, static_cast<uint8_t>(DataKind::gathered));
    return {};
  }
  std::vector<std::string> all{text};
  const double end = monotonic_seconds() + seconds;
  for (int r = 1; r < size(); ++r)
    all.push_back(s.receive(lock, r, end - monotonic_seconds(), call, static_cast<uint8_t>(DataKind::gather)));
  s.star->send_all(FrameType::data, data_payload(call, DataKind::gathered, ""));
  return all;
}

std::string Control::broadcast(const std::string& text, double seconds) {
  State& s = *state_;
  if (size() == 1) return text;
  if (seconds <= 0) seconds = s.options.timeout;
  std::unique_lock lock(s.mutex);
  const uint64_t call = s.calls++;
  if (!s.is_root) return s.receive(lock, 0, seconds + 2, call, static_cast<uint8_t>(DataKind::broadcast));
  s.star->send_all(FrameType::data, data_payload(call, DataKind::broadcast, text));
  return text;
}

// And until the callback has run: what comes next may end the process.
std::optional<std::string> Control::State::await_verdict() {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, std::chrono::duration<double>(kVerdictSeconds), [&] {
    const bool is_running = calling != std::thread::id() && calling != std::this_thread::get_id();
    return verdict && !is_running && (is_called || !callback);
  });
  if (!verdict) return std::nullopt;
  return verdict->text;
}

// The message of a rank for this call. What is wrong with it ends the run.
std::string Control::State::receive(std::unique_lock<std::mutex>& lock, int rank, double seconds, uint64_t call,
                                    uint8_t kind) {
  std::deque<std::string>& inbox = known[static_cast<size_t>(rank)].inbox;
  Verdict v;
  if (wait(lock, std::max(seconds, 0.0), [&] { return !inbox.empty(); })) {
    const std::string payload = std::move(inbox.front());
    inbox.pop_front();
    if (auto text = parse_data(payload, call, static_cast<DataKind>(kind))) return *text;
    v = {Fault::late, rank,
         fmt::format("{}: is elsewhere in the program than rank {}, which is in message {} of the control channel ({})",
                     name_of(view(rank)), options.rank, call, kDataNames[kind])};
  } else {
    v = {Fault::late, rank,
         fmt::format("{}: does not come to message {} of the control channel ({}), rank {} has waited; {}",
                     name_of(view(rank)), call, kDataNames[kind], options.rank, last_seen(view(rank)))};
  }
  lock.unlock();
  conclude(v);
  lock.lock();
  throw CommError(verdict ? verdict->text : v.text);
}

std::string Control::agree(std::span<const Item> items, double seconds) {
  return find_difference(items, rank(),
                         {[&](const std::string& text) { return gather(text, seconds); },
                          [&](const std::string& text) { return broadcast(text, seconds); }});
}

std::vector<Straggler> Control::stragglers() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->is_root) return {};
  std::vector<Straggler> rows = state_->stragglers.rows();
  for (Straggler& row : rows) row.host = host(row.rank);
  return rows;
}

std::string Control::straggler_table() const {
  const std::vector<Straggler> rows = stragglers();
  const std::lock_guard lock(state_->mutex);
  return rows.empty() ? "" : to_table(rows, state_->stragglers.steps());
}

void Control::set_stack_folder(const std::string& folder) {
  const std::lock_guard lock(state_->mutex);
  state_->stack_folder = folder;
}

void Control::close_for_test() {
  if (state_->star) state_->star->break_links();
}

}  // namespace lathe::comm
