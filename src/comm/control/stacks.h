// Stacks of all threads of this process, for who asks why a rank does not get on.
#pragma once

namespace lathe::comm {

// Makes print_stacks() possible: a handler for one real-time signal, and the unwinder loaded. Once is enough.
void prepare_stacks();

// Writes the stack of every thread to a descriptor, each by the thread itself in a signal handler. A thread that does
// not answer within a fraction of a second (in the kernel, or with signals blocked) is named. One caller at a time.
void print_stacks(int fd);

}  // namespace lathe::comm
