// Memory of a process that will wait for long.
#pragma once

namespace ddp::launch {

/// Returns to the system what only the start needed: freed memory, and the mapped pages of the
/// program's file, which the kernel maps again when they are used. Costs some 50 microseconds.
void release_idle_memory();

}  // namespace ddp::launch
