// How long this process has been there: what a person who started it has waited.
#pragma once

namespace lathe {

// Seconds since the system started the process, loading of libraries included; its clock counts hundredths.
double process_age();
double process_cpu_seconds();  // of processors that it has used, over all threads

}  // namespace lathe
