"""ddp-run's wheel: the commands ddp-run and trainer are programs in the environment's bin folder, not Python."""
