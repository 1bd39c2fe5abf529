// Passes open descriptors between processes, over a pair of Unix sockets (SOCK_SEQPACKET).
#pragma once

namespace ddp::launch {

/// Sends a copy of `fd`; never blocks. Returns false with errno; EAGAIN: the socket is full.
bool pass_descriptor(int socket, int fd);
/// Returns the next descriptor (close-on-exec); never blocks. Returns -1 with errno: EAGAIN if
/// there is none yet, 0 at end-of-file, EPROTO if a message carried none.
int receive_descriptor(int socket);

}  // namespace ddp::launch
