#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread_rank.h"
#include "base/trace.h"
#include "base/warning.h"
#include "data/order.h"

namespace lathe::data {
namespace {

// Small enough to spread one batch over the workers, large enough that the lock does not show (a Fashion-MNIST image
// takes 1 to 20 us, the lock 0.1 us).
constexpr int64_t kChunk = 16;

}  // namespace

int64_t loader_scratch_bytes(const LoaderConfig& config, const TensorType& sample) {
  return config.augment.any() ? config.threads * sample.bytes() : 0;
}

int64_t Loader::scratch_bytes() const {
  int64_t bytes = 0;
  for (const auto& s : scratch_) bytes += static_cast<int64_t>(s.size());
  return bytes;
}

Loader::Loader(const Source& source, const LoaderConfig& config, std::vector<Slot> slots)
    : source_(source), config_(config), slots_(std::move(slots)), states_(slots_.size()) {
  const auto fields = source.fields();
  LATHE_CHECK(!slots_.empty() && config.threads >= 1, "{} slots, {} threads", slots_.size(), config.threads);
  LATHE_USER_CHECK(!fields.empty() && fields.size() <= kMaxFields,
                   "data: expected 1 to {} fields of a sample, got {} in {}", kMaxFields, fields.size(),
                   source.description());
  LATHE_USER_CHECK(config.batch >= 1, "train.batch_size: expected at least 1, got {}", config.batch);
  LATHE_USER_CHECK(source.size() > 0, "data: no samples in {}", source.description());
  LATHE_USER_CHECK(source.size() >= config.batch,
                   "data: expected at least one batch of {} samples (train.batch_size), got {} samples in {}",
                   config.batch, source.size(), source.description());
  LATHE_CHECK(config.rank >= 0 && config.rank < config.ranks, "rank {} of {}", config.rank, config.ranks);
  check_augment(config.augment, fields[0].type);
  for (const Slot& slot : slots_) {
    for (size_t f = 0; f < fields.size(); ++f) LATHE_CHECK(slot.fields[f] != nullptr, "field {}", fields[f].name);
  }
  batches_ = ceil_div(source.size(), config.batch);
  chunk_ = std::clamp<int64_t>(ceil_div(part_of(config.batch, config.ranks, 0).size(), config.threads), 1, kChunk);
  const auto scratch = static_cast<size_t>(loader_scratch_bytes(config, fields[0].type) / config.threads);
  scratch_.assign(static_cast<size_t>(config.threads), std::vector<std::byte>(scratch));
  for (auto& bytes : scratch_) {
    threads_.emplace_back([this, p = bytes.data(), rank = thread_rank()](const std::stop_token& stop) {
      thread_rank() = rank;
      work(stop, p);
    });
  }
}

Loader::~Loader() {
  cancel_ = true;
  for (auto& thread : threads_) thread.request_stop();
}

void Loader::start(int64_t epoch, int64_t first_batch) {
  LATHE_USER_CHECK(epoch >= 0 && first_batch >= 0 && first_batch <= batches_,
                   "data: expected a start within {} batches per epoch, got epoch {} batch {}", batches_, epoch,
                   first_batch);
  if (first_batch == batches_) {
    ++epoch;
    first_batch = 0;
  }
  std::unique_lock lock(mutex_);
  running_ = false;
  cancel_ = true;
  ready_.wait(lock, [&] { return active_ == 0; });
  cancel_ = false;
  for (State& state : states_) state = State{};
  filling_ = Batch{.slot = 0, .epoch = epoch, .index = first_batch, .count = 0};
  next_chunk_ = 0;
  next_slot_ = 0;
  last_epoch_ = config_.repeat ? std::numeric_limits<int64_t>::max() : epoch;
  running_ = true;
  work_.notify_all();
}

const Batch& Loader::next() {
  const TraceScope scope("main thread", "wait for data", "data");
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  State& state = states_[static_cast<size_t>(next_slot_)];
  LATHE_CHECK(running_, "next() before start()");
  LATHE_CHECK(state.phase != Phase::held, "next() with all {} slots held", slots_.size());
  LATHE_CHECK(state.phase != Phase::free || filling_.epoch <= last_epoch_, "next() after the end of epoch {}",
              last_epoch_);
  const auto is_ready = [&] { return state.phase == Phase::ready; };
  const auto period = std::chrono::duration<double>(config_.stall_seconds);
  while (!ready_.wait_for(lock, period, is_ready)) {
    const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
    const Batch& late = state.phase == Phase::free ? filling_ : state.batch;
    warn(fmt::format("data stall: no batch for {:.0f} s (epoch {}, batch {}, {})", waited, late.epoch, late.index,
                     source_.description()));
  }
  waited_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  if (state.error) std::rethrow_exception(state.error);
  state.phase = Phase::held;
  next_slot_ = (next_slot_ + 1) % static_cast<int>(slots_.size());
  return state.batch;
}

bool Loader::ready() {
  const std::lock_guard lock(mutex_);
  const State& state = states_[static_cast<size_t>(next_slot_)];
  return running_ && state.phase == Phase::ready && !state.error;
}

void Loader::release(int slot) {
  const std::lock_guard lock(mutex_);
  LATHE_CHECK(slot >= 0 && slot < static_cast<int>(slots_.size()), "slot {}", slot);
  State& state = states_[static_cast<size_t>(slot)];
  LATHE_CHECK(state.phase == Phase::held, "slot {} is not held", slot);
  state.phase = Phase::free;
  work_.notify_all();
}

bool Loader::can_claim() const {
  if (!running_ || filling_.epoch > last_epoch_) return false;
  return next_chunk_ > 0 || states_[static_cast<size_t>(filling_.slot)].phase == Phase::free;
}

void Loader::work(const std::stop_token& stop, std::byte* scratch) {
  std::unique_lock lock(mutex_);
  while (work_.wait(lock, stop, [&] { return can_claim(); }) && !stop.stop_requested()) {
    // Claim a chunk of the batch being given out; the first one opens the batch, the last one moves on to the next.
    State& state = states_[static_cast<size_t>(filling_.slot)];
    const Slot& slot = slots_[static_cast<size_t>(filling_.slot)];
    if (next_chunk_ == 0) {
      filling_.count = std::min(config_.batch, source_.size() - filling_.index * config_.batch);
      state = State{.phase = Phase::filling,
                    .batch = filling_,
                    .chunks_left = std::max<int64_t>(1, ceil_div(own_part(filling_).size(), chunk_)),
                    .error = nullptr,
                    .error_chunk = 0};
    }
    const Batch batch = filling_;
    const int64_t chunk = next_chunk_++, own = own_part(batch).size();
    const int64_t begin = chunk * chunk_, end = std::min(own, begin + chunk_);
    if (end == own) {
      next_chunk_ = 0;
      filling_.slot = (filling_.slot + 1) % static_cast<int>(slots_.size());
      if (++filling_.index == batches_) {
        filling_.index = 0;
        ++filling_.epoch;
      }
    }
    ++active_;
    lock.unlock();

    std::exception_ptr error;
    try {
      const TraceScope scope("loader", "fill batch", "data");
      fill(slot, batch, begin, end, scratch);
    } catch (...) {
      error = std::current_exception();
    }

    lock.lock();
    --active_;
    // Of several errors in one batch the one of the first chunk is kept: the message does not depend on timing.
    if (error && (!state.error || chunk < state.error_chunk)) {
      state.error = error;
      state.error_chunk = chunk;
    }
    if (--state.chunks_left == 0) state.phase = Phase::ready;
    if (state.phase == Phase::ready || active_ == 0) ready_.notify_one();
  }
}

void Loader::fill(const Slot& slot, const Batch& batch, int64_t begin, int64_t end, std::byte* scratch) const {
  const auto fields = source_.fields();
  const SampleOrder order(config_.seed, batch.epoch, source_.size(), config_.shuffle);
  const bool augmented = config_.augment.any();
  const int64_t first = batch.index * config_.batch + own_part(batch).first;
  std::array<std::span<std::byte>, kMaxFields> spans;
  for (int64_t i = begin; i < end; ++i) {
    if (cancel_.load(std::memory_order_relaxed)) return;
    const int64_t sample = order(first + i);
    if (slot.indices) slot.indices[i] = sample;
    for (size_t f = 0; f < fields.size(); ++f) {
      const int64_t bytes = fields[f].type.bytes();
      spans[f] = {slot.fields[f] + i * bytes, static_cast<size_t>(bytes)};
    }
    const std::span<std::byte> image = spans[0];
    if (augmented) spans[0] = {scratch, image.size()};
    source_.read(sample, std::span(spans).first(fields.size()));
    if (augmented) {
      const Shape& shape = fields[0].type.shape;
      augment(image, spans[0], shape, config_.augment,
              draw_augment(config_.augment, shape, config_.seed, batch.epoch, sample));
    }
  }
}

}  // namespace lathe::data
