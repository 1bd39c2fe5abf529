// What a simulator of nodes sets up for its process before it has threads.
#pragma once

namespace ddp::test {

/// A network namespace with a loopback of its own: another program may listen at any port of the
/// machine's. Prints a line, and stays in the machine's, where that is not permitted.
void enter_own_network();
/// The nodes' files are synced, for which a disk needs milliseconds.
void keep_files_in_memory();

}  // namespace ddp::test
