// A plugin of another version of the table, which must be refused before anything else of it is read.
static const int version = 0;

const void* lathe_mpi_plugin(void);
const void* lathe_mpi_plugin(void) { return &version; }
