// bucket: sums over ranks that may wait for each other become one all_reduce, so that latency is paid once for many
// small tensors. Behind partition, while the graphs of all ranks are the same but for sizes: each rank finds the same
// buckets, and with them the same order of collectives.
//
// Two sums may be one if the same collectives depend on both. Then no collective starts later for it: one that needs
// the first needs the second, too. And no cycle can come of it, of any number of buckets: where bucket A leads to B
// and B back to A, each sum of A would lead to each of B, and back. So gradients, which no collective depends on, join
// in the order in which backward makes them; statistics of a batch norm join those of the same layer at most.
//
// Collectives then stand in the order in which their inputs can be there, scaled gradients too, whose factors stand
// behind all of backward.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct BucketOptions {                    // Of the pass bucket, and of the plan that places what it makes.
  ByteSize bytes;                         // 0: by the link, bucket_bytes()
  ByteSize in_flight{int64_t{16} << 20};  // see PlanOptions::in_flight
  static void fields(auto&& f) {          // keys of recipes
    f("parallel.bucket", &BucketOptions::bytes, allow::or_word({}, "auto", 0),
      "gradients are added up over ranks in buckets of about so many bytes; \"auto\": by the link, which is measured")
        .keeps_numbers();
    f("parallel.in_flight", &BucketOptions::in_flight,
      "bytes of collectives that may be under way while the step goes on; 0: each is waited for at once")
        .keeps_numbers();
  }
};

StepSet bucket(StepSet, const PassContext&);  // see the top of the file

// The size of buckets for ranks on this link: that with which latency is a tenth of the time of a ring, to the nearest
// power of four from 64 KiB to 64 MiB. Coarse, so that the noise of a measurement rarely makes another one of it: with
// three ranks and more it decides in which order numbers are added up.
int64_t bucket_bytes(const Link&, int ranks);

}  // namespace lathe
