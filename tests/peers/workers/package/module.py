"""As a module: `-m package.module`."""

from seen import RANK, leave_record, write_line

leave_record(package=__package__)
write_line(f"out {RANK}")
write_line(f"to stderr {RANK}", fd=2)
