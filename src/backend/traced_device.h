// A device whose queues work by themselves and know when: they report it to the Trace of the process. It must exist
// when the device is opened.
#pragma once

#include "base/trace.h"

namespace lathe {

class TracedDevice {
 public:
  virtual ~TracedDevice() = default;
  // One lane for each queue, with what it did while the trace was on. All queues have been waited for.
  virtual void add_spans(Trace&) = 0;
};

}  // namespace lathe
