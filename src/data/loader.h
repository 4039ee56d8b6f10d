// Loader: worker threads fill a ring of staging slots with batches, in the order of SampleOrder, and hand them over one
// by one. The slots belong to the caller (planned memory); the loader allocates nothing after its construction. The
// bytes of batch (epoch, index) depend on source, seed and augmentation, never on threads or the number of slots.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/part.h"
#include "data/augment.h"
#include "data/source.h"

namespace lathe::data {

// Memory for one batch. fields[f] has room for [batch, sample...] of field f, indices for [batch], or is null where
// nobody reads them.
struct Slot {
  std::array<std::byte*, kMaxFields> fields{};  // by field of the source
  int64_t* indices = nullptr;                   // receives the samples' numbers
};

struct LoaderConfig {         // How batches are made.
  uint64_t seed = 0;          // of order and augmentation
  int64_t batch = 1;          // samples
  bool shuffle = true;        // a new order in each epoch
  bool repeat = true;         // continue with the next epoch; otherwise the stream ends with the epoch of start()
  AugmentConfig augment;      // applies to field 0
  int threads = 1;            // that fill slots
  int ranks = 1, rank = 0;    // of each batch of n samples slots receive part_of(n, blocks, ranks, rank); base/part.h
  int64_t blocks = 0;         // see `ranks`
  double stall_seconds = 30;  // next() calls warn() each time it has waited this long
};

// Bytes that a loader with this configuration holds beside its slots, for samples of this type in field 0.
int64_t loader_scratch_bytes(const LoaderConfig&, const TensorType& sample);

struct Batch {        // A filled slot.
  int slot = 0;       // which of the slots
  int64_t epoch = 0;  // counted from 0
  int64_t index = 0;  // within the epoch
  int64_t count = 0;  // samples of all ranks; fewer than the batch size only in the last batch of an epoch
};

class Loader {  // Fills slots with batches ahead of their use.
 public:
  // UserError: no samples, fewer samples than one batch, or an augmentation that does not fit the source.
  // `source` must outlive the loader. The number of slots is the prefetch depth.
  Loader(const Source& source, const LoaderConfig& config, std::vector<Slot> slots);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int64_t batches_per_epoch() const { return batches_; }  // the tail included

  // Starts, or starts again, at a batch; first_batch == batches_per_epoch() means the next epoch. Batches handed out
  // before are no longer valid, and all slots are free.
  void start(int64_t epoch, int64_t first_batch = 0);

  // Waits for the next batch; it stays valid until release(). Throws what the source threw for a sample of this batch;
  // after that only start() continues. One thread calls next(), release() and start().
  const Batch& next();
  bool ready();            // next() would neither wait nor throw
  void release(int slot);  // its batch is no longer needed

  int64_t scratch_bytes() const;                             // held beside the slots
  double waited_seconds() const { return waited_seconds_; }  // in next(), over the life of the loader

 private:
  enum class Phase { free, filling, ready, held };
  struct State {
    Phase phase = Phase::free;
    Batch batch;
    int64_t chunks_left = 0;
    std::exception_ptr error;
    int64_t error_chunk = 0;
  };

  void work(const std::stop_token& stop, std::byte* scratch);
  bool can_claim() const;
  void fill(const Slot& slot, const Batch& batch, int64_t begin, int64_t end, std::byte* scratch) const;
  Part own_part(const Batch& b) const { return part_of(b.count, config_.blocks, config_.ranks, config_.rank); }

  const Source& source_;
  const LoaderConfig config_;
  const std::vector<Slot> slots_;
  int64_t batches_ = 0;
  int64_t chunk_ = 0;  // samples that a worker takes at a time

  std::mutex mutex_;
  std::condition_variable_any work_;
  std::condition_variable ready_;
  // All below are guarded by mutex_.
  std::vector<State> states_;
  bool running_ = false;
  int active_ = 0;  // workers outside of the lock
  Batch filling_;   // the batch whose chunks are being given out
  int64_t next_chunk_ = 0;
  int64_t last_epoch_ = 0;
  int next_slot_ = 0;  // the slot that next() hands over next

  std::atomic<bool> cancel_{false};  // the batches in work are not wanted any more
  double waited_seconds_ = 0;
  std::vector<std::vector<std::byte>> scratch_;  // one untouched sample per worker, when augmenting
  std::vector<std::jthread> threads_;            // last member: joined before the others go
};

}  // namespace lathe::data
