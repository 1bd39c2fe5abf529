// Makes the allocator keep memory: the kernel need not allocate and clear it repeatedly.
#pragma once

#include <cstddef>

namespace ddp::train {

/// Freed memory stays with the process, up to 512 MB, except blocks of more than 32 MB.
void keep_freed_memory() noexcept;

/// The same, and allocates `bytes` at once, in huge pages if the kernel provides them.
void keep_memory(std::size_t bytes);

}  // namespace ddp::train
