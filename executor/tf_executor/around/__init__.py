"""Services around the program: environment, GPUs, secrets, health, progress."""
